"""Sources: opening what somebody calls a log, and telling by its first bytes what it is.

A file or the standard input, zstd or not; our own lines, or what the public system recorded. Names and endings say
nothing here: a recording that was renamed, or came through a pipe, is read as well.
"""

import io
from pathlib import Path
from typing import BinaryIO, Literal

import zstandard

from exo_cli.engine.core.errors import BadDataError, NotFoundError
from exo_cli.engine.paths.target import shown

Format = Literal["ours", "frames", "array"]
PACKED = ".zst"
_MAGIC = b"\x28\xb5\x2f\xfd"
# Zeros compress to less than a thirty-thousandth: what one piece can become has to fit in memory.
_PIECE_BYTES = 256
_WINDOW_BYTES = 128 << 20
_PEEK_BYTES = 64
_MAP_OF_ONE = 0x81


class Unpacked(io.RawIOBase):
    """The contents of zstd frames, one after another, a piece at a time."""

    def __init__(self, packed: BinaryIO, name: str) -> None:
        self._packed, self._name = packed, name
        self._frame = self._new_frame()
        self._rest, self._ready = b"", memoryview(b"")
        self._is_inside = False

    def _new_frame(self) -> "zstandard.ZstdDecompressionObj":
        return zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES).decompressobj()

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._packed.close()
        super().close()

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        while not self._ready:
            if not self._fill():
                return 0
        n = min(len(buffer), len(self._ready))
        buffer[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def _fill(self) -> bool:
        piece = self._rest or self._packed.read(_PIECE_BYTES)
        if not piece:
            if self._is_inside:
                raise self._damaged("its zstd frame is cut off")
            return False
        try:
            self._ready = memoryview(self._frame.decompress(piece))
        except zstandard.ZstdError as error:
            raise self._damaged(f"its zstd frame is damaged ({error})") from None
        self._is_inside, self._rest = not self._frame.eof, b""
        if self._frame.eof:
            self._rest, self._frame = self._frame.unused_data, self._new_frame()
        return True

    def _damaged(self, what: str) -> BadDataError:
        return BadDataError(f"{self._name} cannot be read: {what}", f"zstd --test {shown(self._name)}")


class _Piped(io.RawIOBase):
    """A stream of which the first bytes were read already: they come first."""

    def __init__(self, stream: BinaryIO) -> None:
        # A pipe may give a single byte at first, so what has to be seen at once is read to the end.
        self._stream, self._head = stream, stream.read(_PEEK_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        piece = self._head[: len(buffer)] or self._stream.read(len(buffer))
        self._head = self._head[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)


def open_source(path: Path) -> io.BufferedReader:
    """A file's bytes, unpacked when it is packed. Raises NotFoundError, BadDataError."""
    try:
        return _unpacked(path.open("rb"), str(path))
    except FileNotFoundError:
        raise NotFoundError(f"there is no log {path}", f"ls {shown(path.parent)}") from None
    except OSError as error:
        raise BadDataError(f"cannot read the log {path}: {error.strerror}", f"ls -l {shown(path)}") from None


def piped_source(stream: BinaryIO, name: str) -> io.BufferedReader:
    """The same of a stream that is open already and stays so. Raises BadDataError."""
    return _unpacked(io.BufferedReader(_Piped(stream), 1 << 16), name)


def _unpacked(stream: io.BufferedReader, name: str) -> io.BufferedReader:
    if peeked(stream).startswith(_MAGIC):
        return io.BufferedReader(Unpacked(stream, name), 1 << 16)
    return stream


def peeked(stream: io.BufferedReader) -> bytes:
    """The first bytes, which stay where they are."""
    return stream.peek(_PEEK_BYTES)[:_PEEK_BYTES]


def format_of(stream: io.BufferedReader) -> Format:
    """What the bytes are: our own lines (or nothing that is known), length-prefixed msgpack, a JSON array."""
    first = peeked(stream)
    if first.lstrip()[:1] == b"[":
        return "array"
    if len(first) > 5 and first[4] == _MAP_OF_ONE and first[:1] != b"{":
        return "frames"
    return "ours"
