"""Engines: what runs a shard, behind one seam.

It knows what a runner asks of an engine and where each engine is; it imports none of them before it is asked for
(mlx takes a while), and it knows nothing of pipes, frames and statuses: those are the runner's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol

from exo_cli.engine.core.shards import Instance, Shard
from exo_cli.engine.core.tasks import ChatParams, FinishReason, Usage

Cancelled = Callable[[], bool]
Progress = Callable[[int, int], None]
"""Called with (layers loaded, layers of the shard)."""


class EngineError(Exception):
    """Why an engine cannot do what it was asked: one sentence for people and a stable code for scripts."""

    def __init__(self, message: str, code: str = "generation_failed") -> None:
        """Keep the sentence and the code."""
        super().__init__(message)
        self.code = code


class GroupLostError(EngineError):
    """A rank of the group is gone: no task can be worked on any more, this one and those that wait."""

    def __init__(self, message: str) -> None:
        """Keep the sentence."""
        super().__init__(message, "group_lost")


class CalledOffError(Exception):
    """A load or a warm-up ended early because it is no longer wanted."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What an engine is told about its place before anything else. `threads` are those for matrix products."""

    instance: Instance
    shard: Shard
    threads: int
    precision: Literal["auto", "stored", "float32"]
    cache_folder: Path


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load came to: bytes of weights held, and a sentence on how they are held."""

    model_bytes: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A step of one task: text that it set free (may be empty), and tokens that it made (0: a chunk of prompt)."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Result:
    """How a task ended; always the last thing an engine gives for it. `error` and `code` go with the reason error."""

    reason: FinishReason
    usage: Usage = field(default_factory=Usage)
    seed: int | None = None
    error: str | None = None
    code: str | None = None


class Engine(Protocol):
    """One shard of one model. Calls come from one thread, in the order of this list, tasks one after another."""

    def connect(self, ring: Sequence[str], rank: int) -> None:
        """Join the group whose ranks listen at `ring`, in order."""

    def load(self, model_path: Path, on_progress: Progress, cancelled: Cancelled) -> Loaded:
        """Read the weights of the shard. Raises CalledOffError."""

    def warmup(self, cancelled: Cancelled) -> None:
        """Run the path of a request once, on every rank of a group: prefill in chunks, decoding. As `load` raises."""

    def generate(self, task_id: str, params: ChatParams, cancelled: Cancelled) -> Iterator[Piece | Result]:
        """Work on a task (rank 0 only): pieces, then one result. May raise instead of giving the result."""

    def skip(self, task_id: str) -> None:
        """A task is not worked on (rank 0 only): let the other ranks, which were given it too, go on."""

    def follow(self, task_id: str) -> None:
        """Do this rank's part of a task that rank 0 decides on (other ranks only). Returns at the end of the task."""

    def close(self) -> None:
        """Let go of everything."""


Factory = Callable[[Setting, str], Engine]

ENGINES: Mapping[str, tuple[str, str]] = {
    "mlx": ("exo_cli.engine.inference.mlx", "MlxEngine"),
    "scripted": ("exo_cli.engine.inference.scripted", "ScriptedEngine"),
}


def engine_for(setting: Setting) -> Engine:
    """The engine that the instance names: `name`, or `name:argument`.

    Raises:
        EngineError: there is no engine of that name, or its argument is wrong.
    """
    name, _, argument = setting.instance.engine.partition(":")
    if name not in ENGINES:
        raise EngineError(f"there is no engine {name!a} (known: {', '.join(ENGINES)})", "no_engine")
    module, attribute = ENGINES[name]
    factory: Factory = getattr(import_module(module), attribute)
    return factory(setting, argument)
