"""One segment on disk: reading records out of it by index, and the pen that writes at the end of the newest.

`marks` has the byte offset of every 64th record, so that reading needs no pass over the file and little memory.
"""

import errno
import fcntl
import os
import sys
from array import array
from contextlib import suppress
from pathlib import Path

from exo_cli.engine.core.errors import BadDataError
from exo_cli.engine.core.events import Record
from exo_cli.engine.core.wire import BadLineError, decode_line
from exo_cli.engine.paths.target import shown

_STRIDE = 64
_RECORD = b'{"index"'
_BUFFER_BYTES = 1 << 16


class Segment:
    """A file of records from `first_index` on."""

    def __init__(self, path: Path) -> None:
        """Take the file as its name says; it is read when something is asked for."""
        self.path = path
        self.first_index = int(path.stem)
        self._marks: array[int] | None = None

    def mark(self, index: int, offset: int) -> None:
        """Remember where a record begins; called for each record from the first on."""
        if self._marks is None:
            self._marks = array("Q")
        if (index - self.first_index) % _STRIDE == 0:
            self._marks.append(offset)

    def read(self, first_index: int, last_index: int, limit_bytes: int) -> tuple[list[Record], int]:
        """Records [first_index, last_index] as far as this segment has them, and the bytes they took.

        At least one, if there is one; the one that passes the limit is the last. Raises BadDataError for what was
        damaged since the log was opened.
        """
        marks = self._found_marks()
        step = (first_index - self.first_index) // _STRIDE
        records: list[Record] = []
        taken = 0
        if step >= len(marks):
            return records, taken
        index, offset = self.first_index + step * _STRIDE, marks[step]
        with self.path.open("rb", buffering=_BUFFER_BYTES) as file:
            file.seek(offset)
            for raw in file:
                if raw.startswith(_RECORD):
                    if index >= first_index:
                        records.append(self._record(raw, index, offset))
                        taken += len(raw)
                        if taken >= limit_bytes or index == last_index:
                            break
                    index += 1
                offset += len(raw)
        return records, taken

    def _record(self, raw: bytes, index: int, offset: int) -> Record:
        try:
            line = decode_line(raw)
            if isinstance(line, Record) and line.index == index:
                return line
            reason = "another record stands there"
        except BadLineError as error:
            reason = str(error)
        details: dict[str, object] = {"path": str(self.path), "record": index, "byte": offset}
        place = f"{self.path}: record {index} (byte {offset})"
        raise BadDataError(
            f"{place} is damaged: {reason}", f"exo replay --skip-bad {shown(self.path)}", details=details
        )

    def _found_marks(self) -> "array[int]":
        if self._marks is None:
            self._marks = array("Q")
            index, offset = self.first_index, 0
            with self.path.open("rb", buffering=_BUFFER_BYTES) as file:
                for raw in file:
                    if raw.startswith(_RECORD):
                        self.mark(index, offset)
                        index += 1
                    offset += len(raw)
        return self._marks


class Pen:
    """The end of a segment, open for writing: what is written is all there and on disk, or nothing of it is."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        """Open an existing file. Without `sync` the operating system chooses when it reaches the disk."""
        self.path = path
        self.sync = sync
        self.is_broken = False
        self._fd: int | None = os.open(path, os.O_RDWR | os.O_APPEND)
        self.end = os.fstat(self._fd).st_size

    def write(self, data: bytes) -> None:
        """Write and make durable. On an OSError the file is cut back to what it was."""
        assert self._fd is not None, "the log is closed"
        if self.is_broken:
            raise OSError(errno.EIO, "the log is unusable until it is opened again", str(self.path))
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
            self._settle()
        except BaseException as error:
            # Whatever interrupted it: a half written batch before the next one would be damage in the middle.
            self._cut_back()
            if isinstance(error, OSError):
                error.filename = str(self.path)
            raise
        self.end += len(data)

    def cut(self, offset: int) -> None:
        """Cut off a torn tail from `offset` on, and end the last line if it lacks its newline."""
        assert self._fd is not None, "the log is closed"
        os.ftruncate(self._fd, offset)
        self.end = offset
        self.write(b"" if os.pread(self._fd, 1, offset - 1) == b"\n" else b"\n")

    def close(self) -> None:
        """Let go of the file; a second time is nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _settle(self) -> None:
        if self.sync and self._fd is not None:
            make_durable(self._fd)

    def _cut_back(self) -> None:
        assert self._fd is not None
        try:
            os.ftruncate(self._fd, self.end)
        except OSError:
            self.is_broken = True
            return
        # So that a crash does not bring back what was reported as not written.
        with suppress(OSError):
            self._settle()


def make_durable(fd: int) -> None:
    """Have an open file's bytes and length on the disk before returning."""
    if sys.platform != "darwin":
        os.fdatasync(fd)
        return
    try:
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    except OSError:
        os.fsync(fd)  # a file system that has no way to empty the drive's own cache


def make_folder_durable(folder: Path) -> None:
    """Have the names in a folder on the disk before returning."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file durably, or leave none."""
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            make_durable(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
