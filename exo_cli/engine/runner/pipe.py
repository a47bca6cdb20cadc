"""What a runner writes, taken in by its node: bytes of a pipe up to the death of the process, lines, the log file.

Knows nothing of reports or statuses. Nothing here trusts the child: lines, tails and files are bounded.
"""

import contextlib
import fcntl
import os
import sys
import termios
from collections import deque
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK_BYTES = 1 << 16
TAIL_LINES = 20
TAIL_LINE_CHARACTERS = 500
LOG_FILE_BYTES = 1 << 20


class OverlongLineError(ValueError):
    """A line without an end within the limit."""


class Intake:
    """The reading end of one pipe of a child.

    End of file is not enough to know that all was read: a process that the child started may hold the pipe open for
    ever. All that the child itself wrote lies in the pipe when it is dead, so then that much is taken and no more.
    """

    def __init__(self, stream: trio.lowlevel.FdStream) -> None:
        """Take over the stream; `close` closes it."""
        self._stream = stream
        self._waiting = trio.CancelScope()
        self._left_bytes: int | None = None

    async def receive(self) -> bytes:
        """The next bytes; none at the end."""
        if self._left_bytes is None:
            with trio.CancelScope() as self._waiting:
                return await self._stream.receive_some(CHUNK_BYTES)
        return self._rest()

    def child_died(self) -> None:
        """No more than what lies in the pipe now is to come."""
        self._left_bytes = _readable_bytes(self._stream.fileno())
        self._waiting.cancel()

    def close(self) -> None:
        """Let go of the pipe."""
        self._stream.close()

    def _rest(self) -> bytes:
        if not self._left_bytes:
            return b""
        try:
            rest = os.read(self._stream.fileno(), min(self._left_bytes, CHUNK_BYTES))
        except BlockingIOError:
            rest = b""
        self._left_bytes = self._left_bytes - len(rest) if rest else 0
        return rest


def _readable_bytes(fd: int) -> int:
    answer = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


class Lines:
    """Bytes that come in pieces, as whole lines."""

    def __init__(self, limit_bytes: int) -> None:
        """Lines longer than `limit_bytes` are refused."""
        self._limit_bytes = limit_bytes
        self._held = bytearray()

    def feed(self, chunk: bytes) -> "Iterator[bytes]":
        """The lines that `chunk` completes.

        Raises:
            OverlongLineError: more than the limit came without an end of line.
        """
        first = len(self._held)
        self._held += chunk
        start = 0
        while (end := self._held.find(b"\n", max(start, first))) >= 0:
            yield bytes(self._held[start:end])
            start = end + 1
        del self._held[:start]
        if len(self._held) > self._limit_bytes:
            raise OverlongLineError(f"a line of more than {self._limit_bytes} bytes")


class Tail:
    """The last lines of a text that comes in pieces, made fit to be shown: no control characters, bounded."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._open = b""

    def feed(self, chunk: bytes) -> None:
        """Take the next piece."""
        *whole, self._open = (self._open + chunk).replace(b"\r", b"\n").split(b"\n")
        self._open = self._open[-4 * TAIL_LINE_CHARACTERS :]
        self._lines.extend(line for line in map(_shown, whole[-4 * TAIL_LINES :]) if line)

    @property
    def text(self) -> str:
        """The lines, the last one last."""
        lines = [*self._lines, *([last] if (last := _shown(self._open)) else [])]
        return "\n".join(lines[-TAIL_LINES:])


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").expandtabs().rstrip()[:TAIL_LINE_CHARACTERS]
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


class RotatedFile:
    """A log of at most two files: `NAME`, and `NAME.1` with what came before.

    A disk that is full or gone loses lines, it does not end a runner: errors are swallowed and the file tried again.
    """

    def __init__(self, path: "Path", limit_bytes: int = LOG_FILE_BYTES) -> None:
        """Nothing is opened before the first write."""
        self._path = path
        self._limit_bytes = limit_bytes
        self._fd: int | None = None
        self._size_bytes = 0

    def write(self, chunk: bytes) -> None:
        """Append; begin a new file when this one would grow past the limit."""
        try:
            if self._fd is not None and self._size_bytes + len(chunk) > self._limit_bytes:
                self.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
            if self._fd is None:
                self._open()
            assert self._fd is not None, "opened above"
            self._size_bytes += os.write(self._fd, chunk)
        except OSError:
            self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):
                os.close(fd)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A runner's words may hold parts of a prompt: for the owner's eyes only.
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size_bytes = os.fstat(self._fd).st_size
