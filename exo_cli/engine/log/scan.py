"""Reading a log from one end to the other, in constant memory: a file, a folder of segments, or a stream.

It judges what a crash left and what is damage (the package's words say how), and never writes. Whether the records
follow one another is not judged here: a reader may want to show a log with a gap.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from exo_cli.engine.core.errors import BadDataError, NotFoundError, UsageError
from exo_cli.engine.core.events import Record
from exo_cli.engine.core.wire import (
    LINE_LIMIT_BYTES,
    BadLineError,
    Closing,
    Header,
    Line,
    NewerFormatError,
    UnknownEventError,
    decode_line,
)
from exo_cli.engine.log.sources import PACKED, open_source
from exo_cli.engine.paths.target import shown

_BEGINNINGS = (b'{"index":', b'{"kind":"')
_HEADER_BEGINNING = b'{"kind":"exo-log"'
# No text in a record can look like this: JSON escapes its quotes.
_SEAL = re.compile(rb',"crc":"[0-9a-f]{8}"\}')
_NEWLINE = 10
_HOLE = b"\0" * 8
_PIECE_BYTES = 1 << 20


class Entry(NamedTuple):
    """A line of the log and where it stands: line numbers count from 1, offsets in bytes from the file's start."""

    line: Line
    number: int
    offset: int
    path: str
    size: int


class Skipped(NamedTuple):
    """A line that was passed over because the caller asked for it. `unknown`: whole, but of an unknown event type."""

    path: str
    number: int
    offset: int
    reason: str
    unknown: bool


class Torn(NamedTuple):
    """What a crash left at the end: `bytes` from `offset` on are no record (none when just a newline is missing)."""

    path: str
    offset: int
    bytes: int

    def __str__(self) -> str:
        """The warning, in one line."""
        if self.bytes:
            return f"the end of {self.path} is torn: {self.bytes} bytes from byte {self.offset} on are no whole record"
        return f"the end of {self.path} is torn: something is missing at byte {self.offset}"


Seen = Entry | Skipped | Torn


class Start(NamedTuple):
    """Where a pass begins that does not begin at the beginning: behind a line, whose number and record are these."""

    path: str
    offset: int
    number: int
    record: int


def segments_of(folder: Path) -> list[Path]:
    """The segments in a folder, oldest first, packed ones (`.log.zst`) among them; of two of one name the plain one."""
    found = (path for path in folder.iterdir() if re.fullmatch(r"[0-9]{20}\.log(\.zst)?", path.name))
    return list({path.name[:20]: path for path in sorted(found, reverse=True)}.values())[::-1]


def refuse_beside_segments(target: Path) -> None:
    """Raises UsageError where a file would lie among the segments of a log."""
    folder = target.absolute().parent
    if folder.is_dir() and segments_of(folder):
        raise UsageError(
            f"{shown(folder)} is the folder of an event log, and nothing else belongs there", "exo replay --help"
        )


def scan(
    source: Path | BinaryIO,
    name: str = "<stdin>",
    *,
    skip_bad: bool = False,
    skip_unknown: bool = False,
    start: Start | None = None,
) -> Iterator[Seen]:
    """Headers, records and closings in order; `Torn` at the end if there is a torn tail; `Skipped` if asked to skip.

    `source` is a file, a folder of segments (a header for each), or a binary stream, called `name`. Files may be zstd.
    Of files, what is before `start` is passed over unseen.

    Raises:
        NotFoundError: no such file, or a folder without segments.
        BadDataError: damage, an unknown event, a newer format, no log at all; what came before has been yielded.
    """
    if not isinstance(source, Path):
        yield from _Scan(source, name, skip_bad=skip_bad, skip_unknown=skip_unknown).run()
        return
    paths = segments_of(source) if source.is_dir() else [source]
    if not paths:
        raise NotFoundError(f"there is no log in {source}", f"ls {shown(source)}")
    for path in paths if start is None else paths[paths.index(Path(start.path)) :]:
        with _opened(path) as file:
            newest = path == paths[-1]
            one = _Scan(file, str(path), newest=newest, skip_bad=skip_bad, skip_unknown=skip_unknown)
            if start is not None and start.path == str(path):
                one.begin_at(start)
            try:
                yield from one.run()
            except OSError as error:
                raise BadDataError(f"cannot read the log {path}: {error.strerror}", f"ls -l {shown(path)}") from None


