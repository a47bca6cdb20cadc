"""The reducer: what each event does to the state. It is as plain as the log and judges nothing.

It also folds logs whose events should never have happened, so that stale state shows honestly; refusing is the
decider's job. `apply` changes the state it is given; `applied` is the pure form for laws and what-if folds.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from exo_cli.engine.core.events import (
    Event,
    InstanceCreated,
    InstanceDeleted,
    NodeDownloadProgress,
    NodeGatheredInfo,
    NodeJoined,
    NodeTimedOut,
    Record,
    RunnerStatusUpdated,
    TaskCreated,
    TaskDeleted,
    TaskStatusUpdated,
    TermStarted,
    TopologyEdgeCreated,
    TopologyEdgeDeleted,
    VotersChanged,
)
from exo_cli.engine.core.runners import (
    RunnerConnected,
    RunnerConnecting,
    RunnerFailed,
    RunnerIdle,
    RunnerLoaded,
    RunnerReady,
    RunnerRunning,
    RunnerShutdown,
    RunnerShuttingDown,
    RunnerStatus,
    RunnerWarmingUp,
)
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import OUTCOMES_KEPT, Failures, Node, Outcome, Runner, State
from exo_cli.engine.core.tasks import GENERATIONS

STABLE_SECONDS = 60.0
FAILURES_MAX = 5
_AT_THE_END = ("tokens", "seconds", "finish_reason", "error_message")
# Statuses that say no more than their name: the state shares one of each, and the decoded ones are let go of at once.
_PLAIN: dict[type[RunnerStatus], RunnerStatus] = {
    kind: kind()
    for kind in (
        RunnerConnecting,
        RunnerConnected,
        RunnerLoaded,
        RunnerWarmingUp,
        RunnerReady,
        RunnerRunning,
        RunnerShuttingDown,
    )
}


def apply(state: State, record: Record) -> None:
    """Fold one record into the state, in place."""
    state.index, state.term = record.index, record.term
    event = record.event
    _FOLDS[type(event)](state, event, record.index, record.at)
    if record.by.command_id is not None:
        _remember_outcome(state, record.by.command_id, record)


def applied(state: State, record: Record) -> State:
    """The state after one record; the given one stays as it was."""
    twin = state.copy()
    apply(twin, record)
    return twin


def fold_event(state: State, event: Event, index: int, at: datetime | None) -> None:
    """What the event itself does (foreign logs have no terms, no authors and no times)."""
    _FOLDS[type(event)](state, event, index, at)


def _runner_status_updated(state: State, event: RunnerStatusUpdated, index: int, at: datetime | None) -> None:
    """By far the most frequent event of a log, so what is seldom needed (failures) is looked up only when it is."""
    runner_id, status = event.runner_id, _PLAIN.get(type(event.runner_status), event.runner_status)
    if type(status) is RunnerShutdown:
        # The one path by which a runner leaves the state, whoever reports it.
        state.runners.pop(runner_id, None)
        if state.failures:
            _give_another_go(state, runner_id)
        return
    known = state.runners.get(runner_id)
    if type(status) is RunnerFailed:
        if (instance := state.instance_of_runner(runner_id)) is not None:
            _raise_failures(state, instance, runner_id, status, index, at)
    elif known is not None and state.failures and (instance := state.instance_of_runner(runner_id)) is not None:
        _clear_failures(state, instance.instance_id, known, at)
    endpoint = known.ring_endpoint if known is not None and known.attempt == event.attempt else None
    if type(status) is RunnerIdle:
        endpoint = status.ring_endpoint
    if known is not None and type(known.status) is type(status) and known.attempt == event.attempt:
        state.runners[runner_id] = Runner(status, event.attempt, known.since_index, known.since, endpoint)
    else:
        state.runners[runner_id] = Runner(status, event.attempt, index, at, endpoint)


def _give_another_go(state: State, runner_id: str) -> None:
    """Shutting the terminally failed runner down (not a sibling of it) is how its instance is started again."""
    instance = state.instance_of_runner(runner_id)
    failures = state.failures.get(instance.instance_id) if instance is not None else None
    if instance is not None and failures is not None and failures.terminal and failures.runner_id == runner_id:
        del state.failures[instance.instance_id]


def _raise_failures(
    state: State, instance: Instance, runner_id: str, status: RunnerFailed, index: int, at: datetime | None
) -> None:
    instance_id = instance.instance_id
    siblings = [state.runners.get(each) for each in instance.runner_ids if each != runner_id]
    if any(each is not None and isinstance(each.status, RunnerFailed) for each in siblings):
        return  # one fault, seen by two ranks, counts once
    if (known := state.runners.get(runner_id)) is not None:
        _clear_failures(state, instance_id, known, at)
    earlier = state.failures.get(instance_id)
    count = (earlier.count if earlier else 0) + 1
    state.failures[instance_id] = Failures(
        count=count,
        last_index=index,
        last_at=at,
        last_error=status.error_message,
        runner_id=runner_id,
        phase=status.phase,
        terminal=count >= FAILURES_MAX,
    )


def _clear_failures(state: State, instance_id: str, known: Runner, at: datetime | None) -> None:
    """A Ready (or work) that held for a minute clears what went wrong before it."""
    held = isinstance(known.status, RunnerReady) and known.since is not None and at is not None
    if held and known.since and at and (at - known.since).total_seconds() >= STABLE_SECONDS:
        state.failures.pop(instance_id, None)


def _instance_created(state: State, event: InstanceCreated, index: int, at: datetime | None) -> None:
    state.instances[event.instance.instance_id] = event.instance


def _instance_deleted(state: State, event: InstanceDeleted, index: int, at: datetime | None) -> None:
    state.instances.pop(event.instance_id, None)
    state.failures.pop(event.instance_id, None)
    state.past_instances[event.instance_id] = index
    if len(state.past_instances) > OUTCOMES_KEPT:
        del state.past_instances[next(iter(state.past_instances))]


def _task_created(state: State, event: TaskCreated, index: int, at: datetime | None) -> None:
    state.tasks[event.task_id] = event.task


def _task_status_updated(state: State, event: TaskStatusUpdated, index: int, at: datetime | None) -> None:
    task = state.tasks.get(event.task_id)
    if task is None:
        return
    told: dict[str, object] = {"task_status": event.task_status}
    if type(task) in GENERATIONS:
        told |= {name: value for name in _AT_THE_END if (value := getattr(event, name)) is not None}
    state.tasks[event.task_id] = task.model_copy(update=told)


def _task_deleted(state: State, event: TaskDeleted, index: int, at: datetime | None) -> None:
    state.tasks.pop(event.task_id, None)


def _node_download_progress(state: State, event: NodeDownloadProgress, index: int, at: datetime | None) -> None:
    progress = event.download_progress
    state.downloads.setdefault(progress.node_id, {})[progress.model_id] = progress


def _node_joined(state: State, event: NodeJoined, index: int, at: datetime | None) -> None:
    state.nodes[event.node_id] = Node(facts=event.facts, incarnation=event.incarnation, since_index=index)


def _node_gathered_info(state: State, event: NodeGatheredInfo, index: int, at: datetime | None) -> None:
    known = state.nodes.get(event.node_id) or Node(facts=event.facts, since_index=index)
    state.nodes[event.node_id] = known.model_copy(update={"facts": event.facts})


def _node_timed_out(state: State, event: NodeTimedOut, index: int, at: datetime | None) -> None:
    """Everything keyed by the node goes at once; its runners and instances end by events of their own."""
    state.nodes.pop(event.node_id, None)
    state.downloads.pop(event.node_id, None)
    gone = [key for key, edge in state.edges.items() if event.node_id in (edge.source, edge.sink)]
    for key in gone:
        del state.edges[key]


def _edge_created(state: State, event: TopologyEdgeCreated, index: int, at: datetime | None) -> None:
    state.edges[_edge_key(event)] = event.edge


def _edge_deleted(state: State, event: TopologyEdgeDeleted, index: int, at: datetime | None) -> None:
    state.edges.pop(_edge_key(event), None)


def _edge_key(event: TopologyEdgeCreated | TopologyEdgeDeleted) -> str:
    return f"{event.edge.source} {event.edge.sink} {event.edge.address}"


def _term_started(state: State, event: TermStarted, index: int, at: datetime | None) -> None:
    state.master, state.cluster_id = event.master, event.cluster_id


def _voters_changed(state: State, event: VotersChanged, index: int, at: datetime | None) -> None:
    state.voters = event.voters


# A table, because a million of these are folded at a time. The tests see that every event is in it.
_FOLDS: Final[Mapping[type, Callable[[State, Any, int, datetime | None], None]]] = {
    InstanceCreated: _instance_created,
    InstanceDeleted: _instance_deleted,
    RunnerStatusUpdated: _runner_status_updated,
    TaskCreated: _task_created,
    TaskStatusUpdated: _task_status_updated,
    TaskDeleted: _task_deleted,
    NodeDownloadProgress: _node_download_progress,
    NodeJoined: _node_joined,
    NodeGatheredInfo: _node_gathered_info,
    NodeTimedOut: _node_timed_out,
    TopologyEdgeCreated: _edge_created,
    TopologyEdgeDeleted: _edge_deleted,
    TermStarted: _term_started,
    VotersChanged: _voters_changed,
}


def _remember_outcome(state: State, command_id: str, record: Record) -> None:
    event = record.event
    subject = event.instance.instance_id if isinstance(event, InstanceCreated) else None
    subject = event.instance_id if isinstance(event, InstanceDeleted) else subject
    changed = {InstanceCreated: "created", InstanceDeleted: "deleted"}.get(type(event), "changed")
    earlier = state.outcomes.pop(command_id, None)
    if earlier is not None and earlier.subject is not None:
        subject, changed = earlier.subject, earlier.changed
    state.outcomes[command_id] = Outcome(index=record.index, subject=subject, changed=changed)
    if len(state.outcomes) > OUTCOMES_KEPT:
        del state.outcomes[next(iter(state.outcomes))]
