"""Experiments: a log with an event more or less, the least of it that shows the same, the first point where something
holds.

They work on events in memory, folded again from the state at which the log begins. What is left out or put in moves
what follows; recorded hashes and command outcomes say nothing here.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from exo_cli.engine.core.events import Event
from exo_cli.engine.core.history import Placed, about
from exo_cli.engine.core.invariants.checks import Checks
from exo_cli.engine.core.invariants.findings import Finding, Findings, Key, key_of
from exo_cli.engine.core.reducer import fold_event
from exo_cli.engine.core.state import State

ROUNDS_MAX = 20_000


@dataclass(slots=True)
class Recorded:
    """The events of a log, the state that they began at, and whether they have times.

    `adopted` has, by the index of the event that met it, each state that a header brought in the middle of the log.
    """

    timed: bool = True
    base: State = field(default_factory=State)
    placed: list[Placed] = field(default_factory=list[Placed])
    adopted: dict[int, State] = field(default_factory=dict[int, State])
    _folded: State | None = None

    def see(self, state: State, placed: Placed, _size: int) -> None:
        """Take the next event, with the state that it meets."""
        if not self.placed:
            self.base = state.copy()
        elif state is not self._folded:
            self.adopted[placed.index] = state.copy()
        self._folded = state
        self.placed.append(placed)

    def fold(self, state: State, placed: Placed) -> State:
        """The state behind an event: the one that is given, changed, or what a header brought in its place."""
        if (brought := self.adopted.get(placed.index)) is not None and state.index < placed.index:
            state = brought.copy()
        fold_event(state, placed.event, placed.index, placed.at if self.timed else None)
        state.index = placed.index
        return state

    def judge(self, placed: Sequence[Placed]) -> Findings:
        """What is wrong in these of its events."""
        state, findings = self.base.copy(), Findings()
        checks = Checks(state, findings, timed=self.timed)
        for each in placed:
            if (brought := self.adopted.get(each.index)) is not None and state.index < each.index:
                state = brought.copy()
                checks.adopt(state)
            # Each keeps its place, unless something was put in before it.
            index = max(state.index + 1, each.index)
            at = each.at if self.timed else None
            touched = checks.before(state, each.event, index, at)
            fold_event(state, each.event, index, at)
            checks.after(state, touched, each.event, index, at)
            state.index = index
        checks.end(state)
        return findings

    def edited(self, without: Sequence[int], added: Sequence[tuple[int, Event]]) -> list[Placed]:
        """Without the events at some indexes, and with others put in before some; one behind the last is the end."""
        gone = set(without)
        at_index: dict[int, list[Event]] = {}
        for index, event in added:
            at_index.setdefault(index, []).append(event)
        result: list[Placed] = []
        for each in self.placed:
            result += [Placed(each.index, event, each.at) for event in at_index.get(each.index, ())]
            if each.index not in gone:
                result.append(each)
        end, at = (self.placed[-1].index + 1, self.placed[-1].at) if self.placed else (self.base.index + 1, None)
        return result + [Placed(end, event, at) for event in at_index.get(end, ())]


@dataclass(frozen=True, slots=True)
class Trial:
    """What an edited log shows, beside the log itself: both by kind and id."""

    findings: Findings
    vanished: list[Finding]
    new: list[Finding]


def tried(recorded: Recorded, edited: Sequence[Placed]) -> Trial:
    """Fold both, and tell the difference."""
    before, after = recorded.judge(recorded.placed), recorded.judge(edited)
    known, left = set(map(key_of, before.in_order())), set(map(key_of, after.in_order()))
    return Trial(
        after,
        [each for each in before.in_order() if key_of(each) not in left],
        [each for each in after.in_order() if key_of(each) not in known],
    )


def reason_of(finding: Finding) -> tuple[Key, str]:
    """What a finding is and how it came about, but for the place: the same fault in a shorter log has the same."""
    return key_of(finding), re.sub(r"\brecord [0-9]+", "record N", finding.why)


def shrunk(recorded: Recorded, finding: Finding) -> list[Placed]:
    """A smallest list of its events (no one of them can be left out) that shows a finding for the same reason.

    First only what has to do with the finding's subject is kept, so that the length of the log does not count; then
    ever smaller parts are left out (delta debugging, Zeller and Hildebrandt 2002).

    Raises:
        KeyError: the log does not show it.
    """
    reason = reason_of(finding)

    def shows(placed: Sequence[Placed]) -> bool:
        return reason in map(reason_of, recorded.judge(placed).in_order())

    for candidates in chain(_related(recorded, finding.id), [recorded.placed]):
        if shows(candidates):
            return _least(candidates, shows)
    raise KeyError(reason)


def _related(recorded: Recorded, name: str) -> Iterator[list[Placed]]:
    """Ever more of the events: about the subject; and mainly about what it hangs on; and about that in any way."""
    state = recorded.base.copy()
    names = {name, *name.split("/", 1)}
    told: list[tuple[Placed, list[str]]] = []
    for each in recorded.placed:
        things = list(about(state, each.event))
        told.append((each, [found for _, found in things]))
        if name in told[-1][1]:
            names.update(found for sort, found in things if sort in {"instance", "node"})
        fold_event(state, each.event, each.index, each.at)
    yield [each for each, found in told if name in found]
    yield [each for each, found in told if name in found or (found[:1] and found[0] in names)]
    yield [each for each, found in told if not names.isdisjoint(found)]


def _least(placed: Sequence[Placed], shows: Callable[[Sequence[Placed]], bool]) -> list[Placed]:
    left, parts = list(placed), 2
    for _ in range(ROUNDS_MAX):
        size = max(1, -(-len(left) // parts))
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            if shows(fewer):
                left, parts = fewer, max(2, parts - 1)
                break
        else:
            if size == 1:
                return left
            parts = min(len(left), parts * 2)
    return left


def first_index(recorded: Recorded, holds: Callable[[State], bool]) -> int | None:
    """The first record after which something holds of the state."""
    state = recorded.base.copy()
    for each in recorded.placed:
        state = recorded.fold(state, each)
        if holds(state):
            return each.index
    return None
