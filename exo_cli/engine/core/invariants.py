"""Invariants: what must hold of a log and of the state that it adds up to, and what is said when it does not.

A *hard* rule judges one event against the state before it: our decider never lets such an event into a log. A
*settling* rule judges something in the state, and is a pair: `touched` names the ids that an event may make true or
false, `holds` tells of one id whether it is as it must be. So a check costs the same however large the state is;
`broken` is the full scan, the law for the pairs.

What a settling rule is about takes time in a healthy cluster (an instance is deleted first, its runners shut down after
it), so it is a finding only after its deadline by the log's own clock. Logs without times have no deadlines: there a
runner has until its next status, anything else until the end of the log. What no healthy cluster can do (a status of a
runner that nothing in the state explains) is a finding at once.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
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
    TermStarted,
    TopologyEdgeCreated,
    TopologyEdgeDeleted,
)
from exo_cli.engine.core.runners import RunnerFailed, RunnerIdle, RunnerShutdown, RunnerShuttingDown, may_follow
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import OPEN, ImageEdits, ImageGeneration, TextGeneration

# The master speaks for a runner that has been silent for half of this; more is late even for the master.
SETTLED = timedelta(seconds=60)
FINDINGS_KEPT = 1000
STORY_KEPT = 128
ENDED_KEPT = 1000
HARD = frozenset(
    {"illegal_transition", "attempt_regression", "overwritten_instance", "index_gap", "term_regression", "unknown_event"}
)


@dataclass(slots=True)
class Finding:
    """Something that should not be: since when, until when (None: it lasts), which events name it, and what to do."""

    kind: str
    id: str
    since_index: int
    why: str
    remedy: str
    until_index: int | None = None
    events: list[int] = field(default_factory=list[int])

    @property
    def is_grave(self) -> bool:
        """Whether `--check` fails for it: it lasts, or it is one that time does not heal."""
        return self.until_index is None or self.kind in HARD

    def item(self) -> dict[str, object]:
        """Plain values, as `exo replay` shows them."""
        return {
            "kind": self.kind,
            "id": self.id,
            "since_index": self.since_index,
            "until_index": self.until_index,
            "events": self.events,
            "why": self.why,
            "remedy": self.remedy,
        }


class Findings:
    """What was found, in constant memory: of what is over, the first thousand are kept and the rest counted."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.over: list[Finding] = []
        self.lasting: dict[tuple[str, str], Finding] = {}
        self.left_out = 0
        self.is_grave = False

    def add(self, finding: Finding) -> None:
        """Keep a finding; one that lasts is to be ended by `end`."""
        if finding.until_index is None:
            self.lasting[finding.kind, finding.id] = finding
        else:
            self.is_grave |= finding.is_grave
            if len(self.over) < FINDINGS_KEPT:
                self.over.append(finding)
            else:
                self.left_out += 1

    def end(self, kind: str, entity_id: str, index: int, events: list[int]) -> None:
        """It is as it must be again."""
        finding = self.lasting.pop((kind, entity_id), None)
        if finding is not None:
            finding.until_index, finding.events = index, events
            self.add(finding)


class Stories:
    """Which events name a thing: from its creation on, at most STORY_KEPT of them (the middle goes first).

    Of what has ended the last ENDED_KEPT are remembered, so that what comes back keeps its past.
    """

    def __init__(self) -> None:
        """Nothing has a story yet."""
        self._living: dict[tuple[str, str], array[int]] = {}
        self._ended: dict[tuple[str, str], array[int]] = {}

    def add(self, key: tuple[str, str], index: int) -> None:
        """An event names it."""
        story = self._living.get(key)
        if story is None:
            story = self._living[key] = self._ended.pop(key, None) or array("Q")
        story.append(index)
        if len(story) > STORY_KEPT:
            del story[STORY_KEPT // 4 : STORY_KEPT // 2]

    def of(self, key: tuple[str, str]) -> list[int]:
        """The events that name it."""
        story = self._living.get(key) or self._ended.get(key)
        return list(story) if story else []

    def end(self, key: tuple[str, str]) -> None:
        """It left the state."""
        story = self._living.pop(key, None)
        if story is not None:
            self._ended[key] = story
            if len(self._ended) > ENDED_KEPT:
                del self._ended[next(iter(self._ended))]


class Links:
    """Which runners belong on a node, and which tasks name an instance: a state has both only the other way round."""

    def __init__(self, state: State) -> None:
        """Read them off a state; `follow` keeps them true from then on."""
        self.runners_on: dict[str, dict[str, None]] = {}
        self.tasks_of: dict[str, dict[str, None]] = {}
        for instance in state.instances.values():
            self._place(instance)
        for task_id, task in state.tasks.items():
            self.tasks_of.setdefault(task.instance_id, {})[task_id] = None

    def follow(self, state: State, event: Event) -> None:
        """Take an event that the state is about to take."""
        match event:
            case InstanceCreated():
                self._remove(state, event.instance.instance_id)
                self._place(event.instance)
            case InstanceDeleted():
                self._remove(state, event.instance_id)
            case TaskCreated() | TaskDeleted():
                if (known := state.tasks.get(event.task_id)) is not None:
                    tasks = self.tasks_of.get(known.instance_id, {})
                    tasks.pop(event.task_id, None)
                    if not tasks:
                        self.tasks_of.pop(known.instance_id, None)
                if isinstance(event, TaskCreated):
                    self.tasks_of.setdefault(event.task.instance_id, {})[event.task_id] = None
            case _:
                pass

    def _place(self, instance: Instance) -> None:
        for shard in instance.shards:
            self.runners_on.setdefault(shard.node_id, {})[shard.runner_id] = None

    def _remove(self, state: State, instance_id: str) -> None:
        instance = state.instances.get(instance_id)
        for shard in instance.shards if instance else ():
            runners = self.runners_on.get(shard.node_id, {})
            runners.pop(shard.runner_id, None)
            if not runners:
                self.runners_on.pop(shard.node_id, None)
