"""The twin of the log on disk, for solo runs, the simulation and tests: same rules, nothing durable.

It keeps lines, not records, so that what comes out went through the same writing and reading (times are cut to
milliseconds by it, for one).
"""

from collections.abc import Sequence

from exo_cli.engine.core.errors import NotFoundError
from exo_cli.engine.core.events import Record
from exo_cli.engine.core.wire import LINE_LIMIT_BYTES, Closing, Header, decode_line, encode_record
from exo_cli.engine.log.rotation import Limits


class MemoryLog:
    """A log in memory."""

    header: Header
    last_term: int
    _first_index: int
    _bytes: int

    def __init__(self, header: Header, *, limits: Limits | None = None) -> None:
        """Begin a log with this header."""
        self.limits = limits or Limits()
        self.warnings: list[str] = []
        self.abandoned: list[list[bytes]] = []
        self.closing: Closing | None = None
        self._is_closed = False
        self._begin(header)

    @property
    def first_index(self) -> int:
        """How far `read` can go back: the index of the oldest record here, or of the first one to come."""
        return self._first_index

    @property
    def last_index(self) -> int:
        """Index of the last record, or the header's base index."""
        return self._first_index + len(self._lines) - 1

    def append(self, records: Sequence[Record]) -> None:
        """Take a batch, all of it or nothing."""
        lines = [encode_record(record) for record in records]
        for index, (record, line) in enumerate(zip(records, lines, strict=True), self.last_index + 1):
            assert record.index == index, f"record {record.index} cannot stand at {index}"
            assert len(line) <= LINE_LIMIT_BYTES, f"record {index} would be a line of {len(line)} bytes"
        assert not self._is_closed, "the log is closed"
        self._lines += lines
        self._bytes += sum(map(len, lines))
        if records:
            self.last_term = records[-1].term

    def read(self, first_index: int, *, limit_bytes: int = 1 << 20) -> list[Record]:
        """Records from `first_index` on, at least one if there is one, about `limit_bytes` at most.

        Raises:
            NotFoundError: the log begins later (see `first_index`).
        """
        if first_index < self.first_index:
            raise NotFoundError(f"the log in memory begins at record {self.first_index}, not at {first_index}")
        records: list[Record] = []
        for position in range(first_index - self.first_index, len(self._lines)):
            if limit_bytes <= 0:
                break
            line = decode_line(self._lines[position])
            assert isinstance(line, Record), "only records are kept"
            records.append(line)
            limit_bytes -= len(self._lines[position])
        return records

    @property
    def is_full(self) -> bool:
        """Whether the newest segment is long enough to be closed."""
        return self._bytes >= self.limits.segment_bytes

    def rotate(self, header: Header) -> None:
        """Go on in a new segment, which begins with the state at the last record. Of the older ones one stays."""
        assert header.base_index == self.last_index, "a segment begins where the one before ends"
        del self._lines[: self.header.base_index + 1 - self._first_index]
        self._first_index = self.header.base_index + 1
        self.header, self._bytes = header, 0

    def restart(self, header: Header) -> None:
        """Begin anew from a snapshot; what was here moves to `abandoned`."""
        assert not self._is_closed, "the log is closed"
        self.abandoned.append(self._lines)
        self._begin(header)

    def close(self, closing: Closing | None = None) -> None:
        """Keep the closing, and take no more."""
        if self._is_closed:
            return
        assert closing is None or closing.index == self.last_index, "a closing tells of the last record"
        self.closing = closing
        self._is_closed = True

    def _begin(self, header: Header) -> None:
        self.header = header
        self.last_term = header.base_term
        self._lines: list[bytes] = []
        self._first_index, self._bytes = header.base_index + 1, 0
