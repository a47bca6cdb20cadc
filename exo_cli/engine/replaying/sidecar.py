"""The sidecar of a long log: what makes questions to it immediate. It lies in the cache and may be deleted any time.

It holds states on the way (checkpoints), where each thing is spoken of (postings), each event as people see it (rows,
in packed blocks), and what the checks found. It is good for as long as the log's files are what they were: name,
length, time of change and inode of each.
"""

import hashlib
import json
import sqlite3
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from exo_cli import __version__
from exo_cli.engine.core.history import Thing
from exo_cli.engine.log.scan import Start

# One more with every change of what is kept between two releases: of marks, rows, or the rules behind the findings.
VERSION = 3
BLOCK_ROWS = 256
SIDECARS_KEPT = 8
_LEFT_SECONDS = 3600.0  # after which a draft belongs to nobody
_TABLES = """
CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE checkpoint (record INTEGER PRIMARY KEY, latest TEXT, path TEXT, start INTEGER, line INTEGER, mark TEXT,
    state BLOB);
CREATE TABLE block (first_record INTEGER PRIMARY KEY, rows BLOB);
CREATE TABLE posting (sort TEXT, name TEXT, records BLOB);
"""


class Checkpoint(NamedTuple):
    """A fold on its way: behind which line it is, the latest time that it has seen, its state, its mark."""

    start: Start
    latest: str
    mark: dict[str, Any]
    state: dict[str, Any]


def identity_of(files: Iterable[Path]) -> str:
    """What says that the files are those that they were."""
    stats = [(str(path), path.stat()) for path in files]
    return json.dumps(
        [VERSION, __version__, *([path, each.st_size, each.st_mtime_ns, each.st_ino] for path, each in stats)]
    )


def place_of(folder: Path, files: Iterable[Path]) -> Path:
    """Where the sidecar of such files lies."""
    first = next(iter(files), Path())
    return folder / f"{hashlib.sha256(str(first.absolute()).encode()).hexdigest()[:32]}.sqlite"


class Sidecar:
    """One, open for reading or just made. Raises sqlite3.Error for what is damaged."""

    def __init__(self, path: Path) -> None:
        """Open what is there; `make` begins an empty one."""
        self._packer, self._unpacker = (
            zstandard.ZstdCompressor(level=1, write_checksum=True),
            zstandard.ZstdDecompressor(),
        )
        self._path, self._base = path, sqlite3.connect(path, isolation_level=None)

    def make(self) -> None:
        """Begin with nothing in it. A crash in the middle leaves a draft, so nothing is synced."""
        self._base.execute("PRAGMA journal_mode = OFF")
        self._base.execute("PRAGMA synchronous = OFF")
        self._base.executescript(_TABLES)
        self._base.execute("BEGIN")

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    def discard(self) -> None:
        """Take the file away; it may still be read through this one."""
        self._path.unlink(missing_ok=True)

    def set(self, name: str, value: object) -> None:
        """Keep a fact."""
        self._base.execute("INSERT INTO fact VALUES (?, ?)", (name, json.dumps(value)))

    def get(self, name: str) -> Any:
        """A fact; None when it is not there."""
        found = self._base.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return None if found is None else json.loads(found[0])

    def add_checkpoint(self, point: Checkpoint) -> None:
        """Keep one."""
        start, state = point.start, self._pack(point.state)
        values = (start.record, point.latest, start.path, start.offset, start.number, json.dumps(point.mark), state)
        self._base.execute("INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def add_block(self, first_record: int, rows: list[dict[str, object]]) -> None:
        """Keep the rows of BLOCK_ROWS records on end."""
        self._base.execute("INSERT INTO block VALUES (?, ?)", (first_record, self._pack(rows)))

    def add_postings(self, postings: dict[Thing, "array[int]"]) -> None:
        """Keep at which records each thing is spoken of."""
        rows = ((sort, name, records.tobytes()) for (sort, name), records in postings.items())
        self._base.executemany("INSERT INTO posting VALUES (?, ?, ?)", rows)

    def finish(self) -> None:
        """All is in: make it ready to be asked."""
        self._base.execute("CREATE INDEX of_name ON posting (name)")
        self._base.execute("COMMIT")

    def before(self, *, record: int | None = None, time: str | None = None) -> Checkpoint | None:
        """The last checkpoint that is not behind a record, or had seen nothing later than a time; else the last."""
        query = "SELECT record, latest, path, start, line, mark, state FROM checkpoint"
        order = " ORDER BY record DESC LIMIT 1"
        if record is not None:
            found = self._base.execute(f"{query} WHERE record <= ?{order}", (record,)).fetchone()
        elif time is not None:
            found = self._base.execute(f"{query} WHERE latest <= ?{order}", (time,)).fetchone()
        else:
            found = self._base.execute(query + order).fetchone()
        if found is None:
            return None
        start = Start(found[2], found[3], found[4], found[0])
        return Checkpoint(start, found[1], json.loads(found[5]), self._unpack(found[6]))

    def postings(self, beginning: str) -> dict[Thing, "array[int]"]:
        """The things whose name begins so, in the order in which they were first spoken of."""
        found: dict[Thing, array[int]] = {}
        where = "WHERE name >= ? AND name < ? ORDER BY rowid"
        for sort, name, data in self._base.execute(
            f"SELECT sort, name, records FROM posting {where}", (beginning, beginning + "\U0010ffff")
        ):
            found.setdefault((sort, name), array("q")).frombytes(data)
        return found

    def rows(self, records: Iterable[int]) -> Iterator[dict[str, object]]:
        """The rows of some records, which are in order."""
        first, rows = -1, list[dict[str, object]]()
        for record in records:
            if not first <= record < first + len(rows):
                where = "WHERE first_record <= ? ORDER BY first_record DESC LIMIT 1"
                first, data = self._base.execute(f"SELECT first_record, rows FROM block {where}", (record,)).fetchone()
                rows = self._unpack(data)
            yield rows[record - first]

    def _pack(self, value: object) -> bytes:
        return self._packer.compress(json.dumps(value, separators=(",", ":")).encode())

    def _unpack(self, data: bytes) -> Any:
        return json.loads(self._unpacker.decompress(data))


def prune(folder: Path) -> None:
    """Take away the sidecars that were not asked for the longest."""
    with suppress(OSError):
        now = time.clock_gettime(time.CLOCK_REALTIME)  # the clock of the files
        for draft in folder.glob("*.tmp"):
            if now - draft.stat().st_mtime > _LEFT_SECONDS:
                draft.unlink()  # of a process that was killed while it made one
        known = sorted(folder.glob("*.sqlite"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in known[SIDECARS_KEPT:]:
            path.unlink()
