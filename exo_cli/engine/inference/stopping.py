"""Stop strings in a stream of text, however the text is cut.

It knows characters, not tokens. Law: the output does not depend on where the stream is cut; it ends right before the
first match, which is the one that is complete first (of those that end together, the longest).
"""

from collections.abc import Sequence


class StopFilter:
    """Holds back what could be the beginning of a stop string. Empty stop strings are refused before they get here."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Watch for any of `stops`."""
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """The text that is free now; sets `stopped` at a match, after which nothing comes out any more."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        pending = self._held + text
        matches = [(at + len(stop), at) for stop in self._stops if (at := pending.find(stop)) >= 0]
        if matches:
            self.stopped, self._held = True, ""
            return pending[: min(matches)[1]]
        held = self._beginning(pending)
        self._held = pending[len(pending) - held :]
        return pending[: len(pending) - held]

    def release(self) -> str:
        """What was held back and is free because the stream has ended without a match."""
        text, self._held = self._held, ""
        return text

    def _beginning(self, text: str) -> int:
        """How many characters at the end of `text` could begin a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[len(text) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
