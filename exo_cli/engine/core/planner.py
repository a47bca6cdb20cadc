"""The planner: what this machine should do next. A pure function whose rules are tried in order.

It compares the state with what this node really runs (`Local`), and answers with one action or None. It never waits
for a runner: an action that is under way is marked in `Local` by whoever carries it out. Rank order: ranks 0..n-2
connect first and n-1 last; ranks 1..n-1 warm up first and 0 last. The rules and their cases are the field's (P1 to
P21); where the public system raises or locks up there, this one does not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exo_cli.engine.core.actions import Action
from exo_cli.engine.core.backoff import KeyedBackoff
from exo_cli.engine.core.events import DownloadKind
from exo_cli.engine.core.runners import SERVING, RunnerFailed, RunnerStatus
from exo_cli.engine.core.shards import Instance, Shard
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import (
    OPEN,
    CancelTask,
    ConnectToGroup,
    CreateRunner,
    DownloadModel,
    GenerationTask,
    LoadModel,
    Shutdown,
    StartWarmup,
    TaskStatus,
)


@dataclass(slots=True)
class LocalRunner:
    """A runner process of this node.

    `status` None: started, nothing heard yet. `asked`: an order it has not obeyed. `unsettled`: reports of it that the
    master has not answered yet. `group`: the attempts of its siblings whose endpoints it was told to connect to.
    """

    runner_id: str
    instance: Instance
    attempt: int
    status: RunnerStatus | None = None
    asked: str | None = None
    unsettled: int = 0
    group: dict[str, int | None] = field(default_factory=dict[str, int | None])
    forwarded: set[str] = field(default_factory=set[str])
    cancelled: set[str] = field(default_factory=set[str])

    @property
    def shard(self) -> Shard:
        """Its part of the model."""
        shard = self.instance.shard_of(self.runner_id)
        assert shard is not None, f"{self.runner_id} is no runner of {self.instance.instance_id}"
        return shard

    @property
    def kind(self) -> str:
        """The name of its status."""
        return self.status.type if self.status else "starting"


@dataclass(slots=True)
class Local:
    """What this node really has: processes, downloads under way, and what is backed off until when."""

    node_id: str
    runners: dict[str, LocalRunner] = field(default_factory=dict[str, LocalRunner])
    downloading: set[str] = field(default_factory=set[str])
    downloads: KeyedBackoff = field(default_factory=KeyedBackoff)
    starts: KeyedBackoff = field(default_factory=KeyedBackoff)


@dataclass(frozen=True, slots=True)
class View:
    """What the rules look at: the local truth, the state, who is admitted, and the time (monotonic seconds)."""

    local: Local
    state: State
    admitted: Mapping[str, GenerationTask]
    now: float

    def status_of(self, runner_id: str) -> str | None:
        """The name of a runner's status: the process here knows better than the state, which hears of it later."""
        if (mine := self.local.runners.get(runner_id)) is not None:
            return mine.kind
        runner = self.state.runners.get(runner_id)
        return runner.status.type if runner else None

    def statuses(self, instance: Instance) -> list[str | None]:
        """The names of all its runners' statuses, in order of rank (None: not in the state)."""
        return [self.status_of(runner_id) for runner_id in instance.runner_ids]

    def has_model(self, node_id: str, model_id: str) -> bool:
        """Whether a node has all files of a model."""
        progress = self.state.downloads.get(node_id, {}).get(model_id)
        return progress is not None and progress.kind == DownloadKind.COMPLETED


def plan(local: Local, state: State, admitted: Mapping[str, GenerationTask], now: float) -> Action | None:
    """The next action, or None. `admitted`: the tasks that this node admitted, or heard of from rank 0."""
    view = View(local, state, admitted, now)
    return next((action for rule in RULES.values() for action in rule(view)), None)


def _cancel_tasks(view: View) -> Iterator[Action]:
    for task_id, task in view.admitted.items():
        if task.task_status != TaskStatus.CANCELLED:
            continue
        for runner in view.local.runners.values():
            mine = runner.instance.instance_id == task.instance_id
            if mine and task_id in runner.forwarded and task_id not in runner.cancelled:
                yield CancelTask(instance_id=task.instance_id, cancelled_task_id=task_id, runner_id=runner.runner_id)


def _kill_runner(view: View) -> Iterator[Action]:
    for runner in view.local.runners.values():
        if runner.asked != "Shutdown" and _must_end(view, runner):
            yield Shutdown(instance_id=runner.instance.instance_id, runner_id=runner.runner_id)


def _must_end(view: View, runner: LocalRunner) -> bool:
    instance_id = runner.instance.instance_id
    if view.state.instances.get(instance_id) is None:
        return True
    failures = view.state.failures.get(instance_id)
    if isinstance(runner.status, RunnerFailed):
        if runner.unsettled:
            return False  # whether it was one failure too many is known once the report is in the log
        # The last of too many failures stays to be seen, without a process, until somebody restarts or deletes it.
        return failures is None or not failures.terminal or failures.runner_id != runner.runner_id
    siblings = [each for each in runner.instance.runner_ids if each != runner.runner_id]
    if any(view.status_of(each) == "RunnerFailed" for each in siblings):
        return True
    if _is_left_behind(view, runner, siblings):
        return True
    told = view.state.runners.get(runner.runner_id)
    return told is not None and told.attempt == runner.attempt and told.status.type == "RunnerShuttingDown"


