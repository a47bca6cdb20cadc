"""The sequencer: records that arrive in any order, twice or not at all, come out once and in order of index."""

from collections.abc import Iterable

from exo_cli.engine.core.events import Record

WAITING_MAX = 4096


class Sequencer:
    """Buffers what came too early, ignores what is known, and knows what is missing."""

    def __init__(self, next_index: int) -> None:
        """`next_index` is the first one that has not come out yet."""
        self.next_index = next_index
        self._early: dict[int, Record] = {}

    def offer(self, records: Iterable[Record]) -> list[Record]:
        """Take records and give out all that now follow without a gap."""
        for record in records:
            is_new = record.index >= self.next_index and record.index not in self._early
            if is_new and (len(self._early) < WAITING_MAX or record.index == self.next_index):
                self._early[record.index] = record
        ready: list[Record] = []
        while self.next_index in self._early:
            ready.append(self._early.pop(self.next_index))
            self.next_index += 1
        return ready

    def missing(self, head: int) -> int | None:
        """The first index to ask for, given the head of the master's log; None when nothing is missing."""
        return self.next_index if head >= self.next_index else None

    def reset(self, next_index: int) -> None:
        """Begin again behind a snapshot."""
        self.next_index = next_index
        self._early = {index: record for index, record in self._early.items() if index >= next_index}
