"""What goes over the pipes of a runner: orders to the child, reports from it. One JSON object a line.

Orders come on the child's standard input; end of file there means that the node is gone, and the child ends at once.
Reports leave on the child's original standard output, which the child moves away from fd 1 before anything can print.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from exo_cli.engine.core.ids import AnId
from exo_cli.engine.core.runners import RunnerStatus, Value
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.tasks import ChatParams, FinishReason, Usage


class Assign(Value):
    """The first order: which shard this process is for. `model_path` is a folder, or a GGUF file, on this machine."""

    type: Literal["Assign"] = "Assign"
    instance: Instance
    runner_id: AnId
    threads: int = Field(ge=1)
    precision: Literal["auto", "stored", "float32"] = "auto"


class Connect(Value):
    """Join the group: `ring` has `host:port` of every rank in order."""

    type: Literal["Connect"] = "Connect"
    ring: tuple[str, ...]


class Load(Value):
    """Read the weights of the shard from `model_path`."""

    type: Literal["Load"] = "Load"
    model_path: str


class Warmup(Value):
    """Run the path of a request once."""

    type: Literal["Warmup"] = "Warmup"


class Generate(Value):
    """Work on a task. Rank 0 gets the params; the other ranks get None and follow rank 0 through the group."""

    type: Literal["Generate"] = "Generate"
    task_id: AnId
    params: ChatParams | None = None


class Cancel(Value):
    """Stop a task within a step or a prefill chunk. Unknown ids are ignored."""

    type: Literal["Cancel"] = "Cancel"
    task_id: AnId


class Stop(Value):
    """End: free the model, report RunnerShutdown, exit 0."""

    type: Literal["Stop"] = "Stop"


Order = Annotated[Assign | Connect | Load | Warmup | Generate | Cancel | Stop, Field(discriminator="type")]


class StatusReport(Value):
    """The status of the runner, as the child sees it. A RunnerFailed is followed by exit."""

    type: Literal["StatusReport"] = "StatusReport"
    status: RunnerStatus


class StepText(Value):
    """Text that one task produced in a step."""

    task_id: AnId
    text: str


class Step(Value):
    """One frame carries a step of all tasks that have text; `tokens` were produced in it (rank 0 only)."""

    type: Literal["Step"] = "Step"
    texts: tuple[StepText, ...] = ()
    tokens: int = 0


class Done(Value):
    """A task ended; exactly one for each Generate, whatever happened. A task that fails fails alone."""

    type: Literal["Done"] = "Done"
    task_id: AnId
    reason: FinishReason
    error: str | None = None
    code: str | None = None
    usage: Usage = Usage()
    seed: int | None = None
    digest: str | None = None


class Memory(Value):
    """Bytes held: `resident_bytes` of the process, `model_bytes` of weights, at a status change."""

    type: Literal["Memory"] = "Memory"
    resident_bytes: int
    model_bytes: int = 0
    note: str | None = None


Report = Annotated[StatusReport | Step | Done | Memory, Field(discriminator="type")]

ORDERS: TypeAdapter[Order] = TypeAdapter(Order)
REPORTS: TypeAdapter[Report] = TypeAdapter(Report)
LIMIT_BYTES = 16 * 1024 * 1024


def encode(frame: Value) -> bytes:
    """One line, newline included."""
    return frame.model_dump_json().encode() + b"\n"
