"""Tasks: work on behalf of somebody, and the steps that bring a runner up.

The names are the field's. Generation tasks (text, image, image edits) are history in the log: digests and counts,
never a prompt. The worker's steps (create, download, connect, load, warm up, cancel, shut down) are what the planner
answers with; only logs of the public system hold them as tasks.
"""

from enum import StrEnum
from typing import Annotated, Literal, cast, get_args

from pydantic import Field

from exo_cli.engine.core.ids import AnId
from exo_cli.engine.core.runners import Value


class TaskStatus(StrEnum):
    """Where a task stands; the last four are terminal."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETE = "Complete"
    TIMED_OUT = "TimedOut"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


OPEN = frozenset({TaskStatus.PENDING, TaskStatus.RUNNING})


class Sampling(Value):
    """Sampling settings of a request. `seed` None draws a fresh one, which is then reported with the answer."""

    temperature: float = Field(default=0.7, ge=0, le=10)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    min_p: float = Field(default=0.0, ge=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=0, lt=2**32)


class _Generation(Value):
    task_id: AnId
    instance_id: AnId
    task_status: TaskStatus = TaskStatus.PENDING
    digest: str | None = None
    prompt_tokens: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    finish_reason: str | None = None
    client: str | None = None
    sampling: Sampling | None = None
    error_message: str | None = None


class TextGeneration(_Generation):
    """A chat or a completion. `digest` is of the prompt, whose text goes point to point and is never logged."""

    type: Literal["TextGeneration"] = "TextGeneration"


class ImageGeneration(_Generation):
    """An image from a prompt."""

    type: Literal["ImageGeneration"] = "ImageGeneration"


class ImageEdits(_Generation):
    """An image changed by a prompt."""

    type: Literal["ImageEdits"] = "ImageEdits"


class _Step(Value):
    instance_id: AnId
    task_id: AnId | None = None
    task_status: TaskStatus = TaskStatus.PENDING


class CreateRunner(_Step):
    """Start the child process of a runner."""

    type: Literal["CreateRunner"] = "CreateRunner"
    runner_id: AnId | None = None


class DownloadModel(_Step):
    """Bring the files of a model to this node."""

    type: Literal["DownloadModel"] = "DownloadModel"
    model_id: str = ""


class ConnectToGroup(_Step):
    """Join the group of all ranks."""

    type: Literal["ConnectToGroup"] = "ConnectToGroup"
    runner_id: AnId | None = None


class LoadModel(_Step):
    """Read the weights of the shard."""

    type: Literal["LoadModel"] = "LoadModel"
    runner_id: AnId | None = None


class StartWarmup(_Step):
    """Run the path of a request once."""

    type: Literal["StartWarmup"] = "StartWarmup"
    runner_id: AnId | None = None


class CancelTask(_Step):
    """Stop one task on a runner."""

    type: Literal["CancelTask"] = "CancelTask"
    cancelled_task_id: AnId
    runner_id: AnId


class Shutdown(_Step):
    """End a runner."""

    type: Literal["Shutdown"] = "Shutdown"
    runner_id: AnId


GenerationTask = TextGeneration | ImageGeneration | ImageEdits
GENERATIONS = frozenset(get_args(GenerationTask))
Task = Annotated[
    TextGeneration
    | ImageGeneration
    | ImageEdits
    | CreateRunner
    | DownloadModel
    | ConnectToGroup
    | LoadModel
    | StartWarmup
    | CancelTask
    | Shutdown,
    Field(discriminator="type"),
]


def runner_of(task: Task) -> str | None:
    """The runner that a step is for; chats and downloads are for none."""
    if type(task) in GENERATIONS or isinstance(task, DownloadModel):
        return None
    return cast("CreateRunner", task).runner_id


class ChatMessage(Value):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str


class ChatParams(Value):
    """What a chat asks for. It goes point to point, is never logged, and never leaves rank 0."""

    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    sampling: Sampling = Sampling()
    stop: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = Field(default=(), max_length=16)


class Usage(Value):
    """Counts and times of one finished request. Rates follow from them."""

    prompt_tokens: int = 0
    tokens: int = 0
    first_token_seconds: float | None = None
    seconds: float = 0.0


class TokenChunk(Value):
    """Text that a task produced since its last chunk; `sequence` counts from 0 within the task."""

    type: Literal["TokenChunk"] = "TokenChunk"
    task_id: AnId
    sequence: int = Field(ge=0)
    text: str


FinishReason = Literal["stop", "length", "cancelled", "error"]


class Finish(Value):
    """The one terminal frame of a stream, whatever happened. `error` and `code` are set when the reason is error."""

    type: Literal["Finish"] = "Finish"
    task_id: AnId
    sequence: int = Field(ge=0)
    reason: FinishReason
    error: str | None = None
    code: str | None = None
    usage: Usage = Usage()
    seed: int | None = None


Frame = Annotated[TokenChunk | Finish, Field(discriminator="type")]
