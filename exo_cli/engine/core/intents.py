"""Intents: what is asked for. Wishes of people (place, delete, restart, forget) and reports of machines.

Both are Commands: one kind of input, one decider, one place where a wish or a stale report is refused.
"""

from typing import Annotated, Literal

from pydantic import Field

from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.events import By, DownloadProgress
from exo_cli.engine.core.ids import AnId
from exo_cli.engine.core.runners import RunnerStatus, Value
from exo_cli.engine.core.shards import StrategyName
from exo_cli.engine.core.tasks import GenerationTask
from exo_cli.engine.core.topology import NodeFacts


class PlaceInstance(Value):
    """Put a model on machines. Declarative: placed already and fitting the wish is `unchanged`, unless `new`."""

    type: Literal["PlaceInstance"] = "PlaceInstance"
    model_card: ModelCard
    strategy: StrategyName | None = None
    engine: str = Field(default="mlx", max_length=4096)
    min_nodes: int = Field(default=1, ge=1, le=1024)
    nodes: tuple[AnId, ...] = ()
    context_tokens: int | None = Field(default=None, ge=1)
    new: bool = False
    force: bool = False


class DeleteInstance(Value):
    """Take an instance off."""

    type: Literal["DeleteInstance"] = "DeleteInstance"
    instance_id: AnId


class RestartInstance(Value):
    """Shut all runners of an instance down, so that they come back fresh.

    Of its failures only a terminal one is cleared; lesser ones count on, until its runners have served for a while.
    """

    type: Literal["RestartInstance"] = "RestartInstance"
    instance_id: AnId


class ForgetRunner(Value):
    """Report the shutdown of a runner on its behalf: its node is gone, or it is silent past its deadline."""

    type: Literal["ForgetRunner"] = "ForgetRunner"
    runner_id: AnId


class ReportNode(Value):
    """A node joined (or came back with a new incarnation), or its facts changed."""

    type: Literal["ReportNode"] = "ReportNode"
    node_id: AnId
    incarnation: int = Field(ge=0)
    facts: NodeFacts


class ReportSilence(Value):
    """A node has not been heard past its deadline."""

    type: Literal["ReportSilence"] = "ReportSilence"
    node_id: AnId
    reason: str = Field(default="silent", max_length=64)


class ReportRunner(Value):
    """A runner's status, from its supervisor."""

    type: Literal["ReportRunner"] = "ReportRunner"
    node_id: AnId
    runner_id: AnId
    attempt: int = Field(ge=0)
    status: RunnerStatus


class ReportDownload(Value):
    """Where a download on a node stands."""

    type: Literal["ReportDownload"] = "ReportDownload"
    progress: DownloadProgress


class ReportTask(Value):
    """History of a task that rank 0's node admitted. `begins` false: its beginning was reported before."""

    type: Literal["ReportTask"] = "ReportTask"
    task: Annotated[GenerationTask, Field(discriminator="type")]
    begins: bool = True
    ends: bool = True


Command = Annotated[
    PlaceInstance
    | DeleteInstance
    | RestartInstance
    | ForgetRunner
    | ReportNode
    | ReportSilence
    | ReportRunner
    | ReportDownload
    | ReportTask,
    Field(discriminator="type"),
]


class Submission(Value):
    """A command with its id and who made it. The id makes a repetition harmless."""

    command_id: AnId
    by: By
    command: Command
