"""Reasons: why nothing happens to a runner, or what is next. The planner's rules, each with the one fact that stops it.

Whether a rule acts is asked of the planner itself; what is told of one that does not is told here. What a node really
runs is not in the state, so each runner in it is taken for a process of its node, and whatever failed for backed off.
The planner of the public system (`foreign`) has no rule for runners that their group left behind: there nothing moves
again when a sibling begins anew.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from exo_cli.engine.core.events import DownloadKind
from exo_cli.engine.core.planner import RULES, Local, LocalRunner, View
from exo_cli.engine.core.runners import SERVING, RunnerFailed
from exo_cli.engine.core.shards import Instance, Shard
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import OPEN, GenerationTask, TaskStatus

_MOVING = frozenset({"RunnerConnecting", "RunnerLoading", "RunnerWarmingUp", "RunnerShuttingDown"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule of the planner about a runner: whether it acts, and the fact that decides it."""

    rule: str
    acts: bool
    why: str


@dataclass(frozen=True, slots=True)
class _Case:
    view: View
    instance: Instance
    shard: Shard

    @property
    def kind(self) -> str:
        """The name of its status."""
        return self.view.status_of(self.shard.runner_id) or "not in the state"

    def siblings(self) -> Iterator[Shard]:
        """The other ranks."""
        return (each for each in self.instance.shards if each.runner_id != self.shard.runner_id)

    def where(self, shard: Shard, which: str = "") -> str:
        """How it stands with a rank."""
        runner = self.view.state.runners.get(shard.runner_id)
        how = "not in the state" if runner is None else f"{runner.status.type} since record {runner.since_index}"
        return f"{shard.runner_id} on node {shard.node_id}{which} is {how}"

    def waits_for(self, allowed: frozenset[str]) -> str | None:
        """The first other rank that is not as far as it has to be."""
        late = next((each for each in self.siblings() if self.view.status_of(each.runner_id) not in allowed), None)
        return None if late is None else f"waits for {self.where(late, ', which')}"


def reasons(state: State, runner_id: str, at: datetime | None, *, foreign: bool = False) -> list[Verdict]:
    """The verdict of each rule about a runner of a placed instance, in the planner's order; nothing for any other."""
    instance = state.instance_of_runner(runner_id)
    shard = instance.shard_of(runner_id) if instance is not None else None
    if instance is None or shard is None:
        return []
    view = View(_local(state, shard.node_id, at), state, _admitted(state, instance), at.timestamp() if at else 0.0)
    case = _Case(view, instance, shard)
    return [_judged(case, rule, foreign=foreign) for rule in RULES]


def _judged(case: _Case, rule: str, *, foreign: bool) -> Verdict:
    runner_id, instance_id = case.shard.runner_id, case.instance.instance_id
    actions = (
        each
        for each in RULES[rule](case.view)
        if (getattr(each, "runner_id", None) or runner_id) == runner_id and each.instance_id == instance_id
    )
    action = next(actions, None)
    if action is None or (rule == "kill runner" and foreign and not _is_killed_there(case)):
        return Verdict(rule, False, _FACTS[rule](case))
    return Verdict(rule, True, f"{action.type} is next")


def _is_killed_there(case: _Case) -> bool:
    every = [case.view.status_of(each) for each in case.instance.runner_ids]
    return "RunnerFailed" in every


