"""What goes into a replica, and what comes out.

Inputs are everything that a node hears: time, disk, peers, clients, its own runners. Effects are carried out in the
order `note`, `restart`, `append`, `send`, `act`, `answer`; nothing of an append is applied, sent or answered before
`Appended` (or `AppendFailed`) comes back.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from exo_cli.engine.core.actions import Action
from exo_cli.engine.core.events import DownloadProgress, Record
from exo_cli.engine.core.intents import Submission
from exo_cli.engine.core.runners import RunnerStatus
from exo_cli.engine.core.tasks import GenerationTask
from exo_cli.engine.core.topology import NodeFacts
from exo_cli.engine.core.wire import Answer, Envelope, Header, Message


@dataclass(frozen=True, slots=True)
class Now:
    """The time: `seconds` of a clock that never steps back, and the wall clock for what people read."""

    seconds: float
    at: datetime


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Records up to this index are durable."""

    upto: int


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """They are not, and the file is as it was."""

    error: str


@dataclass(frozen=True, slots=True)
class Submitted:
    """A client of this node asks for something; `reply_to` is answered exactly once."""

    submission: Submission
    reply_to: object
    timeout_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Heard:
    """A published message."""

    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of another node; `reply_to` gets exactly one Reply."""

    envelope: Envelope
    reply_to: object


@dataclass(frozen=True, slots=True)
class Replied:
    """The answer to an Ask (None: none came)."""

    ask_id: int
    envelope: Envelope | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class RunnerChanged:
    """A runner process of this node reports."""

    runner_id: str
    attempt: int
    status: RunnerStatus


@dataclass(frozen=True, slots=True)
class DownloadChanged:
    """A download of this node moved."""

    progress: DownloadProgress


@dataclass(frozen=True, slots=True)
class FactsChanged:
    """This machine looks different now."""

    facts: NodeFacts


@dataclass(frozen=True, slots=True)
class ChatAdmitted:
    """A task for a runner of this node. `is_mine`: this node is rank 0's, it owns the history."""

    task: GenerationTask
    is_mine: bool


@dataclass(frozen=True, slots=True)
class ChatCancelled:
    """Somebody no longer wants it."""

    task_id: str


@dataclass(frozen=True, slots=True)
class ChatEnded:
    """The task reached its terminal status, with its counts."""

    task: GenerationTask


Input = (
    Tick
    | Appended
    | AppendFailed
    | Submitted
    | Heard
    | Asked
    | Replied
    | RunnerChanged
    | DownloadChanged
    | FactsChanged
    | ChatAdmitted
    | ChatCancelled
    | ChatEnded
)


@dataclass(frozen=True, slots=True)
class Publish:
    """To whoever follows."""

    topic: Literal["events", "gossip"]
    message: Message


@dataclass(frozen=True, slots=True)
class Ask:
    """To one node; its answer comes back as Replied."""

    ask_id: int
    address: str
    message: Message
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """To the node that asked."""

    reply_to: object
    message: Message


@dataclass(frozen=True, slots=True)
class Follow:
    """Begin (or stop) to hear a topic of a node."""

    address: str
    topic: Literal["events", "gossip"]
    on: bool = True


@dataclass(frozen=True, slots=True)
class EndTask:
    """A task cannot go on: its stream gets its terminal frame now."""

    task_id: str
    code: str
    error: str


@dataclass(frozen=True, slots=True)
class Answered:
    """To a client of this node."""

    reply_to: object
    answer: Answer


@dataclass(frozen=True, slots=True)
class Note:
    """For the journal: what never reaches the log (refusals, changes of master), and counts."""

    kind: str
    fields: dict[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Leave:
    """This node must not go on: what is wrong, and what to run instead."""

    reason: str
    hint: str


@dataclass(slots=True)
class Effects:
    """What a step asks for. `leave` comes last: the node ends its streams and runners, and goes."""

    note: list[Note] = field(default_factory=list[Note])
    restart: Header | None = None
    append: list[Record] = field(default_factory=list[Record])
    send: list[Publish | Ask | Reply | Follow] = field(default_factory=list[Publish | Ask | Reply | Follow])
    act: list[Action | EndTask] = field(default_factory=list[Action | EndTask])
    answer: list[Answered] = field(default_factory=list[Answered])
    leave: Leave | None = None
