"""State: what is, after folding the events so far.

Maps are plain dicts in insertion order (ids are never reused), owned by the replica that folds them and changed in
place by the reducer alone; whoever wants to keep one takes a `copy()` (the values are frozen).
"""

import hashlib
import json
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TypeVar, cast, dataclass_transform

from pydantic import ConfigDict, Field, TypeAdapter

from exo_cli.engine.core.events import DownloadProgress
from exo_cli.engine.core.ids import AnId, instance_id_in
from exo_cli.engine.core.runners import RunnerStatus, Value
from exo_cli.engine.core.shards import Instance, Shard
from exo_cli.engine.core.tasks import Task
from exo_cli.engine.core.topology import Edge, NodeFacts

SCHEMA = 1
OUTCOMES_KEPT = 1000


_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def _quick(cls: type[_T]) -> type[_T]:
    """A dataclass that is frozen for the type checker alone: at run time that would triple what it costs to make."""
    return dataclass(slots=True)(cls)


@_quick
class Runner:
    """A runner in the state: its status, the attempt that reported it, since when (index and the master's clock).

    `ring_endpoint` (`host:port`) is where its rank listens for the group; it came with RunnerIdle and stays known.
    The reducer makes one for nearly every record, which is why it is no pydantic model.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    status: RunnerStatus
    attempt: int | None = None
    since_index: int = -1
    since: datetime | None = None
    ring_endpoint: str | None = None


class Node(Value):
    """A node in the state: its facts and the incarnation (start of its process) that it joined with."""

    facts: NodeFacts
    incarnation: int = 0
    since_index: int = -1


class Failures(Value):
    """What went wrong with an instance's runners since the last stable Ready: count, last error, its rank and phase."""

    count: int = Field(ge=1)
    last_index: int
    last_at: datetime | None = None
    last_error: str | None = None
    runner_id: AnId
    phase: str | None = None
    terminal: bool = False


class Outcome(Value):
    """How a command ended: the same id asked again gets the same answer. `index` is its last record (-1: none)."""

    index: int
    subject: str | None = None
    changed: str = "unchanged"


@dataclass(slots=True)
class State:
    """Everything that the events so far add up to."""

    index: int = -1
    term: int = 0
    cluster_id: str = ""
    master: str = ""
    voters: tuple[str, ...] = ()
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    edges: dict[str, Edge] = field(default_factory=dict[str, Edge])
    instances: dict[str, Instance] = field(default_factory=dict[str, Instance])
    past_instances: dict[str, int] = field(default_factory=dict[str, int])
    failures: dict[str, Failures] = field(default_factory=dict[str, Failures])
    runners: dict[str, Runner] = field(default_factory=dict[str, Runner])
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    downloads: dict[str, dict[str, DownloadProgress]] = field(default_factory=dict[str, dict[str, DownloadProgress]])
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])

    def copy(self) -> "State":
        """A state of its own: maps are copied, the frozen values in them are shared."""
        twin = State(self.index, self.term, self.cluster_id, self.master, self.voters)
        for name in _MAPS:
            setattr(twin, name, dict(cast("dict[str, object]", getattr(self, name))))
        twin.downloads = {node: dict(models) for node, models in self.downloads.items()}
        return twin

    def instance_of_runner(self, runner_id: str) -> Instance | None:
        """The instance whose shard this runner holds."""
        instance_id = instance_id_in(runner_id)
        instance = self.instances.get(instance_id)
        if instance is not None and instance.shard_of(runner_id):
            return instance
        if instance is None and instance_id in self.past_instances:
            return None
        return next((each for each in self.instances.values() if each.shard_of(runner_id)), None)

    def shard_of_runner(self, runner_id: str) -> Shard | None:
        """The shard that this runner holds; None when its instance is gone."""
        instance = self.instance_of_runner(runner_id)
        return instance.shard_of(runner_id) if instance is not None else None

    def dump(self) -> dict[str, object]:
        """Plain values, as a snapshot and `exo replay` show them."""
        return cast("dict[str, object]", ADAPTER.dump_python(self, mode="json", exclude_none=True))

    def hash(self) -> str:
        """sha256 of the state as JSON with sorted keys, without spaces and without clock times."""
        text = json.dumps(without_times(self.dump()), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


ADAPTER: TypeAdapter[State] = TypeAdapter(State)
_MAPS = tuple(
    entry.name for entry in fields(State) if entry.name not in {"index", "term", "cluster_id", "master", "voters"}
)
_TIMES = frozenset({"since", "last_at"})


def load(dumped: object) -> State:
    """The state of a snapshot. Raises pydantic's ValidationError when it is not one."""
    return ADAPTER.validate_python(dumped)


def without_times(value: object) -> object:
    """What `dump` gives, without clock times: they are no part of what the hash is of."""
    if isinstance(value, dict):
        mapping = cast("dict[str, object]", value)
        return {key: without_times(inner) for key, inner in mapping.items() if key not in _TIMES}
    if isinstance(value, list):
        return [without_times(inner) for inner in cast("list[object]", value)]
    return value