def _local(state: State, node_id: str, at: datetime | None) -> Local:
    """What the node would have, going by the state."""
    local = Local(node_id)
    for instance in state.instances.values():
        shard = instance.shard_on(node_id)
        runner = state.runners.get(shard.runner_id) if shard is not None else None
        if shard is not None and runner is not None:
            at_work = {task_id for task_id, task in state.tasks.items() if task.task_status == TaskStatus.RUNNING}
            # A sibling that reported after this one is not the one that it connected to.
            group: dict[str, int | None] = {
                each: known.attempt if known.since_index <= runner.since_index else None
                for each in instance.runner_ids
                if (known := state.runners.get(each)) is not None
            }
            local.runners[shard.runner_id] = LocalRunner(
                shard.runner_id, instance, runner.attempt or 0, runner.status, group=group, forwarded=at_work
            )
        failures = state.failures.get(instance.instance_id)
        if at is not None and failures is not None and failures.last_at is not None:
            for _ in range(failures.count):
                local.starts.record_failure(instance.instance_id, failures.last_at.timestamp())
    for model_id, progress in state.downloads.get(node_id, {}).items():
        if progress.kind == DownloadKind.ONGOING:
            local.downloading.add(model_id)
        if progress.permanent:
            local.downloads.forbid(model_id)
    return local


def _admitted(state: State, instance: Instance) -> dict[str, GenerationTask]:
    return {
        task_id: task
        for task_id, task in state.tasks.items()
        if task.instance_id == instance.instance_id and isinstance(task, GenerationTask)
    }


def _no_cancel(case: _Case) -> str:
    cancelled = [each for each, task in case.view.admitted.items() if task.task_status == TaskStatus.CANCELLED]
    return f"task {cancelled[0]} is cancelled, and not with this runner" if cancelled else "no task of it is cancelled"


def _no_kill(case: _Case) -> str:
    return f"instance {case.instance.instance_id} is placed, and no rank of it has failed"


def _no_create(case: _Case) -> str:
    state, name = case.view.state, case.instance.instance_id
    if case.shard.runner_id in case.view.local.runners:
        return f"it is there: {case.where(case.shard)}"
    failures = state.failures.get(name)
    if failures is not None and failures.terminal:
        return f"instance {name} failed {failures.count} times in a row, the last time: {failures.last_error}"
    failed = next((each for each in case.siblings() if case.view.status_of(each.runner_id) == "RunnerFailed"), None)
    if failed is not None:
        return f"waits for {case.where(failed, ', which')}"
    left = case.view.local.starts.until(name) - case.view.now
    what = failures.last_error if failures is not None else None
    return f"the next try is in {left:.1f} s, after: {what}"


def _no_download(case: _Case) -> str:
    model_id, node_id = case.instance.model_card.model_id, case.shard.node_id
    progress = case.view.state.downloads.get(node_id, {}).get(model_id)
    if progress is not None and progress.kind == DownloadKind.COMPLETED:
        return f"{model_id} is on node {node_id}"
    if case.shard.runner_id not in case.view.local.runners:
        return f"it is {case.kind}"
    return _download(case, node_id) if progress is not None else f"it is {case.kind}, past the point of loading"


def _download(case: _Case, node_id: str) -> str:
    model_id = case.instance.model_card.model_id
    progress = case.view.state.downloads.get(node_id, {}).get(model_id)
    if progress is None:
        return f"node {node_id} has reported nothing of {model_id}"
    error = f": {progress.error_message}" if progress.error_message else ""
    return (
        f"{model_id} on node {node_id} is {progress.kind}, {progress.downloaded_bytes} of {progress.total_bytes}{error}"
    )


def _no_connect(case: _Case) -> str:
    if case.shard.world_size == 1:
        return "a single rank needs no group"
    if case.kind != "RunnerIdle":
        return f"it is {case.kind}, not RunnerIdle"
    if late := case.waits_for(frozenset({"RunnerIdle", "RunnerConnecting"})):
        return late
    return f"the last rank connects last: {case.waits_for(frozenset({'RunnerConnecting'}))}"


def _no_load(case: _Case) -> str:
    model_id = case.instance.model_card.model_id
    missing = next((each for each in case.instance.node_ids if not case.view.has_model(each, model_id)), None)
    needed = "RunnerIdle" if case.shard.world_size == 1 else "RunnerConnected"
    if case.kind != needed:
        return f"it is {case.kind}, not {needed}"
    if missing is not None:
        rank = next(each for each in case.instance.shards if each.node_id == missing)
        return f"waits for node {missing}: {case.where(rank)}; {_download(case, missing)}"
    return case.waits_for(frozenset({"RunnerConnected", "RunnerLoading", "RunnerLoaded"})) or "nothing"


