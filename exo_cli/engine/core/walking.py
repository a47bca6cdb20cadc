"""Walking: a log record by record, forwards and backwards, with the state that each leaves beside it.

States are kept at every STRIDE-th record; from the nearest one the rest is folded anew, so that a step back costs no
more than one forwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from exo_cli.engine.core.experiments import Recorded
from exo_cli.engine.core.history import about, row
from exo_cli.engine.core.invariants.findings import Finding
from exo_cli.engine.core.reducer import fold_event
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
        for place in range(len(self)):
            if place % STRIDE == 0:
                self._kept.append(state.copy())
            self._fold(state, place)

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
            self._fold(state, each)
            if each == place:
                behind = state.copy()
        return Stand(rows, place - first, behind, touched, self._holding(behind.index))

    def place_of(self, index: int) -> int:
        """The place of a record, or of the first one behind where it would be."""
        placed = self.recorded.placed
        return next((place for place, each in enumerate(placed) if each.index >= index), len(placed) - 1)

    def find(self, text: str, place: int, step: int) -> int | None:
        """The next place (with step -1 the one before) whose event has this text in it, round the end of the log."""
        others = (place + step * distance for distance in range(1, len(self)))
        found = (each % len(self) for each in others if text in self._text(each % len(self)))
        return next(found, None)

    def _text(self, place: int) -> str:
        return self.recorded.placed[place].event.model_dump_json()

    def _holding(self, index: int) -> list[Finding]:
        begun = [each for each in self.findings if each.since_index <= index]
        return [
            each for each in begun if each.until_index is None or index < max(each.until_index, each.since_index + 1)
        ]

    def _before(self, place: int) -> State:
        state = self._kept[place // STRIDE].copy()
        for each in range(place - place % STRIDE, place):
            self._fold(state, each)
        return state

    def _fold(self, state: State, place: int) -> None:
        placed = self.recorded.placed[place]
        at = placed.at if self.recorded.timed else None
        fold_event(state, placed.event, placed.index, at)
        state.index = placed.index