def _is_left_behind(view: View, runner: LocalRunner, siblings: Sequence[str]) -> bool:
    """Whether a sibling is gone, or began anew, since this one was told where its group is: nothing would move.

    A sibling that is idle in the state may only be ahead of its reports, so what counts is its attempt.
    """
    return runner.kind in _GROUPED and any(
        (sibling := view.state.runners.get(each)) is None
        or sibling.status.type == "RunnerShuttingDown"
        or (sibling.status.type in _FORMING and sibling.attempt != runner.group.get(each))
        for each in siblings
    )


_FORMING = frozenset({"RunnerIdle", "RunnerConnecting"})
_GROUPED = frozenset(
    {
        "RunnerConnecting",
        "RunnerConnected",
        "RunnerLoading",
        "RunnerLoaded",
        "RunnerWarmingUp",
        "RunnerReady",
        "RunnerRunning",
    }
)


def _create_runner(view: View) -> Iterator[Action]:
    for instance in view.state.instances.values():
        shard = instance.shard_on(view.local.node_id)
        if shard is None or shard.runner_id in view.local.runners:
            continue
        failures = view.state.failures.get(instance.instance_id)
        if failures is not None and failures.terminal:
            continue
        own = view.status_of(shard.runner_id)
        others = [view.status_of(each) for each in instance.runner_ids if each != shard.runner_id]
        if "RunnerFailed" in others and own != "RunnerFailed":
            continue
        if not view.local.starts.may_proceed(instance.instance_id, view.now):
            continue
        yield CreateRunner(instance_id=instance.instance_id, runner_id=shard.runner_id)


# Ranks connect while their files still come, so a download that failed is tried again in a group too.
_BEFORE_LOADING = frozenset({"RunnerIdle", "RunnerConnecting", "RunnerConnected"})


def _download_model(view: View) -> Iterator[Action]:
    for runner in view.local.runners.values():
        model_id = runner.instance.model_card.model_id
        if runner.kind not in _BEFORE_LOADING or model_id in view.local.downloading:
            continue
        progress = view.state.downloads.get(view.local.node_id, {}).get(model_id)
        if progress is not None and progress.kind == DownloadKind.COMPLETED:
            continue
        # The gate stands before anything is written down, so that a failing download cannot flood the log.
        if view.local.downloads.may_proceed(model_id, view.now):
            yield DownloadModel(instance_id=runner.instance.instance_id, model_id=model_id)


def _connect_group(view: View) -> Iterator[Action]:
    for runner in view.local.runners.values():
        # Unsettled: the others, and this node's own order to it, find its ring endpoint in the state.
        if runner.asked or runner.unsettled or runner.kind != "RunnerIdle" or runner.shard.world_size == 1:
            continue
        statuses = view.statuses(runner.instance)
        if not all(status in {"RunnerIdle", "RunnerConnecting"} for status in statuses):
            continue
        others = [status for rank, status in enumerate(statuses) if rank != runner.shard.rank]
        is_last = runner.shard.rank == runner.shard.world_size - 1
        if not is_last or all(status == "RunnerConnecting" for status in others):
            yield ConnectToGroup(instance_id=runner.instance.instance_id, runner_id=runner.runner_id)


def _load_model(view: View) -> Iterator[Action]:
    for runner in view.local.runners.values():
        instance = runner.instance
        if runner.asked or not all(
            view.has_model(node_id, instance.model_card.model_id) for node_id in instance.node_ids
        ):
            continue
        alone = runner.shard.world_size == 1 and runner.kind == "RunnerIdle"
        grouped = runner.kind == "RunnerConnected" and all(
            status in {"RunnerConnected", "RunnerLoading", "RunnerLoaded"} for status in view.statuses(instance)
        )
        if alone or grouped:
            yield LoadModel(instance_id=instance.instance_id, runner_id=runner.runner_id)


def _warm_up(view: View) -> Iterator[Action]:
    for runner in view.local.runners.values():
        if runner.asked or runner.kind != "RunnerLoaded":
            continue
        statuses = view.statuses(runner.instance)
        # An engine whose ranks need nothing of each other may be through with it already.
        if runner.shard.rank > 0:
            ready = all(status in {"RunnerLoaded", "RunnerWarmingUp", *SERVING} for status in statuses)
        else:
            ready = all(status in {"RunnerWarmingUp", *SERVING} for status in statuses[1:])
        if ready:
            yield StartWarmup(instance_id=runner.instance.instance_id, runner_id=runner.runner_id)


def _forward_tasks(view: View) -> Iterator[Action]:
    for task_id, task in view.admitted.items():
        if task.task_status not in OPEN:
            continue
        for runner in view.local.runners.values():
            if runner.instance.instance_id != task.instance_id or task_id in runner.forwarded:
                continue
            if runner.kind in SERVING and all(status in SERVING for status in view.statuses(runner.instance)):
                yield task


Rule = Callable[[View], Iterator[Action]]

RULES: dict[str, Rule] = {
    "cancel tasks": _cancel_tasks,
    "kill runner": _kill_runner,
    "create runner": _create_runner,
    "download model": _download_model,
    "connect group": _connect_group,
    "load model": _load_model,
    "warm up": _warm_up,
    "forward pending tasks": _forward_tasks,
}
