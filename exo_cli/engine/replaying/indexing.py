"""Indexing: the sidecar of a long log, made by one pass over it while another process checks it."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from array import array
from contextlib import closing, suppress
from pathlib import Path

from exo_cli.engine.core.errors import BadDataError, NotFoundError
from exo_cli.engine.core.history import Placed, Thing, about, row
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.state import State
from exo_cli.engine.core.wire import BadLineError, Header
from exo_cli.engine.log.scan import Entry, Start
from exo_cli.engine.replaying.sidecar import BLOCK_ROWS, Checkpoint, Sidecar, identity_of, place_of, prune
from exo_cli.engine.replaying.source import Lenient, Source

# What takes less than this to fold is folded.
LONG_BYTES = 16 << 20
# A log that was written to a moment ago is written to again before the next question comes.
QUIET_SECONDS = 60.0
STRIDE = 4096
_POSTINGS = 1 << 18


class _UnfitError(Exception):
    """The log's records do not follow one another: it has no place for each, and no sidecar."""


class _Indexer:
    """What the pass collects; it is let go of piece by piece, so that its memory does not grow with the log."""

    def __init__(self, sidecar: Sidecar) -> None:
        self.sidecar = sidecar
        self.rows: list[dict[str, object]] = []
        self.postings: dict[Thing, array[int]] = {}
        self.latest = ""
        self.n_postings = 0
        self.next: int | None = None

    def see(self, state: State, placed: Placed, _size: int) -> None:
        if self.next is not None and placed.index != self.next:
            raise _UnfitError
        self.next = placed.index + 1
        told = row(state, placed)
        self.latest = max(self.latest, str(told["at"]))
        self.rows.append(told)
        for thing in dict.fromkeys(about(state, placed.event)):
            self.postings.setdefault(thing, array("q")).append(placed.index)
            self.n_postings += 1
        if len(self.rows) == BLOCK_ROWS:
            self.flush_rows()
        if self.n_postings >= _POSTINGS:
            self.flush_postings()

    def flush_rows(self) -> None:
        if self.rows:
            self.sidecar.add_block(int(str(self.rows[0]["index"])), self.rows)
            self.rows = []

    def flush_postings(self) -> None:
        self.sidecar.add_postings(self.postings)
        self.postings, self.n_postings = {}, 0

    def point(self, fold: Fold, seen: Entry) -> None:
        start = Start(seen.path, seen.offset + seen.size, seen.number, fold.state.index)
        self.sidecar.add_checkpoint(Checkpoint(start, self.latest, fold.mark(), fold.state.dump()))


def sidecar_of(source: Source, cache: Path) -> Sidecar | None:
    """The sidecar of a log, made if need be; None when the log is too short for one, or unfit, or written to."""
    files = source.files
    if source.is_recording or not files or sum(path.stat().st_size for path in files) < LONG_BYTES:
        return None
    place, identity = place_of(cache, files), identity_of(files)
    if (known := _opened(place, identity)) is not None:
        return known
    if _is_written_to(files):
        return None
    try:
        cache.mkdir(parents=True, exist_ok=True)
        draft = place.with_suffix(f".{os.getpid()}.tmp")
        try:
            if not _made(source, draft, identity) or identity_of(files) != identity:
                return None
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)
    except (OSError, sqlite3.Error, BadDataError, NotFoundError, BadLineError):
        return None  # no room for one, no folder, or a log of which only a part can be read
    prune(cache)
    return _opened(place, identity)


def _is_written_to(files: list[Path]) -> bool:
    # The clock of the files is the wall clock; a wrong guess costs time alone.
    now = time.clock_gettime(time.CLOCK_REALTIME)
    return now - max(path.stat().st_mtime for path in files) < QUIET_SECONDS


def _opened(place: Path, identity: str) -> Sidecar | None:
    if not place.is_file():
        return None
    sidecar = Sidecar(place)
    with suppress(sqlite3.Error):
        if sidecar.get("identity") == identity:
            os.utime(place)
            return sidecar
    sidecar.close()
    return None


def _made(source: Source, draft: Path, identity: str) -> bool:
    """Both passes, side by side; whether they came to their ends."""
    command = [sys.executable, "-P", "-m", "exo_cli.engine.replaying.checking", source.given]
    with closing(Sidecar(draft)) as sidecar, _begun(command) as checking:
        try:
            sidecar.make()
            _index(source, sidecar)
            told = checking.communicate()[0]
        except _UnfitError:
            return False
        finally:
            checking.kill()
        if checking.returncode != 0:
            return False
        for name, value in json.loads(told).items():
            sidecar.set(name, value)
        sidecar.set("identity", identity)
        sidecar.finish()
    return True


def _begun(command: list[str]) -> "subprocess.Popen[bytes]":
    # What it would say of damage, the one that indexes comes upon as well.
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _index(source: Source, sidecar: Sidecar) -> None:
    fold, indexer, last = Fold(), _Indexer(sidecar), None
    fold.watch(indexer.see)
    for seen in source.lines(Lenient(skip_bad=False, skip_unknown=False)):
        if type(seen) is Entry:
            fold.feed(seen.line, seen.size)
            if (not isinstance(seen.line, Header) and seen.line.index % STRIDE == 0) or last is None:
                indexer.point(fold, seen)
            last = seen
    if last is not None:
        indexer.point(fold, last)
    indexer.flush_rows()
    indexer.flush_postings()
