"""Statistics: what a log is made of, by type, node and hour, in records and bytes; and what floods it."""

from collections import Counter
from dataclasses import dataclass, field

from exo_cli.engine.core.history import Placed, about
from exo_cli.engine.core.items import moment
from exo_cli.engine.core.state import State

BUSIEST_SHOWN = 10
THINGS_KEPT = 10_000
# An event a second about one thing is what a healthy cluster never needs: downloads and facts are held to less.
FLOOD_PER_MINUTE = 60
# Where there are no times: this part of all events, about one thing, in a log of some length.
FLOOD_SHARE, FLOOD_EVENTS = 0.2, 100


@dataclass(slots=True)
class _Busy:
    """Events of one type about one thing: all of them, and the most in one minute of the log's clock."""

    events: int = 0
    bytes: int = 0
    minute: str | None = None
    in_minute: int = 0
    most_in_minute: int = 0
    first_index: int = 0
    last_index: int = 0


@dataclass(slots=True)
class Statistics:
    """Counts over a log, in memory that does not grow with it."""

    types: Counter[str] = field(default_factory=Counter[str])
    type_bytes: Counter[str] = field(default_factory=Counter[str])
    nodes: Counter[str] = field(default_factory=Counter[str])
    hours: Counter[str] = field(default_factory=Counter[str])
    events: int = 0
    _busy: dict[tuple[str, str, str], _Busy] = field(default_factory=dict[tuple[str, str, str], _Busy])

    def see(self, state: State, placed: Placed, size: int) -> None:
        """Count an event."""
        kind = placed.event.type
        self.count(kind, size)
        if placed.by is not None:
            self.nodes[placed.by.node] += 1
        at = moment(placed.at)
        if at is not None:
            self.hours[at[:13] + ":00Z"] += 1
        thing = next(about(state, placed.event), None)
        if thing is not None:
            self._note(thing, kind, placed, size, at and at[:16])

    def count(self, kind: str, size: int) -> None:
        """Count an event of which no more is known than this."""
        self.events += 1
        self.types[kind] += 1
        self.type_bytes[kind] += size

    def _note(self, thing: tuple[str, str], kind: str, placed: Placed, size: int, minute: str | None) -> None:
        busy = self._busy.get((*thing, kind))
        if busy is None:
            if len(self._busy) >= THINGS_KEPT:
                self._forget()
            busy = self._busy[*thing, kind] = _Busy(first_index=placed.index)
        busy.events += 1
        busy.bytes += size
        busy.last_index = placed.index
        busy.in_minute = busy.in_minute + 1 if minute == busy.minute else 1
        busy.minute = minute
        busy.most_in_minute = max(busy.most_in_minute, busy.in_minute)

    def _forget(self) -> None:
        """The half with the fewest events go: none of them can be among the busiest of a long log."""
        kept = sorted(self._busy.items(), key=lambda entry: -entry[1].events)[: THINGS_KEPT // 2]
        self._busy = dict(kept)

    def item(self) -> dict[str, object]:
        """Plain values, the most frequent first."""
        busiest = sorted(self._busy.items(), key=lambda entry: -entry[1].events)[:BUSIEST_SHOWN]
        return {
            "types": [
                {"type": kind, "events": count, "bytes": self.type_bytes[kind]}
                for kind, count in self.types.most_common()
            ],
            "nodes": dict(self.nodes.most_common()),
            "hours": dict(sorted(self.hours.items())),
            "busiest": [self._busy_item(key, busy) for key, busy in busiest],
        }

    def _busy_item(self, key: tuple[str, str, str], busy: _Busy) -> dict[str, object]:
        sort, name, kind = key
        is_flood = (
            busy.most_in_minute > FLOOD_PER_MINUTE
            if busy.minute is not None
            else self.events >= FLOOD_EVENTS and busy.events >= FLOOD_SHARE * self.events
        )
        return {
            "sort": sort,
            "id": name,
            "type": kind,
            "events": busy.events,
            "bytes": busy.bytes,
            "most_in_minute": busy.most_in_minute if busy.minute is not None else None,
            "first_index": busy.first_index,
            "last_index": busy.last_index,
            "flood": is_flood,
        }
