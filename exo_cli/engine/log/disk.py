"""The writer of a log on disk: one process, one thread at a time. A batch is on disk when `append` returns.

A new segment is written aside and renamed, so that it appears whole. `restart.tmp` beside old segments means that
their move to `abandoned/` was cut short by a crash: it is finished at the next opening.
"""

import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from exo_cli.engine.core.errors import BadDataError, NotFoundError
from exo_cli.engine.core.events import Record
from exo_cli.engine.core.wire import (
    LINE_LIMIT_BYTES,
    BadLineError,
    Closing,
    Header,
    Line,
    decode_line,
    encode_closing,
    encode_header,
    encode_record,
)
from exo_cli.engine.log.rotation import Limits, sweep, tidy
from exo_cli.engine.log.scan import Entry, Torn, scan, segments_of
from exo_cli.engine.log.segment import Pen, Segment, make_folder_durable, write_file
from exo_cli.engine.log.sources import PACKED
from exo_cli.engine.paths import Lock

_NEW = "new.tmp"
_RESTART = "restart.tmp"


class DiskLog:
    """A folder of segments, open for appending."""

    header: Header
    last_index: int
    last_term: int

    def __init__(self, folder: Path, *, sync: bool = True, limits: Limits | None = None) -> None:
        """Take the lock and read nothing yet: use `open_or_create`."""
        self.folder = folder
        self.limits = limits or Limits()
        self.warnings: list[str] = []
        self._sync = sync
        self._segments: list[Segment] = []
        self._pen: Pen | None = None
        self._lock = Lock(folder / "lock", f"the log {folder}", "exo node stop")

    @classmethod
    def open_or_create(
        cls,
        folder: Path,
        header_factory: Callable[[], Header],
        *,
        visit: Callable[[Line], None] | None = None,
        sync: bool = True,
        limits: Limits | None = None,
    ) -> "DiskLog":
        """Open the log in `folder`, or begin one with the header that the factory makes.

        A torn tail is cut off, with a line in `warnings`. `visit` gets every line of the newest segment on the way,
        header first, so that a state can be folded in the same pass.

        Raises:
            BadDataError: damage, an unknown event, a newer format.
            ConflictError: another process has it open.
            OSError: it cannot be written.
        """
        log = cls(folder, sync=sync, limits=limits)
        try:
            log._load(header_factory, visit or (lambda _line: None))
        except BaseException:
            log.close()
            raise
        return log

    @property
    def first_index(self) -> int:
        """How far `read` can go back: the index of the oldest record here, or of the first one to come."""
        return self._segments[0].first_index

    def append(self, records: Sequence[Record]) -> None:
        """Write a batch and make it durable before returning: all of it, or nothing and an OSError."""
        if not records:
            return
        lines = [encode_record(record) for record in records]
        for index, (record, line) in enumerate(zip(records, lines, strict=True), self.last_index + 1):
            assert record.index == index, f"record {record.index} cannot stand at {index}"
            assert len(line) <= LINE_LIMIT_BYTES, f"record {index} would be a line of {len(line)} bytes"
        assert self._pen is not None, "the log is closed"
        offset = self._pen.end
        self._pen.write(b"".join(lines))
        for record, line in zip(records, lines, strict=True):
            self._segments[-1].mark(record.index, offset)
            offset += len(line)
            self.last_index, self.last_term = record.index, record.term

    def read(self, first_index: int, *, limit_bytes: int = 1 << 20) -> list[Record]:
        """Records from `first_index` on, at least one if there is one, about `limit_bytes` at most.

        Raises:
            NotFoundError: the log begins later (see `first_index`).
            BadDataError: the file was damaged after it was opened.
        """
        if first_index < self.first_index:
            raise NotFoundError(f"the log {self.folder} begins at record {self.first_index}, not at {first_index}")
        records: list[Record] = []
        last_index = self.last_index
        for segment, newer in zip(self._segments, [*self._segments[1:], None], strict=True):
            end = last_index if newer is None else newer.first_index - 1
            if segment.first_index <= first_index <= end and limit_bytes > 0:
                found, taken = segment.read(first_index, end, limit_bytes)
                records += found
                limit_bytes -= taken
                first_index += len(found)
        return records

    @property
    def is_full(self) -> bool:
        """Whether the newest segment is long enough to be closed, and holds anything beside its header."""
        big = self._pen is not None and self._pen.end >= self.limits.segment_bytes
        return big and self.last_index > self.header.base_index

    def rotate(self, header: Header) -> None:
        """Go on in a new segment, which begins with the state at the last record. Closed ones are packed and dropped.

        Raises:
            OSError: there is no new one; the old one goes on.
        """
        assert header.base_index == self.last_index, "a segment begins where the one before ends"
        self._write_aside(_NEW, header)
        self._begin(_NEW, header)
        self.warnings += tidy(self.folder, self.limits)
        self._segments = [each for each in self._segments if each.path.exists()]

    def restart(self, header: Header) -> None:
        """Begin anew from a snapshot; what was here moves to `abandoned/<time>-<term>-<index>/`.

        Raises:
            OSError: it could not be done. Before the move nothing has changed; in the middle of it, the log cannot be
                used until it is opened again, which finishes the move.
        """
        assert self._pen is not None, "the log is closed"
        self._write_aside(_RESTART, header)
        try:
            self._abandon(f"{self.last_term}-{self.last_index}")
            self._begin(_RESTART, header)
        except OSError:
            self._pen.is_broken = True
            raise

    def close(self, closing: Closing | None = None) -> None:
        """Write the closing (a full disk costs just that line), let go of file and lock; a second time is nothing."""
        if self._pen is not None:
            if closing is not None:
                assert closing.index == self.last_index, "a closing tells of the last record"
                try:
                    self._pen.write(encode_closing(closing))
                except OSError as error:
                    self.warnings.append(f"{self._pen.path} has no closing: {error.strerror}")
            self._pen.close()
            self._pen = None
        self._lock.release()

    def _load(self, header_factory: Callable[[], Header], visit: Callable[[Line], None]) -> None:
        (self.folder / _NEW).unlink(missing_ok=True)
        sweep(self.folder)
        self._segments = [Segment(path) for path in segments_of(self.folder) if path.suffix != PACKED]
        self._resume_restart()
        while self._segments:
            if self._load_newest(visit):
                return
            # Its header was never whole, so nothing in it was ever acknowledged.
            self._segments.pop().path.unlink()
        header = header_factory()
        self._write_aside(_NEW, header)
        self._begin(_NEW, header)
        visit(header)

    def _load_newest(self, visit: Callable[[Line], None]) -> bool:
        segment = self._segments[-1]
        torn: Torn | None = None
        has_header = False
        for seen in scan(segment.path):
            if isinstance(seen, Torn):
                torn = seen
                self.warnings.append(str(seen))
            elif isinstance(seen, Entry):
                self._take(seen, segment, is_first=not has_header)
                has_header = True
                visit(seen.line)
        if has_header:
            self._pen = Pen(segment.path, sync=self._sync)
            if torn:
                self._pen.cut(torn.offset)
        return has_header

    def _take(self, seen: Entry, segment: Segment, *, is_first: bool) -> None:
        match seen.line:
            case Header(base_index=index) as header:
                if not is_first or index + 1 != segment.first_index:
                    raise _misplaced(seen, "a header that belongs to another segment")
                self.header, self.last_index, self.last_term = header, index, header.base_term
            case Record(index=index) as record:
                if index != self.last_index + 1:
                    raise _misplaced(seen, f"record {index} where {self.last_index + 1} belongs")
                segment.mark(index, seen.offset)
                self.last_index, self.last_term = index, record.term
            case Closing():
                pass

    def _resume_restart(self) -> None:
        aside = self.folder / _RESTART
        try:
            line = decode_line(aside.read_bytes())
        except FileNotFoundError:
            return
        except BadLineError:
            line = None
        if isinstance(line, Header):
            self.warnings.append(f"finished a restart of the log in {self.folder} that was cut short")
            self._abandon("interrupted")
            self._begin(_RESTART, line)
        else:
            aside.unlink()

    def _abandon(self, what: str) -> None:
        # The clock only names the folder; nothing is decided by it.
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{what}"
        names = (name if n == 1 else f"{name}.{n}" for n in count(1))
        target = next(path for name in names if not (path := self.folder / "abandoned" / name).exists())
        target.mkdir(parents=True)
        for path in segments_of(self.folder):
            path.rename(target / path.name)
        make_folder_durable(target)
        self._segments.clear()

    def _write_aside(self, name: str, header: Header) -> None:
        line = encode_header(header)
        assert len(line) <= LINE_LIMIT_BYTES, f"the snapshot would be a line of {len(line)} bytes"
        write_file(self.folder / name, line)

    def _begin(self, aside: str, header: Header) -> None:
        path = self.folder / f"{header.base_index + 1:020}.log"
        (self.folder / aside).rename(path)
        make_folder_durable(self.folder)
        if self._pen is not None:
            self._pen.close()
        self._pen = Pen(path, sync=self._sync)
        self._segments.append(Segment(path))
        self.header, self.last_index, self.last_term = header, header.base_index, header.base_term


def _misplaced(seen: Entry, what: str) -> BadDataError:
    details: dict[str, object] = {"path": seen.path, "line": seen.number, "byte": seen.offset}
    place = f"{seen.path}: line {seen.number}, byte {seen.offset}"
    return BadDataError(f"{place}: {what}", f"exo replay --check {seen.path}", details=details)
