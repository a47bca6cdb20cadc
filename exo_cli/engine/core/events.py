"""Events: what happened, in the field's names. A record is an event with its place in the log.

The reducer knows what each does to the state, the decider who may say it.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from exo_cli.engine.core.ids import AnId
from exo_cli.engine.core.runners import RunnerStatus, Value
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.tasks import Task, TaskStatus
from exo_cli.engine.core.topology import Edge, NodeFacts


class DeleteReason(StrEnum):
    """Why an instance ended."""

    REQUESTED = "requested"
    NODE_LOST = "node_lost"
    IDLE = "idle"
    UNKNOWN = "unknown"  # of the public system's logs, which do not say


class InstanceCreated(Value):
    """A model was placed."""

    type: Literal["InstanceCreated"] = "InstanceCreated"
    instance: Instance


class InstanceDeleted(Value):
    """A model was taken off; its runners shut down and its streams end."""

    type: Literal["InstanceDeleted"] = "InstanceDeleted"
    instance_id: AnId
    reason: DeleteReason = DeleteReason.REQUESTED


class RunnerStatusUpdated(Value):
    """A runner's status. `RunnerShutdown` removes the runner. `attempt` is the incarnation (null in foreign logs)."""

    type: Literal["RunnerStatusUpdated"] = "RunnerStatusUpdated"
    runner_id: AnId
    runner_status: RunnerStatus
    attempt: int | None = None


class TaskCreated(Value):
    """A task was admitted."""

    type: Literal["TaskCreated"] = "TaskCreated"
    task_id: AnId
    task: Task


class TaskStatusUpdated(Value):
    """A task's status, with what is known at its end."""

    type: Literal["TaskStatusUpdated"] = "TaskStatusUpdated"
    task_id: AnId
    task_status: TaskStatus
    tokens: int | None = None
    seconds: float | None = None
    finish_reason: str | None = None
    error_message: str | None = None


class TaskDeleted(Value):
    """A task left the state (its story stays in the log)."""

    type: Literal["TaskDeleted"] = "TaskDeleted"
    task_id: AnId


class DownloadKind(StrEnum):
    """Where a download stands."""

    PENDING = "DownloadPending"
    ONGOING = "DownloadOngoing"
    COMPLETED = "DownloadCompleted"
    FAILED = "DownloadFailed"


class DownloadProgress(Value):
    """A model's files on a node, in bytes. `permanent` says of a failure that no further try can help."""

    node_id: AnId
    model_id: str = Field(max_length=256)
    kind: DownloadKind
    downloaded_bytes: int = Field(default=0, ge=0)
    total_bytes: int = Field(default=0, ge=0)
    error_message: str | None = None
    permanent: bool = False


class NodeDownloadProgress(Value):
    """A download began, moved, ended or failed; at most once a second, when changed."""

    type: Literal["NodeDownloadProgress"] = "NodeDownloadProgress"
    download_progress: DownloadProgress


class NodeJoined(Value):
    """A node became part of the cluster, or came back with a new incarnation."""

    type: Literal["NodeJoined"] = "NodeJoined"
    node_id: AnId
    facts: NodeFacts
    incarnation: int = Field(ge=0)


class NodeGatheredInfo(Value):
    """Facts of a node changed."""

    type: Literal["NodeGatheredInfo"] = "NodeGatheredInfo"
    node_id: AnId
    facts: NodeFacts


class NodeTimedOut(Value):
    """A node was silent past its deadline, or left; everything keyed by it goes."""

    type: Literal["NodeTimedOut"] = "NodeTimedOut"
    node_id: AnId
    reason: str = Field(default="silent", max_length=64)


class TopologyEdgeCreated(Value):
    """One node can reach another."""

    type: Literal["TopologyEdgeCreated"] = "TopologyEdgeCreated"
    edge: Edge


class TopologyEdgeDeleted(Value):
    """It no longer can."""

    type: Literal["TopologyEdgeDeleted"] = "TopologyEdgeDeleted"
    edge: Edge


class TermStarted(Value):
    """A master began its term: the first record of every term."""

    type: Literal["TermStarted"] = "TermStarted"
    master: AnId
    cluster_id: AnId


class VotersChanged(Value):
    """Who votes."""

    type: Literal["VotersChanged"] = "VotersChanged"
    voters: tuple[AnId, ...]


Event = Annotated[
    InstanceCreated
    | InstanceDeleted
    | RunnerStatusUpdated
    | TaskCreated
    | TaskStatusUpdated
    | TaskDeleted
    | NodeDownloadProgress
    | NodeJoined
    | NodeGatheredInfo
    | NodeTimedOut
    | TopologyEdgeCreated
    | TopologyEdgeDeleted
    | TermStarted
    | VotersChanged,
    Field(discriminator="type"),
]


class By(Value):
    """Who made an event happen: the node that asked or reported, and for a command its client, user and id."""

    node: AnId
    client: str | None = Field(default=None, max_length=64)
    user: str | None = Field(default=None, max_length=64)
    command_id: AnId | None = None


class Record(Value):
    """An event at its place: `index` from 0 without gaps, the `term` of the master that ordered it, `at` its clock.

    `cause` is the index that this one followed from. Nothing orders by `at`: it can step back at a change of master.
    """

    index: int = Field(ge=0)
    term: int = Field(ge=0)
    at: datetime
    by: By
    cause: int | None = None
    event: Event
