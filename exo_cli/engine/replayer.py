"""Replayer: reading a recorded log and folding it, for `exo replay`. It never writes, and needs no node.

It says where a log lies (a file, a folder of segments, what a node calls home, or the standard input) and with what
exit code a replay ends; what is in the log is `core.replay`'s.
"""

import shlex
import sys
from pathlib import Path
from typing import BinaryIO, assert_never

from exo_cli.engine.core.errors import BadDataError, ExitCode, NotFoundError
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.wire import BadLineError
from exo_cli.engine.log.scan import Entry, Seen, Skipped, Torn, scan, segments_of

STANDARD_INPUT = "-"
# Below a node's home (EXO_HOME), below its data folder, or the folder itself.
_LOG_FOLDERS = ("", "log", "data/log")


def replay(
    path: str,
    *,
    at: int | None = None,
    check: bool = False,
    strict: bool = False,
    skip_bad: bool = False,
    skip_unknown: bool = False,
) -> dict[str, object]:
    """The state that a log adds up to (at index `at`), what is wrong in it, and the exit code: 12, 13 or 1 first.

    Raises:
        NotFoundError: no log there, or it has no such index.
        BadDataError: nothing at all, damage in the middle, an unknown event, a newer format.
    """
    fold = Fold(check=check)
    if at is not None:
        fold.stop_at(at)
    feed, is_empty = fold.feed, True
    for seen in scan(_source(path), skip_bad=skip_bad, skip_unknown=skip_unknown):
        if type(seen) is Entry:
            try:
                feed(seen.line)
            except BadLineError as error:
                if not skip_bad:
                    raise _damaged(seen, error) from None
                fold.skip(unknown=False)
        else:
            _pass(fold, seen)
        is_empty = is_empty and type(seen) is Torn and not seen.bytes
        if fold.is_done:
            break
    if is_empty:
        what, hint = ("stdin", "exo replay --help") if path == STANDARD_INPUT else (path, f"ls -l {shlex.quote(path)}")
        raise BadDataError(f"{what} holds no event log: it is empty", hint)
    if at is not None and fold.state.index != at:
        raise _not_there(path, fold, at)
    return {"revision": fold.state.index, "item": fold.result(), "exit_code": int(_exit_code(fold, check, strict))}


def _source(path: str) -> Path | BinaryIO:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    given = Path(path)
    if not given.is_dir():
        return given
    folders = [given / each for each in _LOG_FOLDERS]
    found = next((each for each in folders if each.is_dir() and segments_of(each)), None)
    if found is None:
        raise NotFoundError(f"there is no log in {given}", "exo node show")
    return found


def _pass(fold: Fold, seen: Seen) -> None:
    match seen:
        case Torn():
            fold.tear(seen.path, seen.offset, seen.bytes)
        case Skipped():
            fold.skip(unknown=seen.unknown)
        case Entry():
            fold.feed(seen.line)
        case _:
            assert_never(seen)


def _damaged(seen: Entry, error: BadLineError) -> BadDataError:
    details: dict[str, object] = {"path": seen.path, "line": seen.number, "byte": seen.offset}
    place = f"{seen.path}: line {seen.number}, byte {seen.offset}"
    return BadDataError(f"{place} cannot be used: {error}", f"exo replay --skip-bad {seen.path}", details=details)


def _not_there(path: str, fold: Fold, at: int) -> NotFoundError:
    if fold.first_index is None and fold.state.index > at:
        return NotFoundError(
            f"the log {path} begins at record {fold.state.index + 1}, after {at}", f"exo replay {path}"
        )
    return NotFoundError(f"the log {path} has no record {at}, its last one is {fold.state.index}", f"exo replay {path}")


def _exit_code(fold: Fold, check: bool, strict: bool) -> ExitCode:
    """The first that holds, of: a torn tail where none may be, another state than recorded, findings."""
    if strict and fold.torn_tail is not None:
        return ExitCode.BAD_DATA
    if fold.diverged:
        return ExitCode.DIVERGED
    if check and fold.findings.is_grave:
        return ExitCode.FAILED
    return ExitCode.OK
