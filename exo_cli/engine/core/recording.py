"""Recording: folding what the public system recorded, whose events have a place, and neither a time nor a term."""

from collections.abc import Callable
from typing import cast

from exo_cli.engine.core.events import Event
from exo_cli.engine.core.foreign.translator import Translator
from exo_cli.engine.core.foreign.values import Fields
from exo_cli.engine.core.history import Placed
from exo_cli.engine.core.reducer import fold_event
from exo_cli.engine.core.replay import Fold

FORMAT = "exo-explore/events"


class RecordingFold(Fold):
    """The fold of a recording: it is fed with foreign events."""

    format = FORMAT
    timed = False

    def __init__(self, *, check: bool = False) -> None:
        """Nothing was fed yet."""
        super().__init__(check=check)
        self._translator = Translator()
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
            if self._watchers:
                self._show(Placed(index, event), size)
            self._take(event, index)
        elif self.on_counted is not None:
            self.on_counted(kind, index, size)
        self.state.index = index
        self.events += 1
        self.is_done = index == self._stop_index

    def pass_over(self, *, unknown: bool) -> None:
        """An event was passed over; it keeps its place."""
        self.state.index += 1
        self._count("unknown_events" if unknown else "damaged_events")
        self.is_done = self.state.index == self._stop_index

    def _take(self, event: Event, index: int) -> None:
        if not self._check:
            fold_event(self.state, event, index, None)
            return
        checks = self._checks = self._checks or self._new_checks()
        touched = checks.before(self.state, event, index, None)
        fold_event(self.state, event, index, None)
        checks.after(self.state, touched, event, index, None)

    def result(self) -> dict[str, object]:
        """What the recording adds up to, with what to ask of the public system as remedies."""
        item = super().result()
        for finding in cast("list[dict[str, object]]", item["findings"]):
            finding["remedy"] = self._translator.remedy(str(finding["kind"]), str(finding["id"]))
        return item

    def _notes(self) -> dict[str, object]:
        return super()._notes() | {name: count for name, count in self._translator.notes.items() if count}
