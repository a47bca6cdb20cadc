"""Walking: a log record by record, forwards and backwards, with the state that each leaves beside it.

States are kept at every STRIDE-th record; from the nearest one the rest is folded anew, so that a step back costs no
more than one forwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from exo_cli.engine.core.experiments import Recorded
from exo_cli.engine.core.history import about, row
from exo_cli.engine.core.invariants.findings import Finding
from exo_cli.engine.core.state import State

STRIDE = 512
Item = dict[str, object]


@dataclass(frozen=True, slots=True)
class Stand:
    """Where somebody stands: the rows around, which of them it is, the state behind it, what it has to do with."""

    rows: list[Item]
    here: int
    state: State
    touched: frozenset[str]
    findings: list[Finding]


@dataclass(slots=True)
class Walk:
    """See the module. Places count from 0; an index is what stands in the log."""

    recorded: Recorded
    findings: Sequence[Finding] = ()
    _kept: list[State] = field(default_factory=list[State])

    def __post_init__(self) -> None:
        """Fold it once."""
        state = self.recorded.base.copy()
        for place, placed in enumerate(self.recorded.placed):
            if place % STRIDE == 0:
                self._kept.append(state.copy())
            state = self.recorded.fold(state, placed)

    def __len__(self) -> int:
        """How many records there are."""
        return len(self.recorded.placed)

    def stand(self, place: int, around: int) -> Stand:
        """What is seen from a place: so many rows before it and behind it, as far as there are any."""
        first, last = max(0, place - around), min(len(self) - 1, place + around)
        state, behind, rows = self._before(first), State(), list[Item]()
        touched: frozenset[str] = frozenset()
        for each in range(first, last + 1):
            placed = self.recorded.placed[each]
            rows.append(row(state, placed))
            if each == place:
                touched = frozenset(name for _, name in about(state, placed.event))
            state = self.recorded.fold(state, placed)
            if each == place:
                behind = state.copy()
        return Stand(rows, place - first, behind, touched, self._holding(behind.index))

    def place_of(self, index: int) -> int | None:
        """The place of a record, or of the first one behind where it would be; None behind the last."""
        return next((place for place, each in enumerate(self.recorded.placed) if each.index >= index), None)

    def find(self, text: str, place: int, step: int) -> int | None:
        """The next place (with step -1 the one before) whose row or event has this text in it, round the end."""
        state, found = self.recorded.base.copy(), list[int]()
        for each, placed in enumerate(self.recorded.placed):
            if text in placed.event.model_dump_json() or text in str(row(state, placed)["what"]):
                found.append(each)
            state = self.recorded.fold(state, placed)
        before, behind = [each for each in found if each < place], [each for each in found if each > place]
        return next(iter([*behind, *found] if step > 0 else [*reversed(before), *reversed(found)]), None)

    def _holding(self, index: int) -> list[Finding]:
        return [each for each in self.findings if each.holds_at(index)]

    def _before(self, place: int) -> State:
        state = self._kept[place // STRIDE].copy()
        for each in self.recorded.placed[place - place % STRIDE : place]:
            state = self.recorded.fold(state, each)
        return state
