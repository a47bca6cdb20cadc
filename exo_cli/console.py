"""The terminal: stdout is data, stderr is talk. Formats, colour, and the one function that makes hostile text harmless.

Knows streams and escape sequences; knows nothing of nodes, models or commands. Names, addresses and error texts come
from other machines: everything that is shown to a person goes through `visible` first.
"""

import json
import os
import re
import select
import stat
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TextIO

from exo_cli.engine.core.errors import BadDataError, ExoError

# What a terminal would obey or hide: control characters, bidirectional overrides, invisible marks, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
SLOW_STDIN_SECONDS = 2.0
PROSE = "\n\t\u200c\u200d"


class Format(StrEnum):
    """How an answer is written; `table` on a terminal and `plain` elsewhere is the default."""

    TABLE = "table"
    PLAIN = "plain"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    NAME = "name"


MACHINE = frozenset({Format.JSON, Format.JSONL})


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headers; `elastic` are the columns that give way when a terminal is too narrow."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    elastic: frozenset[int] = field(default=frozenset[int]())


def visible(text: str, keep: str = "") -> str:
    """The text with every character that a terminal would obey written out (`\\x1b`), except those in `keep`."""
    return _UNSAFE.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def _escape(character: str) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or character.encode(
        "unicode_escape", "surrogatepass"
    ).decode()


def json_text(value: object, *, indent: int | None = None) -> str:
    """JSON that keeps letters of all scripts and escapes what `visible` would."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNSAFE.sub(lambda match: "\n" if match[0] == "\n" else json.dumps(match[0])[1:-1], text)


def wants_color(stream: TextIO, when: str, environ: Mapping[str, str]) -> bool:
    """`--color`, else NO_COLOR, else FORCE_COLOR or CLICOLOR_FORCE, else whether the stream is an able terminal."""
    if when != "auto":
        return when == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") not in {"", "0"} or environ.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


class Console:
    """The two streams of this process. Beside it only a screen (`--step`) and an export write to stdout."""

    def __init__(self) -> None:
        """Take the streams as they are now; a letter that they cannot encode is written out instead of raising."""
        self.out, self.err = sys.stdout, sys.stderr
        for stream in (self.out, self.err):
            if callable(reconfigure := getattr(stream, "reconfigure", None)):
                reconfigure(errors="backslashreplace")
        self.color = "auto"
        self._progress = ""

    @property
    def on_terminal(self) -> bool:
        """Whether a person reads stdout."""
        return self.out.isatty()

    @property
    def columns(self) -> int | None:
        """The width of the terminal that stdout is; None elsewhere."""
        return self._width() if self.on_terminal else None

    # -- data ---------------------------------------------------------------------------------------------------------

    def data(self, line: str) -> None:
        """One line of the answer, on stdout. It is the caller's to have made its names visible."""
        self._clear_progress()
        print(line, file=self.out, flush=True)

    def text(self, piece: str) -> None:
        """A piece of running text on stdout, at once; its bytes are kept as they are unless a terminal reads them."""
        self._clear_progress()
        self.out.write(visible(piece, PROSE) if self.on_terminal else piece)
        self.out.flush()

    def json_line(self, value: object) -> None:
        """One JSON value on one line."""
        self.data(json_text(value))

    def document(self, value: object) -> None:
        """One JSON document: for people's eyes on a terminal, on one line elsewhere."""
        self.data(json_text(value, indent=2 if self.on_terminal else None))

    def table(self, table: Table, *, headers: bool = True, plain: bool = False) -> None:
        """Columns two spaces apart. On a terminal the elastic ones are cut to its width; in a pipe nothing is cut."""
        rows = [tuple(visible(cell) for cell in row) for row in table.rows]
        if headers:
            rows.insert(0, table.headers)
        fitted = _fit(rows, table.elastic, None if plain else self.columns)
        bold = headers and not plain and wants_color(self.out, self.color, os.environ)
        for number, line in enumerate(fitted):
            self.data(f"\x1b[1m{line}\x1b[0m" if bold and number == 0 else line)

    def clear_screen(self) -> None:
        """Before a table is drawn again; only on a terminal that understands it."""
        if self.on_terminal and os.environ.get("TERM") != "dumb":
            self.out.write("\x1b[H\x1b[2J")

    # -- stdin --------------------------------------------------------------------------------------------------------

    @property
    def is_typed(self) -> bool:
        """Whether a person types on stdin."""
        return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()

    def piped(self, *, beside_argument: bool) -> str | None:
        """All of stdin when it is a pipe or a file; beside an argument nothing else is read: it may never end (cron).

        Raises:
            BadDataError: it is no text, or cannot be read.
        """
        if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
            return None
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if beside_argument and not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
            return None
        if not stat.S_ISREG(mode) and not select.select([sys.stdin], [], [], SLOW_STDIN_SECONDS)[0]:
            self.say("waiting for text on stdin (--no-stdin does without)")
        try:
            return sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadDataError(f"stdin is not UTF-8 text (byte {error.start})", "file -") from None
        except OSError as error:
            raise BadDataError(f"stdin cannot be read: {error.strerror}", "ls -lL /dev/stdin") from None

    def typed(self) -> Iterator[str]:
        """Line after line that a person types, until Ctrl-D. Ctrl-C clears the line; twice in a second it leaves."""
        with suppress(ImportError):
            import readline  # noqa: F401 - gives input() its editing and history
        last = 0.0
        while True:
            try:
                yield input("> ")
            except EOFError:
                self.say("")
                return
            except KeyboardInterrupt:
                self.say("")
                if time.monotonic() - last < 1:
                    raise
                last = time.monotonic()

    # -- talk ---------------------------------------------------------------------------------------------------------

    def say(self, line: str) -> None:
        """One line for the person, on stderr."""
        self._clear_progress()
        print(visible(line), file=self.err, flush=True)

    def progress(self, line: str) -> None:
        """Where a wait stands: redrawn in place on a terminal, one line for each change elsewhere."""
        line = visible(line)
        if line == self._progress:
            return
        if self.redraws:
            self._clear_progress()
            self.err.write(line[: self._width() - 1])
            self.err.flush()
            self._progress = line
        else:
            print(line, file=self.err, flush=True)
            self._progress = line

    def end_progress(self) -> None:
        """The wait is over: nothing of it stays on a terminal's line."""
        self._clear_progress()
        self._progress = ""

    def error(self, error: ExoError, *, machine: bool = False) -> None:
        """`error:` with what failed, then its hints; as one line of JSON when a machine reads."""
        self._clear_progress()
        if machine:
            print(json_text({"error": described(error)}), file=self.err, flush=True)
            return
        first, *evidence = error.message.split("\n")
        lines = [
            f"{self._paint('error:', 31)} {visible(first)}",
            *(f"  {visible(line.removeprefix('  '))}" for line in evidence),
        ]
        lines += [f"{self._paint('hint:', 36)} {visible(hint)}" for hint in error.hints[:2]]
        print("\n".join(lines), file=self.err, flush=True)

    def _paint(self, word: str, color: int) -> str:
        return f"\x1b[{color}m{word}\x1b[0m" if wants_color(self.err, self.color, os.environ) else word

    @property
    def redraws(self) -> bool:
        """Whether a person sees stderr, on a terminal that can draw a line anew."""
        return self.err.isatty() and os.environ.get("TERM") != "dumb"

    def _clear_progress(self) -> None:
        if self._progress and self.redraws:
            self.err.write("\r\x1b[K")
            self.err.flush()
            self._progress = ""

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self.out.fileno() if self.out.isatty() else self.err.fileno()).columns or 80
        except (OSError, ValueError):
            return 80


