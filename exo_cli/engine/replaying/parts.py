"""Parts: the plain fold of a long log in several processes, each over some segments, from the snapshot at their head.

That is an answer only when the parts fit together: each ends, by index and hash, where the next one's header begins.
Otherwise there is something to be told, and the log is folded as ever, one record after another.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from exo_cli.engine.core.errors import ExoError
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.state import load
from exo_cli.engine.core.wire import BadLineError, Header
from exo_cli.engine.log.scan import Entry, Torn, scan
from exo_cli.engine.log.sources import PACKED
from exo_cli.engine.probe import cores
from exo_cli.engine.replaying.source import Source

# Below this, starting processes takes as long as they spare.
LONG_BYTES = 48 << 20
_PARTS_MAX = 8
_TICK_RECORDS = 4096


def fold_in_parts(source: Source) -> Fold | None:
    """The fold of a whole log; None where it does not pay, or something in it has to be told."""
    if source.folder is None or len(source.files) < 4:
        return None
    files = source.files
    sizes = [_unpacked_bytes(path) for path in files]
    n_parts = min(cores(), _PARTS_MAX, len(files) // 2)
    if n_parts < 2 or sum(sizes) < LONG_BYTES:
        return None
    ends = [each * n_parts // (sum(sizes) + 1) for each in accumulate(sizes)]
    borders = [0, *(ends.index(number) for number in range(1, n_parts) if number in ends), len(files)]
    # Each part is told the file behind it too: its header is what the part has to come to.
    parts = [list(map(str, files[start : end + 1])) for start, end in pairwise(borders)]
    told = _run(parts)
    return None if told is None else _joined(told)


def _unpacked_bytes(path: Path) -> int:
    """A guess: records pack to a tenth."""
    return path.stat().st_size * (10 if path.suffix == PACKED else 1)


def _run(parts: Sequence[Sequence[str]]) -> list[dict[str, Any]] | None:
    """What each part came to; None when one has something to tell, or no process can be had for it."""
    with ExitStack() as stack:
        answers = [stack.enter_context(tempfile.TemporaryFile()) for _ in parts]
        ticks, tick = os.pipe()
        stack.callback(os.close, ticks)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for number, (part, answer) in enumerate(zip(parts, answers, strict=True)):
                words = [str(tick), "--last" if number == len(parts) - 1 else "--not-last", *part]
                command = [sys.executable, "-P", "-m", "exo_cli.engine.replaying.parts", *words]
                process = subprocess.Popen(command, stdout=answer, stderr=subprocess.DEVNULL, pass_fds=[tick])
                stack.callback(process.wait)
                stack.callback(process.kill)
                processes.append(process)
        except OSError:
            return None
        finally:
            os.close(tick)
        _tell_progress(ticks)
        if any(process.wait() for process in processes):
            return None
        for answer in answers:
            answer.seek(0)
        return [json.load(answer) for answer in answers]


def _tell_progress(ticks: int) -> None:
    """Until all of them have ended: a byte comes for every so many records that one has read."""
    n_ticks = 0
    while came := os.read(ticks, 4096):
        n_ticks += len(came)
        if Source.on_progress is not None:
            Source.on_progress(n_ticks * _TICK_RECORDS, None)


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


def fold_part(files: Sequence[Path], *, is_last: bool, tick: Callable[[], object]) -> dict[str, Any] | None:
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
                if not seen.number % _TICK_RECORDS:
                    tick()
                if is_behind and isinstance(seen.line, Header):
                    break
    item = fold.result()
    if item["findings"] or fold.diverged:
        return None
    return {"mark": fold.mark(), "state": item["state"], "torn_tail": fold.torn_tail}


def main(words: Sequence[str]) -> int:
    """Print what a part came to as JSON; a byte into the pipe that is named first for every so many records."""
    pipe, last, *files = words
    try:
        told = fold_part(
            [Path(each) for each in files], is_last=last == "--last", tick=lambda: os.write(int(pipe), b".")
        )
    except (ExoError, BadLineError, OSError):
        return 1
    if told is None:
        return 1
    json.dump(told, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
