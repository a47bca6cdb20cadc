"""The journal: what a node did and refused, beside the log and never replicated. It shows what never reached the log.

Lines are JSON objects with `at`, `kind` and plain fields. It is a ring of two files, each of half the limit: when the
current one is full it takes the place of the older. Nothing is synced, and lines wait up to a second in memory: a
crash may cost the last second. A journal that cannot be written costs the node nothing but the lines (`lost` counts).

What is noted is the caller's choice and must hold no prompt or answer; each field is cut to 500 characters here.
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

FIELD_CHARACTERS = 500
_FLUSH_SECONDS = 1.0
_FLUSH_BYTES = 64 << 10
_COUNTS_SECONDS = 60.0
_KEYS = 256


def _wall_clock() -> datetime:
    # It labels lines for people; nothing is decided by it.
    return datetime.fromtimestamp(time.clock_gettime(time.CLOCK_REALTIME), UTC)


class Journal:
    """One node's journal, open for writing."""

    def __init__(
        self, folder: Path, limit_bytes: int = 16 << 20, *, clock: Callable[[], datetime] = _wall_clock
    ) -> None:
        """Write into `folder`, which is made when the first lines are written."""
        self.current = folder / "journal.jsonl"
        self.older = folder / "journal.older.jsonl"
        self.lost = 0
        self._half_bytes = limit_bytes // 2
        self._clock = clock
        self._file: BinaryIO | None = None
        self._size = 0
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self._flushed = time.monotonic()
        self._counts: Counter[str] = Counter()
        self._counts_since: float | None = None

    def note(self, kind: str, **fields: object) -> None:
        """Keep a line. Never raises and seldom writes: see `flush`."""
        try:
            at = self._clock().isoformat(timespec="milliseconds").replace("+00:00", "Z")
            plain = {"at": at, "kind": kind} | {name: _short(value) for name, value in fields.items()}
            line = json.dumps(plain, separators=(",", ":")).encode() + b"\n"
        except (ValueError, TypeError, RecursionError):
            self.lost += 1
            return
        self._lines.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes >= _FLUSH_BYTES or time.monotonic() - self._flushed >= _FLUSH_SECONDS:
            self.flush()

    def count(self, key: str) -> None:
        """Count what is too frequent for a line of its own."""
        # Keys may come from other nodes' mistakes; they cannot be without end.
        self._counts[key if key in self._counts or len(self._counts) < _KEYS else "other"] += 1

    def flush_counts(self, now: float) -> None:
        """Note the counts when a minute has passed (`now` in seconds, of any clock), and write what waits.

        Call it at every tick: it is also what brings the last lines before a silence to the disk.
        """
        if self._counts_since is None:
            self._counts_since = now
        if self._counts and now - self._counts_since >= _COUNTS_SECONDS:
            self._note_counts(now - self._counts_since)
            self._counts_since = now
        if self._lines and time.monotonic() - self._flushed >= _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what waits. What cannot be written is dropped and counted in `lost`."""
        lines, self._lines, self._waiting_bytes = self._lines, [], 0
        self._flushed = time.monotonic()
        for number, line in enumerate(lines):
            try:
                self._write(line)
            except OSError:
                self.lost += len(lines) - number
                self._let_go()
                return
        try:
            if self._file is not None:
                self._file.flush()
        except OSError:
            self.lost += len(lines)
            self._let_go()

    def close(self) -> None:
        """Write what waits, the counts included, and let go of the file."""
        if self._counts:
            self._note_counts(None)
        self.flush()
        self._let_go()

    def _note_counts(self, seconds: float | None) -> None:
        counts, self._counts = self._counts, Counter()
        self.note("counts", seconds=seconds, **{f"n_{key[:100]}": number for key, number in counts.items()})

    def _write(self, line: bytes) -> None:
        if self._file is None:
            self._open()
        if self._size and self._size + len(line) > self._half_bytes:
            self._let_go()
            self.current.replace(self.older)
            self._open()
        assert self._file is not None, "just opened"
        self._file.write(line)
        self._size += len(line)

    def _open(self) -> None:
        self.current.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = self.current.open("a+b")
        self._size = self._file.tell()
        if self._size:
            self._file.seek(-1, 2)
            if self._file.read(1) != b"\n":  # a crash cut the last line
                self._file.write(b"\n")
                self._size += 1

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


def _short(value: object) -> object:
    if isinstance(value, str):
        return _cut(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    text = json.dumps(value, separators=(",", ":"), default=str)
    return json.loads(text) if len(text) <= FIELD_CHARACTERS else _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= FIELD_CHARACTERS else text[: FIELD_CHARACTERS - 1] + "…"
