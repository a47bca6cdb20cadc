"""The source of a replay: what somebody calls a log, where it lies, and what lies beside it in a node's home."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, ClassVar, NamedTuple, TypeVar, cast

from exo_cli.engine.core.errors import BadDataError
from exo_cli.engine.log.recordings import Foreign, recorded
from exo_cli.engine.log.scan import Entry, Seen, Start, Torn, scan, segments_of
from exo_cli.engine.log.sources import PACKED, Unpacked, format_of, open_source, peeked, piped_source
from exo_cli.engine.replaying.remote import Remote, is_url

STANDARD_INPUT = "-"
# Below a node's home (EXO_HOME), below its data folder, or the folder itself.
_LOG_FOLDERS = ("", "log", "data/log")
_LAST_BYTES = 1 << 17
_TOLD_LINES = 4096
_STEPS_BEGINNING = b'{"kind":"exo-record"'


class Lenient(NamedTuple):
    """What is passed over instead of refused."""

    skip_bad: bool
    skip_unknown: bool


_Read = TypeVar("_Read", Seen, Foreign | Torn)


class Source:
    """What somebody called a log: one stream, or a folder of segments; of a running system also its state."""

    # Told now and then how much of a log was read: lines, and the part of its bytes where that is known.
    on_progress: ClassVar[Callable[[int, float | None], None] | None] = None

    def __init__(self, path: str) -> None:
        """Open it, and look at what it is."""
        self.given = path
        self.name, self.folder, self.stream = path, None, None
        self.remote = Remote(path) if is_url(path) else None
        if self.remote is not None:
            self.stream = piped_source(cast("BinaryIO", self.remote), path)
        elif path == STANDARD_INPUT:
            self.name = "<stdin>"
            self.stream = piped_source(sys.stdin.buffer, self.name)
        elif (folder := _segments_below(path)) is not None:
            self.folder = folder
        else:
            self.stream = open_source(Path(path))
        try:
            self.form = "ours" if self.stream is None else format_of(self.stream)
            if self.stream is not None and peeked(self.stream).startswith(_STEPS_BEGINNING):
                hint = f"exo replay {shlex.quote(path)} --rerun"
                raise BadDataError(f"{self.name} is what --record wrote of a node, and no event log", hint)
        except BadDataError:
            self.close()
            raise

    @property
    def is_recording(self) -> bool:
        """Whether the public system wrote it."""
        return self.form != "ours"

    @property
    def is_packed(self) -> bool:
        """Whether it is one file, and that is compressed."""
        return isinstance(getattr(self.stream, "raw", None), Unpacked)

    @property
    def files(self) -> list[Path]:
        """The files that it is read from; none of a stream."""
        if self.folder is not None:
            return segments_of(self.folder)
        return [Path(self.name)] if Path(self.name).is_file() else []

    def lines(self, lenient: Lenient, start: Start | None = None) -> Iterator[Seen]:
        """Our own lines; only those behind `start`, when it is given."""
        # A file may be read again and again; a stream, once.
        source = self.folder or next(iter(self.files), self.stream)
        assert source is not None, "one or the other"
        seen = scan(source, self.name, skip_bad=lenient.skip_bad, skip_unknown=lenient.skip_unknown, start=start)
        return seen if Source.on_progress is None else self._told(seen, Source.on_progress)

    def events(self) -> Iterator[Foreign | Torn]:
        """Foreign events."""
        assert self.stream is not None, "a folder holds our own"
        seen = recorded(self.stream, self.form, self.name)
        return seen if Source.on_progress is None else self._told(seen, Source.on_progress)

    def _told(self, seen: Iterator[_Read], tell: Callable[[int, float | None], None]) -> Iterator[_Read]:
        """The same; on the way somebody is told how far it is."""
        sizes = {str(path): path.stat().st_size for path in self.files}
        for number, each in enumerate(seen):
            if not number % _TOLD_LINES:
                tell(number, self._part(getattr(each, "path", self.name), each.offset, sizes))
            yield each

    def _part(self, path: str, offset: int, sizes: dict[str, int]) -> float | None:
        """Inside of a packed file nobody knows how far it is."""
        if path not in sizes or (self.is_packed and self.folder is None):
            return None
        before = sum(size for name, size in sizes.items() if name < path)
        return (before + (0 if path.endswith(PACKED) else offset)) / max(1, sum(sizes.values()))

    def __enter__(self) -> "Source":
        """It closes when the block ends."""
        return self

    def __exit__(self, *_ended: object) -> None:
        """See `close`."""
        self.close()

    def close(self) -> None:
        """Let go of a file."""
        if self.stream is not None:
            self.stream.close()
        if self.remote is not None:
            self.remote.close()


def _segments_below(path: str) -> Path | None:
    """The folder of segments that a folder means; None when it is no folder."""
    given = Path(path)
    if path == STANDARD_INPUT or not given.is_dir():
        return None
    folders = [given / each for each in _LOG_FOLDERS]
    found = next((each for each in folders if each.is_dir() and segments_of(each)), None)
    if found is None:
        raise BadDataError(f"{given} holds no event log", f"ls {shlex.quote(path)}", "exo node show")
    return found


def home_of(path: str) -> Path | None:
    """The node's home that a log lies in: what its journal and its runners have said is there too."""
    given = Path(path).absolute()
    if (given / "data" / "log").is_dir():
        return given
    above = (given if given.is_dir() else given.parent, *given.parents)
    return next((each.parent.parent for each in above if each.parts[-2:] == ("data", "log")), None)


def is_pipe(path: str) -> bool:
    """Whether it can be read only once, and may have no end: a pipe, the standard input, a device."""
    given = Path(path)
    return path == STANDARD_INPUT or (not is_url(path) and given.exists() and not (given.is_file() or given.is_dir()))


def last_index(path: str) -> int | None:
    """The index of the last record, found from the end where that can be; None on a pipe or when nothing is there."""
    if is_pipe(path):
        return None
    found: int | None = None
    folder = _segments_below(path)
    newest = path if folder is None else str(segments_of(folder)[-1])
    with suppress(OSError), Path(newest).open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - _LAST_BYTES))
        if indexes := re.findall(rb'^\{"index":([0-9]+),', file.read(), re.MULTILINE):
            return int(indexes[-1])
    source = Source(newest)
    try:
        if source.is_recording:
            return sum(isinstance(each, Foreign) for each in source.events()) - 1
        for seen in source.lines(Lenient(skip_bad=True, skip_unknown=True)):
            if isinstance(seen, Entry):
                found = getattr(seen.line, "index", found)
    finally:
        source.close()
    return found
