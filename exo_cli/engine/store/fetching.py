"""Bringing the files of a repository into a folder. Only the hub process imports this; it may be killed at any time.

A manifest says first what is to come. A file grows as `.NAME.partial` and gets its name when it is whole, so that what
is there is whole; the next process goes on where the partial file ends.
"""

import fcntl
import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from exo_cli.engine.core.errors import FailedError
from exo_cli.engine.store.files import MANIFEST, missing_files, read_json
from exo_cli.engine.store.listing import Listing, listing, transfer

Say = Callable[[int, int], None]
_SAY_SECONDS = 0.1


def bring_all(name: str, folder: Path, say: Say) -> None:
    """Bring all wanted files; one process at a time, a second one waits and then finds them. `say(here, total)`."""
    if folder.is_symlink():
        raise FailedError(f"{folder} is a link; nothing is fetched through links", details={"permanent": True})
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / MANIFEST).is_file() and not missing_files(folder):
            return
        wanted = _recorded(folder) or _begun(name, folder)
        missing = missing_files(folder)
        partial_bytes = sum(path.stat().st_size for path in folder.glob(".*.partial"))
        here = _Here(wanted, missing, say)
        needed, free = wanted.total_bytes - here.count - partial_bytes, shutil.disk_usage(folder).free
        if needed > free:
            raise no_space(name, folder, f"needs {needed} bytes, {free} are free")
        for file in missing:
            _bring(folder, wanted, file, here)


def no_space(name: str, folder: Path | None, why: str) -> FailedError:
    """The disk is full, or would be."""
    details: dict[str, object] = {"permanent": True, "path": str(folder)}
    return FailedError(f"no room for {name} in {folder}: {why}", f"df -h {folder}", code="no_space", details=details)


class _Here:
    """How many bytes are here, told when there are more, ten times a second at most."""

    def __init__(self, wanted: Listing, missing: list[str], say: Say) -> None:
        self._say, self._total, self._said_at = say, wanted.total_bytes, 0.0
        self.count = sum(size for file, size in wanted.files.items() if file not in missing)

    def add(self, count: int) -> None:
        """`count` more; fewer when a file is begun anew."""
        self.count += count
        if count > 0 and (time.monotonic() - self._said_at >= _SAY_SECONDS or self.count >= self._total):
            self._said_at = time.monotonic()
            self._say(min(self.count, self._total), self._total)


def _recorded(folder: Path) -> Listing | None:
    """What an earlier fetch wrote down: it is gone on with, even if the repository has moved on since."""
    try:
        return Listing(**read_json(folder / MANIFEST))  # type: ignore[arg-type] # our own file, checked by use
    except (OSError, ValueError, TypeError):
        return None


def _begun(name: str, folder: Path) -> Listing:
    """Write down what is to come. Files that somebody copied here stay where a hash proves them."""
    wanted = listing(name)
    for file in wanted.files:
        found = folder / file
        if found.exists() and not (file in wanted.hashes and _is_intact(found, wanted.hashes[file])):
            found.unlink()
    for partial in folder.glob(".*.partial"):
        partial.unlink()
    fresh = folder / f"{MANIFEST}.new"
    fresh.write_text(json.dumps(asdict(wanted)))
    fresh.replace(folder / MANIFEST)
    return wanted


def _bring(folder: Path, wanted: Listing, file: str, here: _Here) -> None:
    partial, size = folder / f".{file}.partial", wanted.files[file]
    if partial.exists() and partial.stat().st_size > size:
        partial.unlink()
    for _ in range(2):
        with partial.open("ab") as target:
            there_bytes = target.tell()
            here.add(there_bytes)
            try:
                transfer(wanted, file, target, there_bytes, here.add)
            except Exception as error:
                if there_bytes == 0 or getattr(getattr(error, "response", None), "status_code", 0) != 416:
                    raise
        if partial.stat().st_size == size and _is_intact(partial, wanted.hashes.get(file)):
            partial.replace(folder / file)
            return
        # What was there does not belong to this file: once more from its beginning.
        here.add(-partial.stat().st_size)
        partial.unlink()
    raise FailedError(f"{wanted.repository}: {file} arrived damaged twice", details={"permanent": False})


def _is_intact(file: Path, sha256: str | None) -> bool:
    if sha256 is None:
        return True
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == sha256
