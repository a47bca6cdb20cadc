"""The decider: what follows from a command in a given state. Events, or a refusal with its reason and a hint.

It is the only place where a wish or a report is turned down, so it is the only place that keeps stale state out:
a report of a runner whose instance is gone, of an older attempt, or against the transition table never becomes an
event. A repeated command gives the same answer.
"""

from typing import assert_never

from exo_cli.engine.core.errors import ExitCode, Refused
from exo_cli.engine.core.events import (
    DeleteReason,
    Event,
    InstanceCreated,
    InstanceDeleted,
    NodeDownloadProgress,
    NodeGatheredInfo,
    NodeJoined,
    NodeTimedOut,
    RunnerStatusUpdated,
    TaskCreated,
    TaskDeleted,
    TaskStatusUpdated,
)
from exo_cli.engine.core.ids import instance_id_in
from exo_cli.engine.core.intents import (
    Command,
    DeleteInstance,
    ForgetRunner,
    PlaceInstance,
    ReportDownload,
    ReportNode,
    ReportRunner,
    ReportSilence,
    ReportTask,
    RestartInstance,
)
from exo_cli.engine.core.placement import place
from exo_cli.engine.core.runners import RunnerFailed, RunnerShutdown, RunnerShuttingDown, may_follow
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import OPEN, TaskStatus
from exo_cli.engine.core.topology import changed_enough

Decision = tuple[Event, ...] | Refused


def decide(state: State, command: Command, command_id: str) -> Decision:
    """Events in order (none: nothing to change), or a refusal."""
    match command:
        case PlaceInstance():
            return _place(state, command, command_id)
        case DeleteInstance():
            return _delete(state, command)
        case RestartInstance():
            return _restart(state, command)
        case ForgetRunner():
            return _forget(state, command)
        case ReportNode():
            return _node(state, command)
        case ReportSilence():
            return _silence(state, command)
        case ReportRunner():
            return _runner(state, command)
        case ReportDownload():
            return _download(state, command)
        case ReportTask():
            return _task(state, command)
        case _:
            assert_never(command)


def unchanged(state: State, wish: PlaceInstance) -> Instance | None:
    """The instance that already satisfies a wish."""
    if wish.new:
        return None
    for instance in state.instances.values():
        fits = (
            instance.model_card.model_id == wish.model_card.model_id
            and instance.engine == wish.engine
            and len(instance.shards) >= wish.min_nodes
            and (wish.strategy is None or wish.strategy == instance.strategy)
            and (not wish.nodes or set(instance.node_ids) <= set(wish.nodes))
            and (wish.context_tokens is None or wish.context_tokens <= instance.context_tokens)
        )
        if fits:
            return instance
    return None


def _place(state: State, wish: PlaceInstance, command_id: str) -> Decision:
    if unchanged(state, wish):
        return ()
    instance = place(state, wish, command_id)
    return instance if isinstance(instance, Refused) else (InstanceCreated(instance=instance),)


def _no_instance(instance_id: str) -> Refused:
    return Refused("not_found", f"no instance {instance_id!a}", "exo runners", ExitCode.NOT_FOUND)


def _delete(state: State, wish: DeleteInstance) -> Decision:
    if wish.instance_id in state.instances:
        return _ended(state, wish.instance_id, DeleteReason.REQUESTED)
    is_going = any(instance_id_in(runner_id) == wish.instance_id for runner_id in state.runners)
    return () if is_going else _no_instance(wish.instance_id)


def _ended(state: State, instance_id: str, reason: DeleteReason) -> tuple[Event, ...]:
    """An instance ends: its open tasks are cancelled first, then it goes. Its runners report their own shutdown."""
    cancelled = [
        TaskStatusUpdated(task_id=task_id, task_status=TaskStatus.CANCELLED)
        for task_id, task in state.tasks.items()
        if task.instance_id == instance_id and task.task_status in OPEN
    ]
    return (*cancelled, InstanceDeleted(instance_id=instance_id, reason=reason))


def _orphaned(state: State, node_id: str, why: str) -> list[Event]:
    """The end, on its behalf, of every task that a node had admitted as rank 0: nobody else will report it."""
    events: list[Event] = []
    for task_id, task in state.tasks.items():
        instance = state.instances.get(task.instance_id)
        if instance is None or instance.shards[0].node_id != node_id:
            continue
        if task.task_status in OPEN:
            events.append(TaskStatusUpdated(task_id=task_id, task_status=TaskStatus.FAILED, error_message=why))
        events.append(TaskDeleted(task_id=task_id))
    return events


def _restart(state: State, wish: RestartInstance) -> Decision:
    instance = state.instances.get(wish.instance_id)
    if instance is None:
        return _no_instance(wish.instance_id)
    events: list[Event] = []
    for runner_id in instance.runner_ids:
        runner = state.runners.get(runner_id)
        if runner is None:
            continue
        status = RunnerShutdown() if isinstance(runner.status, RunnerFailed) else RunnerShuttingDown()
        if runner.status.type != status.type:
            events.append(RunnerStatusUpdated(runner_id=runner_id, runner_status=status, attempt=runner.attempt))
    return tuple(events)


