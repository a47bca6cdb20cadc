"""The settling rules: what must hold of each runner, task, download and node in the state. See the package."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from exo_cli.engine.core.events import (
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
    TopologyEdgeCreated,
    TopologyEdgeDeleted,
)
from exo_cli.engine.core.invariants.links import Links
from exo_cli.engine.core.runners import RunnerFailed, RunnerShutdown, RunnerShuttingDown
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import GENERATIONS, OPEN


class Rule(NamedTuple):
    """A settling rule over one sort of thing.

    `events` are the types that can touch it. `at_once`: the event that made it false is what no healthy cluster does,
    so there is no deadline. `now` says what is wrong, behind the name. `ends`: in a log without times the end of the
    log is the deadline.
    """

    kind: str
    entity: str
    events: tuple[type[Event], ...]
    touched: Callable[[Links, State, Event], Iterable[str]]
    every: Callable[[State], Iterable[str]]
    holds: Callable[[State, str], bool]
    at_once: Callable[[State, Event], bool]
    now: Callable[[State, str], str]
    remedy: str
    ends: bool = True


def broken(state: State) -> set[tuple[str, str]]:
    """Kind and id of everything in the state that is not as it must be: the full scan."""
    return {(rule.kind, each) for rule in RULES for each in rule.every(state) if not rule.holds(state, each)}


# Which ids an event touches, asked before it is applied --------------------------------------------------------------


def _runners(links: Links, state: State, event: Event) -> Iterable[str]:
    if type(event) is RunnerStatusUpdated:
        # Its place is the same as before, unless it comes or goes.
        stays = event.runner_id in state.runners and type(event.runner_status) is not RunnerShutdown
        return () if stays else (event.runner_id,)
    match event:
        case InstanceCreated():
            old = state.instances.get(event.instance.instance_id)
            return (*event.instance.runner_ids, *(old.runner_ids if old else ()))
        case InstanceDeleted():
            gone = state.instances.get(event.instance_id)
            return gone.runner_ids if gone else ()
        case NodeJoined() | NodeTimedOut():
            return tuple(links.runners_on.get(event.node_id, ()))
        case NodeGatheredInfo() if event.node_id not in state.nodes:
            return tuple(links.runners_on.get(event.node_id, ()))
        case _:
            return ()


def _ending_runners(links: Links, state: State, event: Event) -> Iterable[str]:
    if type(event) is not RunnerStatusUpdated:
        return _runners(links, state, event)
    known = state.runners.get(event.runner_id)
    was_ending = known is not None and type(known.status) is RunnerShuttingDown
    return (event.runner_id,) if was_ending or type(event.runner_status) is RunnerShuttingDown else ()


def _tasks(links: Links, state: State, event: Event) -> Iterable[str]:
    if type(event) is RunnerStatusUpdated:
        known = state.runners.get(event.runner_id)
        had_failed = known is not None and type(known.status) is RunnerFailed
        if not had_failed and type(event.runner_status) is not RunnerFailed:
            return ()
        instance = state.instance_of_runner(event.runner_id)
        return tuple(links.tasks_of.get(instance.instance_id, ())) if instance is not None else ()
    match event:
        case TaskCreated() | TaskStatusUpdated() | TaskDeleted():
            return (event.task_id,)
        case InstanceCreated():
            return tuple(links.tasks_of.get(event.instance.instance_id, ()))
        case InstanceDeleted():
            return tuple(links.tasks_of.get(event.instance_id, ()))
        case _:
            return ()


def _downloads(links: Links, state: State, event: Event) -> Iterable[str]:
    match event:
        case NodeDownloadProgress(download_progress=progress):
            return (f"{progress.node_id}/{progress.model_id}",)
        case NodeJoined() | NodeTimedOut():
            return tuple(f"{event.node_id}/{each}" for each in state.downloads.get(event.node_id, ()))
        case NodeGatheredInfo() if event.node_id not in state.nodes:
            return tuple(f"{event.node_id}/{each}" for each in state.downloads.get(event.node_id, ()))
        case _:
            return ()


def _nodes(links: Links, state: State, event: Event) -> Iterable[str]:
    match event:
        case TopologyEdgeCreated() | TopologyEdgeDeleted():
            return (event.edge.source, event.edge.sink)
        case NodeTimedOut():
            # Its connections go with it, and so the last trace of another ghost may.
            edges = [edge for edge in state.edges.values() if event.node_id in (edge.source, edge.sink)]
            return (event.node_id, *(each for edge in edges for each in (edge.source, edge.sink)))
        case NodeJoined() | NodeGatheredInfo():
            return (event.node_id,)
        case _:
            return ()


# Whether one of them is as it must be --------------------------------------------------------------------------------


def _has_its_place(state: State, runner_id: str) -> bool:
    if runner_id not in state.runners:
        return True
    shard = state.shard_of_runner(runner_id)
    return shard is not None and shard.node_id in state.nodes


def _is_not_ending(state: State, runner_id: str) -> bool:
    runner = state.runners.get(runner_id)
    return runner is None or type(runner.status) is not RunnerShuttingDown or not _has_its_place(state, runner_id)


def _is_worked_on(state: State, task_id: str) -> bool:
    task = state.tasks.get(task_id)
    return (
        task is None
        or task.task_status not in OPEN
        or type(task) not in GENERATIONS
        or (task.instance_id in state.instances and _failed_in(state, task.instance_id) is None)
    )


def _failed_in(state: State, instance_id: str) -> str | None:
    """A failed runner of an instance that is there."""
    for runner_id in state.instances[instance_id].runner_ids:
        runner = state.runners.get(runner_id)
        if runner is not None and type(runner.status) is RunnerFailed:
            return runner_id
    return None


def _has_its_node(state: State, download_id: str) -> bool:
    node_id, _, model_id = download_id.partition("/")
    return node_id in state.nodes or model_id not in state.downloads.get(node_id, {})


def _is_a_member(state: State, node_id: str) -> bool:
    return node_id in state.nodes or all(node_id not in {edge.source, edge.sink} for edge in state.edges.values())


# What no healthy cluster does, judged after the event ----------------------------------------------------------------


def _is_revived(state: State, event: Event) -> bool:
    return isinstance(event, RunnerStatusUpdated) and state.instance_of_runner(event.runner_id) is None


def _is_unheard_of(state: State, event: Event) -> bool:
    if not isinstance(event, TaskCreated):
        return False
    return event.task.instance_id not in state.instances and event.task.instance_id not in state.past_instances


def _never(state: State, event: Event) -> bool:
    return False


def _where_it_is_stale(state: State, runner_id: str) -> str:
    runner, gone = state.runners[runner_id], "instance" if state.instance_of_runner(runner_id) is None else "node"
    return f"is {runner.status.type} since record {runner.since_index}, but its {gone} is gone"


def _whom_it_waits_for(state: State, task_id: str) -> str:
    task = state.tasks[task_id]
    if task.instance_id not in state.instances:
        return f"is {task.task_status}, but its instance {task.instance_id} is gone"
    return f"is {task.task_status}, but runner {_failed_in(state, task.instance_id)} has failed"


_NODE_EVENTS: tuple[type[Event], ...] = (NodeJoined, NodeGatheredInfo, NodeTimedOut)

RULES = (
    Rule(
        kind="stale_runner",
        entity="runner",
        events=(RunnerStatusUpdated, InstanceCreated, InstanceDeleted, *_NODE_EVENTS),
        touched=_runners,
        every=lambda state: state.runners,
        holds=_has_its_place,
        at_once=_is_revived,
        now=_where_it_is_stale,
        remedy="exo runners forget {id}",
    ),
    Rule(
        kind="overdue_runner",
        entity="runner",
        events=(RunnerStatusUpdated, InstanceCreated, InstanceDeleted, *_NODE_EVENTS),
        touched=_ending_runners,
        every=lambda state: state.runners,
        holds=_is_not_ending,
        at_once=_never,
        now=lambda state, each: "was asked to end and has not",
        remedy="exo runners restart {id}",
        ends=False,
    ),
    Rule(
        kind="orphan_task",
        entity="task",
        events=(TaskCreated, TaskStatusUpdated, TaskDeleted, RunnerStatusUpdated, InstanceCreated, InstanceDeleted),
        touched=_tasks,
        every=lambda state: state.tasks,
        holds=_is_worked_on,
        at_once=_is_unheard_of,
        now=_whom_it_waits_for,
        remedy="exo node list",
    ),
    Rule(
        kind="ghost_download",
        entity="download",
        events=(NodeDownloadProgress, *_NODE_EVENTS),
        touched=_downloads,
        every=lambda state: [f"{node}/{model}" for node, models in state.downloads.items() for model in models],
        holds=_has_its_node,
        at_once=_never,
        now=lambda state, each: f"is recorded, but node {each.partition('/')[0]} is gone",
        remedy="exo node list",
    ),
    Rule(
        kind="ghost_node",
        entity="node",
        events=(TopologyEdgeCreated, TopologyEdgeDeleted, *_NODE_EVENTS),
        touched=_nodes,
        every=lambda state: [each for edge in state.edges.values() for each in (edge.source, edge.sink)],
        holds=_is_a_member,
        at_once=_never,
        now=lambda state, each: "has connections, but is not a member",
        remedy="exo node list",
    ),
)