def described(error: ExoError) -> dict[str, Any]:
    """An error as scripts get it."""
    return {
        "code": error.code,
        "exit": int(error.exit_code),
        "message": error.message,
        "hints": list(error.hints),
        "details": error.details,
    }


def _cells(text: str) -> int:
    """Columns that a text takes: wide letters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in {"W", "F"})
        for letter in text
    )


def cut(text: str, width: int) -> str:
    """The text in at most so many columns."""
    cells, kept = 0, 0
    for place, letter in enumerate(text):
        cells += _cells(letter)
        if cells < width:
            kept = place + 1
        elif cells > width:
            return text[:kept] + "…"
    return text


def fitted(text: str, width: int) -> str:
    """The text in so many columns: cut, or filled up."""
    text = cut(text, width)
    return text + " " * (width - _cells(text))


def _fit(rows: Sequence[tuple[str, ...]], elastic: frozenset[int], width: int | None) -> list[str]:
    if not rows:
        return []
    widths = [max(_cells(row[column]) for row in rows) for column in range(len(rows[0]))]
    if width is not None:
        over = sum(widths) + 2 * (len(widths) - 1) - width
        for column in sorted(elastic, key=lambda each: -widths[each]):
            taken = max(0, min(over, widths[column] - 8))
            widths[column] -= taken
            over -= taken
    lines: list[str] = []
    for row in rows:
        cells = [fitted(cell, widths[column]) for column, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return lines
