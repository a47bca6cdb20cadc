"""Lanes: what was in which state when: of each node, instance and runner the spans of its statuses, in the log's order.

It watches a fold, and keeps at most SPANS_KEPT ended spans beside those that last; the oldest go first, and are told as
a count. Findings and refused reports are joined when all was seen.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from exo_cli.engine.core.events import (
    InstanceCreated,
    InstanceDeleted,
    NodeGatheredInfo,
    NodeJoined,
    NodeTimedOut,
    RunnerStatusUpdated,
)
from exo_cli.engine.core.history import Placed, row
from exo_cli.engine.core.invariants.findings import over_at
from exo_cli.engine.core.items import moment
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import State

SPANS_KEPT = 4000
_TELLING = frozenset(
    {RunnerStatusUpdated, InstanceCreated, InstanceDeleted, NodeJoined, NodeGatheredInfo, NodeTimedOut}
)
PRESENT, PLACED = "Present", "Placed"

Key = tuple[str, str]
Item = dict[str, object]


@dataclass(slots=True)
class Span:
    """One status of one thing, in records [from_index, to_index); `row` is the event that began it, if one did."""

    status: str
    from_index: int
    from_at: datetime | None = None
    row: Item | None = None
    error: str | None = None
    attempt: int | None = None
    to_index: int | None = None
    to_at: datetime | None = None

    def item(self, findings: Iterable[Mapping[str, Any]]) -> Item:
        """Plain values, with the findings that hold in it."""
        names = ("status", "from_index", "to_index", "row", "error")
        times = {"from_at": moment(self.from_at), "to_at": moment(self.to_at)}
        stale = [
            {name: each[name] for name in ("kind", "id", "since_index", "until_index")}
            for each in findings
            if _meets(self, each)
        ]
        return {name: getattr(self, name) for name in names} | times | {"findings": stale}


def _meets(span: Span, finding: Mapping[str, Any]) -> bool:
    until = over_at(finding["since_index"], finding["until_index"])
    begins_before = span.to_index is None or finding["since_index"] < span.to_index
    return begins_before and (until is None or until > span.from_index)


@dataclass(slots=True)
class Lanes:
    """See the module. `begin` and `end` are the first and the last record that are looked at; None bounds nothing."""

    begin: int | None = None
    end: int | None = None
    left_out: int = 0
    first_index: int | None = None
    first_at: datetime | None = None
    last_at: datetime | None = None
    _lanes: dict[Key, list[Span]] = field(default_factory=dict[Key, list[Span]])
    _homes: dict[str, str] = field(default_factory=dict[str, str])
    _ended: int = 0
    _folded: State | None = None

    def see(self, state: State, placed: Placed) -> None:
        """Take an event, with the state that it meets."""
        if self.begin is not None and placed.index < self.begin:
            return
        if self.first_index is None:
            self._adopt(state, placed.index)
            self.first_at = placed.at
        elif state is not self._folded:
            self._go_on_from(state, placed)
        self._folded = state
        if self.end is not None and placed.index > self.end:
            return
        self.last_at = placed.at
        if type(placed.event) not in _TELLING:  # most are not, and each arm below is asked in turn
            return
        match placed.event:
            case RunnerStatusUpdated():
                self._report(state, placed, placed.event)
            case InstanceCreated(instance=instance):
                self._place(instance)
                self._begin(("instance", instance.instance_id), PLACED, state, placed)
            case InstanceDeleted(instance_id=name):
                self._end(("instance", name), placed)
            case NodeJoined(node_id=name) | NodeGatheredInfo(node_id=name):
                if isinstance(placed.event, NodeJoined) or self._open(("node", name)) is None:
                    self._begin(("node", name), PRESENT, state, placed)
            case NodeTimedOut(node_id=name):
                self._end(("node", name), placed)
            case _:
                pass

    def item(self, findings: Iterable[Mapping[str, Any]], refused: Iterable[Mapping[str, Any]], state: State) -> Item:
        """Plain values: nodes, then instances with their runners below them. `state` is what the log came to."""
        if self.first_index is None:
            self._adopt(state, state.index)
        is_cut = self.end is not None and self.end < state.index
        last = self.end if is_cut and self.end is not None else state.index
        first = min(self.first_index or 0, last)
        # A note says when its node wrote it, seldom after which record: where the end is cut off it has no place.
        places = ((each, each.get("index")) for each in refused)
        notes = [each for each, at in places if (first <= at <= last if isinstance(at, int) else not is_cut)]
        found, marks = list(findings), self._marks(notes, last)
        return {
            "first_index": first,
            "last_index": last,
            "first_at": moment(self.first_at),
            "last_at": moment(self.last_at),
            "left_out": self.left_out,
            "lanes": [self._lane(key, found, marks) for key in self._in_order()],
        }

    def _adopt(self, state: State, index: int) -> None:
        """What was there before the first event, which stands at `index`."""
        self.first_index = index if self.begin is None else max(self.begin, index)
        self._lanes |= {key: [span] for key, span in self._spans_of(state)}

    def _go_on_from(self, state: State, placed: Placed) -> None:
        """Behind missing records a header brought another state: what that lacks is over, what it has goes on."""
        brought = dict(self._spans_of(state))
        for key in list(self._lanes):
            now, other = self._open(key), brought.get(key)
            if now is not None and other is not None and (now.status, now.attempt) == (other.status, other.attempt):
                del brought[key]
            else:
                self._end(key, placed)
        for key, span in brought.items():
            self._lanes.setdefault(key, []).append(span)

    def _spans_of(self, state: State) -> Iterator[tuple[Key, Span]]:
        """What is in a state, as spans that last."""
        for name, node in state.nodes.items():
            yield ("node", name), Span(PRESENT, node.since_index)
        for instance in state.instances.values():
            self._place(instance)
            yield ("instance", instance.instance_id), Span(PLACED, state.index)
        for name, runner in state.runners.items():
            status = runner.status.type.removeprefix("Runner")
            error = getattr(runner.status, "error_message", None)
            yield ("runner", name), Span(status, runner.since_index, runner.since, error=error, attempt=runner.attempt)

    def _place(self, instance: Instance) -> None:
        self._homes.update((each, instance.instance_id) for each in instance.runner_ids)

    def _report(self, state: State, placed: Placed, event: RunnerStatusUpdated) -> None:
        key, status = ("runner", event.runner_id), event.runner_status.type.removeprefix("Runner")
        if status == "Shutdown":
            self._end(key, placed)
            return
        now = self._open(key)
        if now is None or (now.status, now.attempt) != (status, event.attempt):
            self._begin(key, status, state, placed, getattr(event.runner_status, "error_message", None), event.attempt)

    def _open(self, key: Key) -> Span | None:
        spans = self._lanes.get(key)
        return spans[-1] if spans and spans[-1].to_index is None else None

    def _begin(
        self, key: Key, status: str, state: State, placed: Placed, error: str | None = None, attempt: int | None = None
    ) -> None:
        self._end(key, placed)
        span = Span(status, placed.index, placed.at, row(state, placed), error, attempt)
        self._lanes.setdefault(key, []).append(span)

    def _end(self, key: Key, placed: Placed) -> None:
        if (span := self._open(key)) is not None:
            span.to_index, span.to_at = placed.index, placed.at
            self._ended += 1
            if self._ended > SPANS_KEPT:
                self._forget()

    def _forget(self) -> None:
        """The oldest quarter of what is over goes, and every lane of which nothing is left; an instance goes right
        after the last of what stands below it.
        """
        below: dict[str, float] = {}
        for (sort, name), spans in self._lanes.items():
            if sort == "runner" and (home := self._homes.get(name)) is not None:
                newest = math.inf if spans[-1].to_index is None else spans[-1].from_index
                below[home] = max(below.get(home, newest), newest)
        ended = [
            (max(each.from_index, below.get(name, -1) if sort == "instance" else -1), sort == "instance", id(each))
            for (sort, name), spans in self._lanes.items()
            for each in spans
            if each.to_index is not None
        ]
        gone = {each for *_, each in sorted(ended)[: SPANS_KEPT // 4]}
        for key, spans in list(self._lanes.items()):
            spans[:] = [each for each in spans if id(each) not in gone]
            if not spans:
                del self._lanes[key]
        self._homes = {name: home for name, home in self._homes.items() if ("instance", home) in self._lanes}
        self._ended -= len(gone)
        self.left_out += len(gone)

    def _in_order(self) -> list[Key]:
        nodes = sorted(key for key in self._lanes if key[0] == "node")
        below: dict[str, list[Key]] = {}
        for key in sorted(key for key in self._lanes if key[0] == "runner"):
            below.setdefault(self._homes.get(key[1], ""), []).append(key)
        placed = sorted(
            (key for key in self._lanes if key[0] == "instance"), key=lambda key: self._lanes[key][0].from_index
        )
        grouped = [each for key in placed for each in (key, *below.pop(key[1], ()))]
        return [*nodes, *grouped, *(each for keys in below.values() for each in keys)]

    def _marks(self, notes: Iterable[Mapping[str, Any]], last_index: int) -> dict[str, list[Item]]:
        """The refused reports of each runner: the words of their reasons name it."""
        marks: dict[str, list[Item]] = {name: [] for sort, name in self._lanes if sort == "runner"}
        for note in notes:
            index = place if isinstance(place := note.get("index"), int) else last_index
            for name in marks.keys() & set(str(note.get("reason")).split()):
                marks[name].append({"index": index, "why": str(note.get("reason"))})
        return marks

    def _lane(self, key: Key, findings: list[Mapping[str, Any]], marks: Mapping[str, list[Item]]) -> Item:
        sort, name = key
        mine = [each for each in findings if each["id"] == name]
        is_runner = sort == "runner"
        return {
            "sort": sort,
            "id": name,
            "of": self._homes.get(name) if is_runner else None,
            "spans": [each.item(mine) for each in self._lanes[key]],
            "refused": marks[name][:SPANS_KEPT] if is_runner else [],
        }
