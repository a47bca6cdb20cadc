"""Growth: the lines of a log while a node writes it, as they come, across rotations and restarts.

Nothing is locked and nothing waited for but the next line: what is read is what the disk holds.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from exo_cli.engine.core.errors import BadDataError
from exo_cli.engine.core.wire import LINE_LIMIT_BYTES, BadLineError, Line, decode_line
from exo_cli.engine.log.scan import segments_of
from exo_cli.engine.log.sources import PACKED, open_source
from exo_cli.engine.paths.target import shown

_PIECE_BYTES = 1 << 16


def growing(path: Path, folder: Path | None, idle: Callable[[], None]) -> Iterator[tuple[Line, int]]:
    """Each line from the beginning of a segment on, with its bytes; then those of the next ones. `idle` waits for more
    and is called between two looks. A single file (no `folder`) ends when it is gone.

    Raises:
        BadDataError: a line that is whole and none of ours.
        OSError: it cannot be read.
    """
    current: Path | None = path
    while current is not None:
        raws = _packed(current) if current.suffix == PACKED else _lines(current, folder, idle)
        for number, raw in enumerate(raws, 1):
            try:
                yield decode_line(raw), len(raw)
            except BadLineError as error:
                place = f"{current}: line {number}"
                raise BadDataError(f"{place} is damaged: {error}", f"exo replay --skip-bad {shown(current)}") from None
        current = None if folder is None else _next(current, folder, idle)


def _next(current: Path, folder: Path, idle: Callable[[], None]) -> Path:
    """The segment after one; after a restart of the log, the only one."""
    while not (found := segments_of(folder)):
        idle()
    return next((each for each in found if _is_newer(each, current)), found[-1])


def _is_newer(segment: Path, than: Path) -> bool:
    """By what they begin with: one may have been packed meanwhile."""
    return segment.name[:20] > than.name[:20]


def _packed(path: Path) -> Iterator[bytes]:
    """The lines of a closed segment."""
    with open_source(path) as file:
        while line := file.readline(LINE_LIMIT_BYTES + 1):
            yield line


def _lines(path: Path, folder: Path | None, idle: Callable[[], None]) -> Iterator[bytes]:
    """Whole lines; what is longer than a line may be comes as it is."""
    with path.open("rb", buffering=0) as file:
        offset, begun, is_last_look = 0, b"", False
        while True:
            piece = os.pread(file.fileno(), _PIECE_BYTES, offset + len(begun))
            begun += piece
            *whole, begun = begun.split(b"\n")
            for line in whole:
                offset += len(line) + 1
                yield line + b"\n"
            if len(begun) > LINE_LIMIT_BYTES:
                yield begun
            if piece:
                continue
            if is_last_look:
                return
            # It is read again: a node cuts off what is no whole line when it starts.
            begun, is_last_look = b"", _is_over(path, folder, os.fstat(file.fileno()).st_ino)
            if not is_last_look:
                idle()


def _is_over(path: Path, folder: Path | None, inode: int) -> bool:
    """Whether nothing more comes to a file: it is no longer there, or a newer one is."""
    with suppress(OSError):
        newer = folder is not None and any(_is_newer(each, path) for each in segments_of(folder))
        return newer or path.stat().st_ino != inode
    return True
