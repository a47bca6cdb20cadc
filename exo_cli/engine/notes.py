"""Notes: what the core notices and the log does not hold, to where somebody looks for it: journal, counts, output."""

import logging
from collections import Counter

from exo_cli.engine.core.effects import Note
from exo_cli.engine.journal import Journal

# What whoever runs the node has to know; `{address}` and `{why}` are the note's.
WARNINGS = {
    "peer failed": "peer {address}: {why} (it is tried again)",
    "hello refused": "a node at {address} was turned away: {why}",
    "cannot return as master": "{why}",
    "diverged": "this node's state was not the master's, which it takes now: {why}",
    "joined another cluster": "this node {why}; its log is kept below abandoned/",
    "snapshot refused": "the master's state cannot be used: {why}",
}
_REPEATED = "hello refused"
_KEPT = 256
_LOG = logging.getLogger(__name__)


class Notes:
    """See the module. `dropped` counts messages that were not used, by reason, since the start."""

    def __init__(self, journal: Journal) -> None:
        """Nothing has been noticed."""
        self.journal = journal
        self.dropped: Counter[str] = Counter()
        self._warned: dict[str, str] = {}

    def take(self, note: Note) -> None:
        """Put a note where it belongs."""
        if note.kind == "dropped":
            self.drop(str(note.fields.get("why")))
            return
        self.journal.note(note.kind, **note.fields)
        if (text := WARNINGS.get(note.kind)) is not None:
            self._warn(note.kind, text, str(note.fields.get("address", "")), str(note.fields.get("why", "")))

    def drop(self, why: str) -> None:
        """A message was not used."""
        self.dropped[why] += 1
        self.journal.count(why)

    def _warn(self, kind: str, text: str, address: str, why: str) -> None:
        """Say it; who asks again and again is told of once. Both come from other machines: what is kept is bounded,
        what is printed plain.
        """
        if len(self._warned) >= _KEPT:
            self._warned.clear()
        if kind != _REPEATED or self._warned.get(address) != why:
            self._warned[address] = why
            _LOG.warning("%s", repr(text.format(address=address, why=why))[1:-1])
