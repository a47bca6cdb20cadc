"""Stories: the events that name a thing, so that a finding can show how it came about."""

from array import array
from collections import Counter

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
from exo_cli.engine.core.invariants.findings import Key
from exo_cli.engine.core.runners import RunnerShutdown
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import runner_of

STORY_KEPT = 128
ENDED_KEPT = 1000


class Stories:
    """Which events name a thing, from its creation on: at most STORY_KEPT of them, the middle goes first.

    Of what has left the state the last ENDED_KEPT are remembered, so that what comes back has its past with it.
    """

    def __init__(self) -> None:
        """Nothing has a story yet."""
        self._living: dict[Key, array[int]] = {}
        self._ended: dict[Key, array[int]] = {}
        self._cuts: Counter[Key] = Counter()

    def add(self, key: Key, index: int) -> None:
        """An event names it."""
        story = self._living.get(key)
        if story is None:
            story = self._living[key] = self._ended.pop(key, array("Q"))
        story.append(index)
        if len(story) > STORY_KEPT:
            del story[STORY_KEPT // 4 : STORY_KEPT // 2]
            self._cuts[key] += 1

    def longest(self) -> tuple[Key, int] | None:
        """What most events name, of what more than STORY_KEPT do, and how many."""
        if not self._cuts:
            return None
        [(key, cuts)] = self._cuts.most_common(1)
        return key, cuts * (STORY_KEPT // 2 - STORY_KEPT // 4) + len(self.of(key))

    def of(self, key: Key) -> list[int]:
        """The events that name it, in order."""
        return list(self._living.get(key) or self._ended.get(key) or ())

    def end(self, key: Key) -> None:
        """It left the state."""
        if (story := self._living.pop(key, None)) is not None:
            self._ended[key] = story
            if len(self._ended) > ENDED_KEPT:
                del self._ended[next(iter(self._ended))]


def named(event: Event) -> tuple[Key, ...]:
    """The things that an event names, each as its sort and its id."""
    # The most frequent ones first.
    if type(event) is RunnerStatusUpdated:
        return (("runner", event.runner_id),)
    if type(event) is TaskStatusUpdated or type(event) is TaskDeleted:
        return (("task", event.task_id),)
    match event:
        case TaskCreated():
            runner_id = runner_of(event.task)
            return (("task", event.task_id), *([("runner", runner_id)] if runner_id else []))
        case NodeDownloadProgress(download_progress=progress):
            return (("download", f"{progress.node_id}/{progress.model_id}"),)
        case InstanceCreated():
            runners = (("runner", each) for each in event.instance.runner_ids)
            return (("instance", event.instance.instance_id), *runners)
        case InstanceDeleted():
            return (("instance", event.instance_id),)
        case NodeJoined() | NodeGatheredInfo() | NodeTimedOut():
            return (("node", event.node_id),)
        case TopologyEdgeCreated() | TopologyEdgeDeleted():
            return (("node", event.edge.source), ("node", event.edge.sink))
        case _:
            return ()


# The types of event with which something can leave the state.
LEAVING = frozenset({RunnerStatusUpdated, TaskDeleted, InstanceDeleted, NodeTimedOut})


def left(state: State, event: Event) -> tuple[Key, ...]:
    """The things that leave the state with this event; asked before it is applied."""
    match event:
        case RunnerStatusUpdated():
            # Where its instance lives on it comes again, and has the same story.
            is_end = type(event.runner_status) is RunnerShutdown and state.instance_of_runner(event.runner_id) is None
            return (("runner", event.runner_id),) if is_end else ()
        case TaskDeleted():
            return (("task", event.task_id),)
        case InstanceDeleted():
            instance = state.instances.get(event.instance_id)
            unborn = (each for each in (instance.runner_ids if instance else ()) if each not in state.runners)
            return (("instance", event.instance_id), *(("runner", each) for each in unborn))
        case NodeTimedOut():
            downloads = (f"{event.node_id}/{each}" for each in state.downloads.get(event.node_id, ()))
            return (("node", event.node_id), *(("download", each) for each in downloads))
        case _:
            return ()