def _opened(path: Path) -> io.BufferedReader:
    packed = path.with_name(path.name + PACKED)
    try:
        return open_source(path)
    except NotFoundError:
        if not packed.exists():
            raise
        return open_source(packed)  # it was packed since somebody looked


class _Scan:
    """One pass over one segment."""

    def __init__(
        self, stream: BinaryIO, path: str, *, newest: bool = True, skip_bad: bool = False, skip_unknown: bool = False
    ) -> None:
        self.stream = stream
        self.path = path
        self.newest = newest
        self.skip_bad = skip_bad
        self.skip_unknown = skip_unknown
        self.number = 0
        self.offset = 0
        self.last: Line | None = None

    def begin_at(self, start: Start) -> None:
        """Pass over what is before."""
        passed = 0
        while passed < start.offset and (piece := self.stream.read(min(_PIECE_BYTES, start.offset - passed))):
            passed += len(piece)
        self.offset, self.number = start.offset, start.number
        self.last = Closing(index=start.record, term=0, state_hash="")

    def run(self) -> Iterator[Seen]:
        """The segment's lines."""
        readline, path = self.stream.readline, self.path
        raw = readline(LINE_LIMIT_BYTES)
        if not raw and self.last is None:
            yield self._torn(0)
        while raw:
            following: bytes | None = None
            self.number += 1
            try:
                line = decode_line(raw)
                if self.last is None:
                    self._begin(line)
                self.last = line
                yield Entry(line, self.number, self.offset, path, len(raw))
                if raw[-1] != _NEWLINE and self.newest:
                    yield self._torn(len(raw))
            except BadLineError as error:
                following = readline(LINE_LIMIT_BYTES)
                yield from self._bad(raw, error, is_last=not following)
            self.offset += len(raw)
            raw = readline(LINE_LIMIT_BYTES) if following is None else following

    def _begin(self, line: Line) -> None:
        if not isinstance(line, Header) and not self.skip_bad:
            raise BadLineError("a segment begins with a header, and this is none")

    def _bad(self, raw: bytes, error: BadLineError, *, is_last: bool) -> Iterator[Seen]:
        if isinstance(error, UnknownEventError):
            if not self.skip_unknown:
                raise self._refusal(
                    f"cannot be used: {error}", f"exo replay --skip-unknown {shown(self.path)}"
                ) from None
            yield Skipped(self.path, self.number, self.offset, str(error), unknown=True)
            return
        if isinstance(error, NewerFormatError):
            raise self._refusal(f"cannot be used: {error}", "pip install --upgrade exo-cli") from None
        written = raw.rstrip(b"\0")
        if is_last and self.newest:
            if len(written) < len(raw) and (whole := self._whole(written)):
                self.last = whole
                yield Entry(whole, self.number, self.offset, self.path, len(written))
                yield self._torn(len(written), len(raw) - len(written))
                return
            if self._is_torn(raw, written):
                yield self._torn(0, len(raw))
                return
        if not self.skip_bad:
            raise self._refusal(f"is damaged: {error}", f"exo replay --skip-bad {shown(self.path)}") from None
        yield Skipped(self.path, self.number, self.offset, str(error), unknown=False)

    def _whole(self, written: bytes) -> Line | None:
        """The line in front of zeros, if it is whole and its newline may be what became the first zero."""
        try:
            line = decode_line(written)
        except BadLineError:
            return None
        return line if self.last or isinstance(line, Header) else None

    def _is_torn(self, raw: bytes, written: bytes) -> bool:
        beginnings = _BEGINNINGS if self.last else (_HEADER_BEGINNING,)
        start = written[: len(_HEADER_BEGINNING)].split(b"\0", 1)[0]
        if not any(start.startswith(beginning[: len(start)]) for beginning in beginnings):
            return False
        seal = _SEAL.search(written)
        if raw[-1] != _NEWLINE:
            return seal is None
        return _HOLE in raw and (seal is None or seal.end() == len(raw) - 1)

    def _torn(self, kept: int, lost: int = 0) -> Torn:
        return Torn(self.path, self.offset + kept, lost)

    def _refusal(self, verdict: str, *hints: str) -> BadDataError:
        details: dict[str, object] = {"path": self.path, "line": self.number, "byte": self.offset}
        match self.last:
            case None:
                what = "the header"
            case Header(base_index=index) | Record(index=index) | Closing(index=index):
                what = f"record {index + 1}"
                details["record"] = index + 1
        place = f"{self.path}: {what} (line {self.number}, byte {self.offset})"
        return BadDataError(f"{place} {verdict}", *hints, details=details)