def _no_warm_up(case: _Case) -> str:
    if case.kind != "RunnerLoaded":
        return f"it is {case.kind}, not RunnerLoaded"
    ahead = frozenset({"RunnerWarmingUp", *SERVING})
    return case.waits_for(ahead if case.shard.rank == 0 else ahead | {"RunnerLoaded"}) or "nothing"


def _no_forward(case: _Case) -> str:
    if not any(task.task_status in OPEN for task in case.view.admitted.values()):
        return "no task of it is open"
    if case.kind not in SERVING:
        return f"it is {case.kind}, not RunnerReady"
    return case.waits_for(SERVING) or "its open tasks are with it"


_FACTS: dict[str, Callable[[_Case], str]] = {
    "cancel tasks": _no_cancel,
    "kill runner": _no_kill,
    "create runner": _no_create,
    "download model": _no_download,
    "connect group": _no_connect,
    "load model": _no_load,
    "warm up": _no_warm_up,
    "forward pending tasks": _no_forward,
}


def is_stuck(state: State, instance: Instance, at: datetime | None, *, foreign: bool = False) -> bool:
    """Whether nothing can move in an instance that does not serve: no rule acts for any rank, nothing is under way."""
    runners = [state.runners.get(each) for each in instance.runner_ids]
    kinds = [runner.status.type if runner is not None else None for runner in runners]
    failures = state.failures.get(instance.instance_id)
    is_over = failures is not None and failures.terminal
    if is_over or all(kind in SERVING for kind in kinds) or _MOVING & set(kinds):
        return False
    if any(runner is not None and isinstance(runner.status, RunnerFailed) for runner in runners):
        return False
    model_id = instance.model_card.model_id
    for node_id in instance.node_ids:
        progress = state.downloads.get(node_id, {}).get(model_id)
        if progress is not None and progress.kind == DownloadKind.ONGOING:
            return False
    return not any(
        verdict.acts for runner_id in instance.runner_ids for verdict in reasons(state, runner_id, at, foreign=foreign)
    )


def reason_items(
    state: State, wanted: str, at: datetime | None, *, node: str = "", foreign: bool = False
) -> list[dict[str, object]]:
    """The verdicts about each runner of a placed instance whose id, instance or node begins so, as plain values."""
    rows: list[dict[str, object]] = []
    for instance in state.instances.values():
        for shard in instance.shards:
            names = (instance.instance_id, shard.runner_id, shard.node_id)
            if not any(name.startswith(wanted) for name in names) or not shard.node_id.startswith(node):
                continue
            runner = state.runners.get(shard.runner_id)
            rows.append(
                {
                    "runner_id": shard.runner_id,
                    "node_id": shard.node_id,
                    "status": runner.status.type if runner is not None else None,
                    "stuck": is_stuck(state, instance, at, foreign=foreign),
                    "rules": [
                        {"rule": each.rule, "acts": each.acts, "why": each.why}
                        for each in reasons(state, shard.runner_id, at, foreign=foreign)
                    ],
                }
            )
    return rows


def stuck_told(state: State, instance: Instance, at: datetime | None, *, foreign: bool = False) -> str:
    """What each rank of an instance that is stuck waits for."""
    waits = [
        f"{runner_id} {verdict.why}"
        for runner_id in instance.runner_ids
        for verdict in reasons(state, runner_id, at, foreign=foreign)
        if "waits for" in verdict.why
    ]
    where = ", ".join(
        f"{each} is {runner.status.type if (runner := state.runners.get(each)) else 'not there'}"
        for each in instance.runner_ids
    )
    return f"instance {instance.instance_id} serves nobody, and no rule of the planner can move it: " + (
        "; ".join(waits) or where
    )
