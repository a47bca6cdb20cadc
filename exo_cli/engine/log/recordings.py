"""Recordings of the public system: length-prefixed msgpack (`events.bin`), and the JSON array of its `/events`.

Both hold `{"EventName": {fields}}`, one after another, and are read in constant memory. What a crash left at the end is
told from damage: a record that is cut off is the end of a recording, bytes that are none are damage.
"""

import codecs
import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import msgpack

from exo_cli.engine.core.errors import BadDataError
from exo_cli.engine.core.foreign.values import Fields
from exo_cli.engine.log.scan import Torn
from exo_cli.engine.log.sources import Format
from exo_cli.engine.paths.target import shown

RECORD_LIMIT_BYTES = 64 << 20
_PIECE_CHARACTERS = 1 << 16


class Foreign(NamedTuple):
    """A foreign event: its kind and fields, where it begins, and how long it is; in bytes (in an array: characters)."""

    kind: str
    fields: Fields
    offset: int
    size: int


def recorded(stream: io.BufferedReader, form: Format, name: str) -> Iterator[Foreign | Torn]:
    """The events of a recording in order, and `Torn` when its end is cut off.

    Raises:
        BadDataError: bytes that are no event, with their place.
    """
    return _frames(stream, name) if form == "frames" else _array(stream, name)


def _frames(stream: io.BufferedReader, name: str) -> Iterator[Foreign | Torn]:
    offset = 0
    while head := stream.read(4):
        size = int.from_bytes(head, "big")
        if len(head) == 4 and not 0 < size <= RECORD_LIMIT_BYTES:
            raise _damaged(name, offset, f"a record of {size} bytes is announced")
        body = stream.read(size)
        if len(head) < 4 or len(body) < size:
            yield Torn(name, offset, len(head) + len(body))
            return
        try:
            value = msgpack.unpackb(body, raw=False, strict_map_key=False)
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            raise _damaged(name, offset, f"it is no msgpack ({type(error).__name__})") from None
        yield _event(value, name, offset, 4 + size)
        offset += 4 + size


def _event(value: Any, name: str, offset: int, size: int) -> Foreign:
    if isinstance(value, dict) and len(cast("Fields", value)) == 1:
        kind, fields = next(iter(cast("dict[object, object]", value).items()))
        if isinstance(kind, str) and isinstance(fields, dict):
            return Foreign(kind, cast("Fields", fields), offset, size)
    raise _damaged(name, offset, 'an event is {"EventName": {...}}, and this is none')


def _damaged(name: str, offset: int, what: str) -> BadDataError:
    details: dict[str, object] = {"path": name, "byte": offset}
    return BadDataError(f"{name} is damaged at byte {offset}: {what}", f"ls -l {shown(name)}", details=details)


class _Array:
    """A JSON array that is read piece by piece."""

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self._stream, self._name = stream, name
        self._decoder, self._utf8 = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8")()
        self._text, self._at, self._before = "", 0, 0

    def more(self) -> bool:
        """Read on; False at the end."""
        raw = self._stream.read(_PIECE_CHARACTERS)
        try:
            piece = self._utf8.decode(raw, final=not raw)
        except UnicodeDecodeError:
            raise _damaged(self._name, self.place, "it is not UTF-8") from None
        self._before += self._at
        self._text, self._at = self._text[self._at :] + piece, 0
        if len(self._text) > RECORD_LIMIT_BYTES:
            raise _damaged(self._name, self.place, f"an event of more than {RECORD_LIMIT_BYTES} characters")
        return bool(raw)

    @property
    def place(self) -> int:
        """Characters before what comes next."""
        return self._before + self._at

    @property
    def left(self) -> int:
        """Characters that were read and are not used."""
        return len(self._text) - self._at

    def mark(self) -> str:
        """The next character that is no space, taken; nothing at the end."""
        while True:
            while self._at < len(self._text):
                self._at += 1
                if not (mark := self._text[self._at - 1]).isspace():
                    return mark
            if not self.more():
                return ""

    def value(self) -> Any:
        """The next value. Raises EOFError when it is cut off."""
        self._at -= 1  # its first character was taken as the mark
        while True:
            try:
                value, self._at = self._decoder.raw_decode(self._text, self._at)
            except RecursionError:
                raise _damaged(self._name, self.place, "it is nested too deeply") from None
            except json.JSONDecodeError as error:
                if error.pos < len(self._text) - 16 and not error.msg.startswith("Unterminated"):
                    raise _damaged(self._name, self._before + error.pos, error.msg) from None
                if not self.more():
                    raise EOFError from None
            else:
                return value


def _array(stream: io.BufferedReader, name: str) -> Iterator[Foreign | Torn]:
    array = _Array(stream, name)
    mark = array.mark()
    mark = array.mark()
    while mark != "]":
        start = array.place - 1
        try:
            if not mark:
                raise EOFError
            value = array.value()
            yield _event(value, name, start, array.place - start)
        except EOFError:
            yield Torn(name, start, array.left)
            return
        mark = array.mark()
        if mark == ",":
            mark = array.mark()
        elif mark not in {"", "]"}:
            raise _damaged(name, array.place - 1, "events are separated by commas")
