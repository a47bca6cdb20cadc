"""Parts: the plain fold of a long log in several processes, each over some segments, from the snapshot at their head.

That is an answer only when the parts fit together: each ends, by index and hash, where the next one's header begins.
Otherwise there is something to be told, and the log is folded as ever, one record after another.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from exo_cli.engine.core.errors import ExoError
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.state import load
from exo_cli.engine.core.wire import BadLineError, Header
from exo_cli.engine.log.scan import Entry, Torn, scan
from exo_cli.engine.replaying.source import Source

# Below this, starting processes takes as long as they spare.
LONG_BYTES = 48 << 20
_PARTS_MAX = 8


def fold_in_parts(source: Source) -> Fold | None:
    """The fold of a whole log; None where it does not pay, or something in it has to be told."""
    files = source.files
    n_parts = min(os.cpu_count() or 1, _PARTS_MAX, len(files) // 2)
    if source.folder is None or n_parts < 2 or _unpacked_bytes(files) < LONG_BYTES:
        return None
    borders = [len(files) * each // n_parts for each in range(n_parts + 1)]
    # Each part is told the file behind it too: its header is what the part has to come to.
    parts = [files[start : end + 1] for start, end in pairwise(borders)]
    told = _run([list(map(str, part)) for part in parts])
    return None if told is None else _joined(told)


def _unpacked_bytes(files: Sequence[Path]) -> int:
    """A guess: records pack to a tenth."""
    return sum(path.stat().st_size * (10 if path.suffix == ".zst" else 1) for path in files)


def _run(parts: Sequence[Sequence[str]]) -> list[dict[str, Any]] | None:
    with ExitStack() as stack:
        processes: list[subprocess.Popen[bytes]] = []
        for number, part in enumerate(parts):
            last = ["--last"] if number == len(parts) - 1 else []
            command = [sys.executable, "-P", "-m", "exo_cli.engine.replaying.parts", *last, *part]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        answers = [process.communicate()[0] for process in processes]
        if any(process.returncode for process in processes):
            return None
    return [json.loads(answer) for answer in answers]


def _joined(told: Sequence[dict[str, Any]]) -> Fold:
    """The fold of the last part, with what the others counted."""
    fold, mark = Fold(), told[-1]["mark"]
    marks = [each["mark"] for each in told]
    mark |= {
        "events": sum(each["events"] for each in marks),
        "first_index": next((each["first_index"] for each in marks if each["events"]), None),
        "last_at": next((each["last_at"] for each in reversed(marks) if each["last_at"]), None),
    }
    fold.resume(load(told[-1]["state"]), mark)
    if (torn := told[-1]["torn_tail"]) is not None:
        fold.tear(torn["path"], torn["offset"], torn["bytes"])
    return fold


def fold_part(files: Sequence[Path], *, is_last: bool) -> dict[str, Any] | None:
    """One part; None when something in it has to be told. Of the file behind it (of none, when it is the last) only the
    header is looked at.
    """
    fold = Fold()
    for number, path in enumerate(files):
        is_behind = not is_last and number == len(files) - 1
        for seen in scan(path):
            if isinstance(seen, Torn):
                if not (is_last and number == len(files) - 1):
                    return None
                fold.tear(seen.path, seen.offset, seen.bytes)
            elif isinstance(seen, Entry):
                fold.feed(seen.line, seen.size)
                if is_behind and isinstance(seen.line, Header):
                    break
    item = fold.result()
    if item["findings"] or fold.diverged:
        return None
    return {"mark": fold.mark(), "state": item["state"], "torn_tail": fold.torn_tail}


def main(words: Sequence[str]) -> int:
    """Print what a part came to as JSON."""
    is_last = words[0] == "--last"
    try:
        told = fold_part([Path(each) for each in words[is_last:]], is_last=is_last)
    except (ExoError, BadLineError, OSError):
        return 1
    if told is None:
        return 1
    json.dump(told, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