def _forget(state: State, wish: ForgetRunner) -> Decision:
    runner = state.runners.get(wish.runner_id)
    if runner is None:
        return Refused("not_found", f"no runner {wish.runner_id!a}", "exo runners", ExitCode.NOT_FOUND)
    shard = state.shard_of_runner(wish.runner_id)
    if shard is not None and shard.node_id in state.nodes and not isinstance(runner.status, RunnerFailed):
        return Refused(
            "conflict",
            f"runner {wish.runner_id} is {runner.status.type} on a live node",
            f"exo runners restart {wish.runner_id}",
            ExitCode.CONFLICT,
        )
    return (_shutdown(wish.runner_id, runner.attempt),)


def _shutdown(runner_id: str, attempt: int | None) -> RunnerStatusUpdated:
    return RunnerStatusUpdated(runner_id=runner_id, runner_status=RunnerShutdown(), attempt=attempt)


def _runners_on(state: State, node_id: str) -> list[Event]:
    """Shutdowns, on its behalf, of every runner that a node had."""
    return [
        _shutdown(runner_id, runner.attempt)
        for runner_id, runner in state.runners.items()
        if (shard := state.shard_of_runner(runner_id)) is not None and shard.node_id == node_id
    ]


def _node(state: State, report: ReportNode) -> Decision:
    known = state.nodes.get(report.node_id)
    if known is not None and known.incarnation > report.incarnation:
        return Refused("stale", f"node {report.node_id} is known with a newer incarnation", None, ExitCode.CONFLICT)
    if known is not None and known.incarnation == report.incarnation:
        if not changed_enough(known.facts, report.facts):
            return ()
        return (NodeGatheredInfo(node_id=report.node_id, facts=report.facts),)
    joined = NodeJoined(node_id=report.node_id, facts=report.facts, incarnation=report.incarnation)
    # The runners of the process before ended with it. The joining is last: what a torn write loses is decided again.
    return (
        *_orphaned(state, report.node_id, f"node {report.node_id} started anew"),
        *_runners_on(state, report.node_id),
        joined,
    )


def _silence(state: State, report: ReportSilence) -> Decision:
    if report.node_id not in state.nodes:
        return ()
    events: list[Event] = _orphaned(state, report.node_id, f"node {report.node_id} was lost")
    events += _runners_on(state, report.node_id)
    ended = {event.task_id for event in events if isinstance(event, TaskDeleted)}
    for instance in state.instances.values():
        if report.node_id in instance.node_ids:
            ending = _ended(state, instance.instance_id, DeleteReason.NODE_LOST)
            events += [each for each in ending if getattr(each, "task_id", None) not in ended]
    # The node goes last: what a torn write loses is decided again.
    return (*events, NodeTimedOut(node_id=report.node_id, reason=report.reason))


def _runner(state: State, report: ReportRunner) -> Decision:
    known = state.runners.get(report.runner_id)
    shard = state.shard_of_runner(report.runner_id)
    is_end = isinstance(report.status, RunnerShutdown)
    if known is None and is_end:
        return _stale(report, "it is not in the state")
    if known is not None and known.attempt is not None and report.attempt < known.attempt:
        return _stale(report, f"attempt {report.attempt} is older than {known.attempt}")
    if shard is None and not is_end:
        return _stale(report, "its instance is gone")
    if shard is not None and shard.node_id != report.node_id:
        return _stale(report, f"it belongs to node {shard.node_id}")
    if report.node_id not in state.nodes:
        return _stale(report, f"node {report.node_id} is not a member")
    if known is not None and known.attempt == report.attempt:
        if known.status == report.status:
            return ()
        if not may_follow(known.status.type, report.status.type):
            return _stale(report, f"{report.status.type} cannot follow {known.status.type}")
    return (RunnerStatusUpdated(runner_id=report.runner_id, runner_status=report.status, attempt=report.attempt),)


def _stale(report: ReportRunner, why: str) -> Refused:
    return Refused("stale", f"report {report.status.type} of runner {report.runner_id} is refused: {why}")


def _download(state: State, report: ReportDownload) -> Decision:
    progress = report.progress
    if progress.node_id not in state.nodes:
        return Refused("stale", f"node {progress.node_id} is not a member")
    if state.downloads.get(progress.node_id, {}).get(progress.model_id) == progress:
        return ()
    return (NodeDownloadProgress(download_progress=progress),)


def _task(state: State, report: ReportTask) -> Decision:
    """History of a chat. Late records are accepted for any instance ever seen, but only with their end."""
    task, task_id = report.task, report.task.task_id
    gone = task.instance_id not in state.instances
    if gone and task.instance_id not in state.past_instances:
        return Refused("stale", f"task {task_id} names an instance that was never seen")
    if gone and not report.ends:
        return Refused("stale", f"task {task_id} is open on an instance that is gone")
    known = state.tasks.get(task_id)
    events: list[Event] = []
    if known is None:
        if not report.begins:
            return Refused("stale", f"task {task_id} has ended before")
        began = task.model_copy(update={"task_status": TaskStatus.RUNNING, **_NOT_YET}) if report.ends else task
        events.append(TaskCreated(task_id=task_id, task=began))
    if report.ends:
        if known is None or known.task_status in OPEN:
            events.append(
                TaskStatusUpdated(
                    task_id=task_id,
                    task_status=task.task_status,
                    tokens=task.tokens,
                    seconds=task.seconds,
                    finish_reason=task.finish_reason,
                    error_message=task.error_message,
                )
            )
        events.append(TaskDeleted(task_id=task_id))
    return tuple(events)


_NOT_YET = {"tokens": None, "seconds": None, "finish_reason": None, "error_message": None}
