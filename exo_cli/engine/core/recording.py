"""Recording: folding what the public system recorded, whose events have a place, and neither a time nor a term."""

from collections.abc import Callable

from exo_cli.engine.core.foreign.values import Fields
from exo_cli.engine.core.replay import Fold

FORMAT = "exo-explore/events"


class RecordingFold(Fold):
    """The fold of a recording: it is fed with foreign events."""

    format = FORMAT

    def __init__(self, *, check: bool = False) -> None:
        """Nothing was fed yet."""
        super().__init__(check=check)
        self.timed = False
        self.on_counted: Callable[[str, int, int], None] | None = None

    def feed_foreign(self, kind: str, fields: Fields, size: int = 0) -> None:
        """Take the next event, which is so many bytes long; its index is its place.

        Raises:
            UnknownKindError: an event that is not known.
            ValueError: one that is not what its kind says.
        """
        event = self._translator.translate(kind, fields)
        if self.first_index is None:
            self.first_index = 0
        index = self.state.index + 1
        if event is not None:
            self._take(event, index, size)
        else:
            if self.on_counted is not None:
                self.on_counted(kind, index, size)
            self.state.index = index
            self.events += 1
        self.is_done = index == self._stop_index

    def pass_over(self, *, unknown: bool) -> None:
        """An event was passed over; it keeps its place."""
        self.state.index += 1
        self._count("unknown_events" if unknown else "damaged_events")
        self.is_done = self.state.index == self._stop_index

    def _notes(self) -> dict[str, object]:
        return super()._notes() | {name: count for name, count in self._translator.notes.items() if count}
