"""History: the story of one thing, told from a log: each event that has to do with it, and what that changed.

`about` says of an event which things it has to do with, by the state that it meets: the deletion of an instance has to
do with its runners, the loss of a node with the runners on it. `told` says in a sentence what it does to the state.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from exo_cli.engine.core.events import (
    By,
    DeleteReason,
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
from exo_cli.engine.core.items import moment
from exo_cli.engine.core.runners import RunnerFailed, RunnerLoading, RunnerStatus
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import runner_of

MOMENTS_KEPT = 1000

Thing = tuple[str, str]
NOBODY = By(node="unknown")
NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Placed:
    """An event and its place: time, term and author are None where the log has none (the public system's)."""

    index: int
    event: Event
    at: datetime | None = None
    term: int | None = None
    by: By | None = None
    cause: int | None = None

    def record(self) -> Record:
        """The record that it is; with NO_TIME and by NOBODY where that is not known."""
        at, by = self.at or NO_TIME, self.by or NOBODY
        return Record(index=self.index, term=self.term or 0, at=at, by=by, cause=self.cause, event=self.event)


def about(state: State, event: Event) -> Iterator[Thing]:
    """The things that an event has to do with, each as its sort and its id, by the state that it meets.

    The first is what it is about.
    """
    match event:
        case RunnerStatusUpdated():
            yield "runner", event.runner_id
            yield from _around(state.instance_of_runner(event.runner_id), event.runner_id)
        case InstanceCreated():
            yield from _of_instance(event.instance)
        case InstanceDeleted():
            yield "instance", event.instance_id
            if (instance := state.instances.get(event.instance_id)) is not None:
                yield from _of_instance(instance)
            yield from _tasks_of(state, event.instance_id)
        case TaskCreated():
            yield "task", event.task_id
            yield "instance", event.task.instance_id
            if runner_id := runner_of(event.task):
                yield "runner", runner_id
        case TaskStatusUpdated() | TaskDeleted():
            yield "task", event.task_id
            if (task := state.tasks.get(event.task_id)) is not None:
                yield "instance", task.instance_id
        case NodeDownloadProgress(download_progress=progress):
            yield "download", f"{progress.node_id}/{progress.model_id}"
            yield "node", progress.node_id
            yield "model", progress.model_id
        case NodeJoined() | NodeGatheredInfo():
            yield "node", event.node_id
        case NodeTimedOut():
            yield "node", event.node_id
            yield from _on_node(state, event.node_id)
        case TopologyEdgeCreated() | TopologyEdgeDeleted():
            yield "node", event.edge.source
            yield "node", event.edge.sink
        case TermStarted():
            yield "node", event.master
        case VotersChanged():
            yield from (("node", each) for each in event.voters)


def _of_instance(instance: Instance) -> Iterator[Thing]:
    yield "instance", instance.instance_id
    yield "model", instance.model_card.model_id
    yield from (("runner", each) for each in instance.runner_ids)
    yield from (("node", each) for each in instance.node_ids)


def _around(instance: Instance | None, runner_id: str) -> Iterator[Thing]:
    if instance is not None:
        yield "instance", instance.instance_id
        if (shard := instance.shard_of(runner_id)) is not None:
            yield "node", shard.node_id


def _tasks_of(state: State, instance_id: str) -> Iterator[Thing]:
    yield from (("task", task_id) for task_id, task in state.tasks.items() if task.instance_id == instance_id)


def _on_node(state: State, node_id: str) -> Iterator[Thing]:
    for instance in state.instances.values():
        if (shard := instance.shard_on(node_id)) is not None:
            yield "runner", shard.runner_id
            yield "instance", instance.instance_id
    yield from (("download", f"{node_id}/{model_id}") for model_id in state.downloads.get(node_id, ()))


def told(state: State, event: Event) -> str:
    """What an event does to the state that it meets, in a sentence."""
    match event:
        case RunnerStatusUpdated():
            return _status_told(state, event)
        case InstanceCreated(instance=instance):
            places = ", ".join(
                f"{each.runner_id} on {each.node_id} (layers {each.start_layer}-{each.end_layer})"
                for each in instance.shards
            )
            return f"instance {instance.instance_id} of {instance.model_card.model_id} is placed: {places}"
        case InstanceDeleted():
            gone = "" if event.instance_id in state.instances else " (which was not there)"
            why = "" if event.reason is DeleteReason.UNKNOWN else f": {event.reason}"
            return f"instance {event.instance_id} is deleted{why}{gone}"
        case TaskCreated(task=task):
            return f"{task.type} {event.task_id} for instance {task.instance_id}: {task.task_status}"
        case TaskStatusUpdated():
            return _task_told(state, event)
        case TaskDeleted():
            return f"task {event.task_id} leaves the state" + (
                "" if event.task_id in state.tasks else ", where it is not"
            )
        case NodeDownloadProgress():
            return _download_told(event)
        case NodeJoined():
            return f"node {event.facts.name} joins (incarnation {event.incarnation})"
        case NodeGatheredInfo():
            new = "" if event.node_id in state.nodes else ", which was not in the state"
            return f"facts of node {event.facts.name}{new}"
        case NodeTimedOut():
            runners = [runner_id for sort, runner_id in _on_node(state, event.node_id) if sort == "runner"]
            left = f"; on it were {', '.join(runners)}" if runners else ""
            return f"node {event.node_id} is lost: {event.reason}{left}"
        case TopologyEdgeCreated(edge=edge):
            return f"{edge.source} reaches {edge.sink} at {edge.address}"
        case TopologyEdgeDeleted(edge=edge):
            return f"{edge.source} no longer reaches {edge.sink} at {edge.address}"
        case TermStarted():
            return f"{event.master} becomes master"
        case VotersChanged():
            return f"voters: {', '.join(event.voters)}"


def _status_told(state: State, event: RunnerStatusUpdated) -> str:
    known = state.runners.get(event.runner_id)
    before = known.status.type if known is not None else "nothing"
    attempt = f" (attempt {event.attempt})" if event.attempt is not None else ""
    orphan = "" if state.instance_of_runner(event.runner_id) is not None else "; its instance is not there"
    return f"{event.runner_id}: {before} -> {_said(event.runner_status)}{attempt}{orphan}"


def _said(status: RunnerStatus) -> str:
    match status:
        case RunnerFailed(error_message=error, phase=phase):
            return status.type + (f" in {phase}" if phase else "") + (f": {error}" if error else "")
        case RunnerLoading():
            return f"{status.type} {status.layers_loaded} of {status.total_layers} layers"
        case _:
            return status.type


def _task_told(state: State, event: TaskStatusUpdated) -> str:
    task = state.tasks.get(event.task_id)
    before = task.task_status if task is not None else "nothing"
    why = f": {event.error_message}" if event.error_message else ""
    counts = f", {event.tokens} tokens" if event.tokens is not None else ""
    return f"task {event.task_id}: {before} -> {event.task_status}{counts}{why}"


def _download_told(event: NodeDownloadProgress) -> str:
    progress = event.download_progress
    part = f"{progress.downloaded_bytes} of {progress.total_bytes} bytes"
    why = f": {progress.error_message}" if progress.error_message else ""
    return f"{progress.model_id} on {progress.node_id}: {progress.kind}, {part}{why}"


@dataclass(slots=True)
class History:
    """The moments of everything whose id is `wanted` or begins with it, at most MOMENTS_KEPT; the middle goes first."""

    wanted: str
    things: dict[Thing, None] = field(default_factory=dict[Thing, None])
    left_out: int = 0
    _moments: list[tuple[frozenset[str], dict[str, object]]] = field(
        default_factory=list[tuple[frozenset[str], dict[str, object]]]
    )

    def see(self, state: State, placed: Placed) -> None:
        """Take an event, with the state that it meets."""
        found = [thing for thing in about(state, placed.event) if thing[1].startswith(self.wanted)]
        if found:
            self.take(found, row(state, placed))

    def take(self, found: Sequence[Thing], moment: dict[str, object]) -> None:
        """Take what an event was, and the things that are called so which it has to do with."""
        self.things.update(dict.fromkeys(found))
        self._moments.append((frozenset(name for _, name in found), moment))
        if len(self._moments) > MOMENTS_KEPT:
            self.left_out += MOMENTS_KEPT // 4
            del self._moments[MOMENTS_KEPT // 4 : MOMENTS_KEPT // 2]

    def fill(self, rows: Callable[[Iterable[int]], Iterable[dict[str, object]]]) -> None:
        """Put the whole moments where only their places were taken."""
        places = [cast("int", moment["index"]) for _, moment in self._moments]
        names = [found for found, _ in self._moments]
        self._moments = list(zip(names, rows(places), strict=True))

    @property
    def exact(self) -> list[Thing]:
        """What is called just that; else what begins so."""
        return [thing for thing in self.things if thing[1] == self.wanted] or list(self.things)

    def of(self, name: str) -> list[dict[str, object]]:
        """The moments of what is called this."""
        return [told for names, told in self._moments if name in names]


def concluded(state: State, thing: Thing, *, ended_before: bool = False) -> str:
    """How it stands with a thing where the log ends; `ended_before` of a runner whose shutdown is in the log."""
    sort, name = thing
    match sort:
        case "runner":
            return _runner_concluded(state, name, "came after that" if ended_before else "ever came")
        case "instance" if name in state.instances:
            return "it is placed"
        case "task" if name in state.tasks:
            return f"it is {state.tasks[name].task_status}"
        case "node" if name in state.nodes:
            return "it is a member" + (", and master" if name == state.master else "")
        case "download" if progress := state.downloads.get(name.partition("/")[0], {}).get(name.partition("/")[2]):
            return f"it is {progress.kind}"
        case "model":
            placed = [each for each in state.instances.values() if each.model_card.model_id == name]
            return f"placed {len(placed)} times" if placed else "it is not placed"
        case _:
            return "it is not in the state"


def _runner_concluded(state: State, runner_id: str, came: str) -> str:
    runner, instance = state.runners.get(runner_id), state.instance_of_runner(runner_id)
    if runner is None:
        return "it is not in the state" + (", and its instance is" if instance is not None else "")
    since = f"since record {runner.since_index}"
    if instance is None:
        return f"it is {runner.status.type} {since}, its instance is gone, and no RunnerShutdown {came}"
    shard = instance.shard_of(runner_id)
    if shard is not None and shard.node_id not in state.nodes:
        return f"it is {runner.status.type} {since}, its node {shard.node_id} is gone, and no RunnerShutdown {came}"
    return f"it is {runner.status.type} {since}"


def row(state: State, placed: Placed) -> dict[str, object]:
    """An event as people and scripts see it."""
    by = placed.by
    return {
        "index": placed.index,
        "at": moment(placed.at),
        "term": placed.term,
        "by": by.node if by else None,
        "client": by.client if by else None,
        "cause": placed.cause,
        "type": placed.event.type,
        "what": told(state, placed.event),
    }
