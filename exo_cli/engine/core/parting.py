"""Parting: where another reducer than ours goes its own way, given the same records.

For as long as both agree, the other one is handed a copy of our state at each record; from the first difference on it
goes on alone, so that what became of it at the end can be told as well.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from exo_cli.engine.core.changes import changes_between
from exo_cli.engine.core.events import Record
from exo_cli.engine.core.history import Placed, row
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.state import State, without_times

PATHS_KEPT = 20

Reducer = Callable[[State, Record], object]
Item = dict[str, object]


@dataclass(slots=True)
class Parting:
    """Watches a fold. `reducer` changes the state that it is given, or returns another, as ours does.

    `event` is the record at which they part, `paths` what is different behind it.
    """

    reducer: Reducer
    event: Item | None = None
    paths: list[Item] = field(default_factory=list[Item])
    records: int = 0
    _theirs: State | None = None

    def see(self, state: State, placed: Placed, _size: int) -> None:
        """Take the next event, with our state that it meets.

        Raises:
            TypeError: the reducer returned something that is no state.
            Exception: whatever the reducer raises.
        """
        record = placed.record()
        self.records += 1
        if self._theirs is not None:
            self._theirs = self._reduced(self._theirs, record)
            return
        theirs, ours = self._reduced(state.copy(), record), state.copy()
        apply(ours, record)
        if theirs != ours and (paths := different(ours, theirs)):
            self._theirs, self.event, self.paths = theirs, row(state, placed), paths

    def item(self, state: State) -> Item:
        """What came of it, with our state at the end."""
        at_end: list[Item] = []
        if self._theirs is not None:
            self._theirs.index = state.index  # what is only counted moves the place alone
            at_end = different(state, self._theirs)
        return {"records": self.records, "parts_at": self.event, "there": self.paths, "at_end": at_end}

    def _reduced(self, state: State, record: Record) -> State:
        returned = self.reducer(state, record)
        if returned is None:
            return state
        if not isinstance(returned, State):
            raise TypeError(f"it returned a {type(returned).__name__}, neither a State nor None")
        return returned


def different(ours: State, theirs: State) -> list[Item]:
    """Where two states differ, but for clock times: at most PATHS_KEPT paths, and what stands there (None: nothing)."""
    found: list[Item] = []
    for path, one, other in changes_between(without_times(ours.dump()), without_times(theirs.dump())):
        found.append({"path": path, "ours": one, "theirs": other})
        if len(found) == PATHS_KEPT:
            break
    return found
