"""Making a file or a folder once, although several processes may want it at the same time.

It knows locks and renames; it does not know what is made. A target is either absent or whole.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """`target`, made by `make(draft)` if it is not there yet; the draft is renamed to the target when it is whole."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        # Whoever held the lock and left a draft behind was killed: the lock says that nobody works on it.
        for stale in target.parent.glob(f".{target.name}.draft-*"):
            shutil.rmtree(stale, ignore_errors=True)
        room = Path(tempfile.mkdtemp(prefix=f".{target.name}.draft-", dir=target.parent))
        try:
            make(room / target.name)
            (room / target.name).rename(target)
        finally:
            shutil.rmtree(room, ignore_errors=True)
    return target
