"""Replaying: reading a recorded log and folding it, for `exo replay`. It never writes, and needs no node.

`source` says where a log lies and what it is, `feeding` brings it into the fold of `core.replay`, `questions` has what
is asked of it on the way.
"""

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import zstandard

from exo_cli.engine.core.agreement import differences
from exo_cli.engine.core.errors import BadDataError, ExitCode, NotFoundError
from exo_cli.engine.core.items import moment
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.state import load
from exo_cli.engine.paths.target import shown
from exo_cli.engine.replaying.feeding import fold_lines, fold_of, fold_source
from exo_cli.engine.replaying.indexing import sidecar_of
from exo_cli.engine.replaying.parts import fold_in_parts
from exo_cli.engine.replaying.questions import Questions, moment_in, no_times
from exo_cli.engine.replaying.remote import Remote
from exo_cli.engine.replaying.sidecar import Sidecar
from exo_cli.engine.replaying.source import STANDARD_INPUT, Lenient, Source


def replay(
    path: str,
    *,
    at: int | str | None = None,
    check: bool = False,
    strict: bool = False,
    skip_bad: bool = False,
    skip_unknown: bool = False,
    questions: Questions | None = None,
    cache: Path | None = None,
) -> dict[str, object]:
    """The state that a log adds up to (at an index, negative from the end, or a time), what is wrong in it, the answers
    to questions, and the exit code: 12, 13 or 1 first. In `cache` the sidecars of long logs lie.

    Raises:
        NotFoundError: no log there, or it has no such index; nothing is called as was asked.
        UsageError: a time, and the log has none.
        BadDataError: nothing at all, damage in the middle, an unknown event, a newer format.
    """
    questions = questions or Questions()
    at = questions.settle(path, at)
    is_quick = questions.are_quick(at) and not (check or skip_bad or skip_unknown)
    with Source(path) as source:
        if is_quick and cache is not None and (sidecar := sidecar_of(source, cache)) is not None:
            with closing(sidecar):
                try:
                    return _quickly(source, sidecar, path, at, questions, strict=strict)
                except (sqlite3.Error, zstandard.ZstdError, ValueError):
                    sidecar.discard()  # damaged in the middle, which shows when that is read: the log itself is there
        is_plain = questions.are_plain(at) and not (check or skip_bad or skip_unknown)
        if is_plain and (fold := fold_in_parts(source)) is not None:
            questions.begin(fold, at)
            return _answer(fold, fold.result(), questions, path, _exit_code(fold, check=False, strict=strict))
        if source.remote is not None and at is None and source.remote.index >= 0:
            at = source.remote.index  # its log may have grown since it told its state
        # A story is told with what is wrong about its subject, and lanes are drawn with it.
        checked = check or questions.lanes or questions.explain is not None
        fold = fold_of(source, check=checked)
        point = questions.begin(fold, at)
        has_any = fold_source(fold, source, Lenient(skip_bad, skip_unknown), strict=strict)
    if isinstance(at, str) and not fold.timed:
        raise no_times()
    if not has_any:
        what, hint = ("stdin", "exo replay --help") if path == STANDARD_INPUT else (path, f"ls -l {shlex.quote(path)}")
        raise BadDataError(f"{what} holds no event log", hint)
    if source.remote is not None and fold.state.index < source.remote.index and fold.state.index != point:
        raise source.remote.cut_off(fold.state.index)
    if point is not None and fold.state.index != point:
        raise _not_there(path, fold, point)
    item, code = fold.result(), _exit_code(fold, check, strict)
    if source.remote is not None and fold.state.index == source.remote.index:
        item["compared"] = _compared(fold, source.remote)
        code = ExitCode.DIFFERS if item["compared"] else code
    return _answer(fold, item, questions, path, code)


def _compared(fold: Fold, remote: Remote) -> list[dict[str, object]]:
    """Where our state is not what a running system says that its own is."""
    try:
        return differences(fold.state, remote.state)
    except ValueError as error:
        raise remote.not_it("/state", str(error)) from None


def _quickly(
    source: Source, sidecar: Sidecar, path: str, at: int | str | None, questions: Questions, *, strict: bool
) -> dict[str, object]:
    """The same, from the nearest state that the sidecar has."""
    fold = Fold()
    point = questions.begin(fold, at)
    time = moment(moment_in(at)) if isinstance(at, str) else None
    checkpoint = sidecar.before(record=point, time=time)
    if checkpoint is None:
        raise NotFoundError(f"the log {path} has nothing at {at}", f"exo replay {shlex.quote(path)}")
    fold.resume(load(checkpoint.state), checkpoint.mark)
    questions.recall(sidecar)
    fold_lines(fold, source, Lenient(skip_bad=False, skip_unknown=False), checkpoint.start)
    if point is not None and fold.state.index != point:
        raise _not_there(path, fold, point)
    item = fold.result()
    if questions.explain is not None:
        item |= {name: sidecar.get(name) for name in ("findings", "notes")}
    return _answer(fold, item, questions, path, _exit_code(fold, check=False, strict=strict))


def _answer(
    fold: Fold, item: dict[str, object], questions: Questions, path: str, exit_code: ExitCode
) -> dict[str, object]:
    answers = questions.answers(fold, item, path)
    return {"revision": fold.state.index, "item": item | answers, "exit_code": int(exit_code)}


def _not_there(path: str, fold: Fold, at: int) -> NotFoundError:
    if fold.first_index is None and fold.state.index > at:
        return NotFoundError(
            f"the log {path} begins at record {fold.state.index + 1}, after {at}", f"exo replay {shown(path)}"
        )
    return NotFoundError(
        f"the log {path} has no record {at}, its last one is {fold.state.index}", f"exo replay {shown(path)}"
    )


def _exit_code(fold: Fold, check: bool, strict: bool) -> ExitCode:
    """The first that holds, of: a torn tail where none may be, another state than recorded, findings."""
    if strict and fold.torn_tail is not None:
        return ExitCode.BAD_DATA
    if fold.diverged:
        return ExitCode.DIVERGED
    if check and fold.findings.is_grave:
        return ExitCode.FAILED
    return ExitCode.OK
