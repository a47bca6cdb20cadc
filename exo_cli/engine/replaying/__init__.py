"""Replaying: reading a recorded log and folding it, for `exo replay`. It never writes, and needs no node.

`source` says where a log lies and what it is, `feeding` brings it into the fold of `core.replay`, `questions` has what
is asked of it on the way.
"""

import shlex
from contextlib import closing

from exo_cli.engine.core.errors import BadDataError, ExitCode, NotFoundError
from exo_cli.engine.core.replay import Fold, RecordingFold
from exo_cli.engine.replaying.feeding import fold_lines, fold_recording
from exo_cli.engine.replaying.questions import Questions
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
) -> dict[str, object]:
    """The state that a log adds up to (at an index, negative from the end, or a time), what is wrong in it, the answers
    to questions, and the exit code: 12, 13 or 1 first.

    Raises:
        NotFoundError: no log there, or it has no such index; nothing is called as was asked.
        UsageError: a time, and the log has none.
        BadDataError: nothing at all, damage in the middle, an unknown event, a newer format.
    """
    questions = questions or Questions()
    with closing(Source(path)) as source:
        # A story is told with what is wrong about its subject.
        checked = check or questions.explain is not None
        fold = RecordingFold(check=checked) if source.is_recording else Fold(check=checked)
        point = questions.begin(fold, path, at)
        if isinstance(fold, RecordingFold):
            has_any = fold_recording(fold, source, Lenient(skip_bad, skip_unknown or not strict))
        else:
            has_any = fold_lines(fold, source, Lenient(skip_bad, skip_unknown))
    if not has_any:
        what, hint = ("stdin", "exo replay --help") if path == STANDARD_INPUT else (path, f"ls -l {shlex.quote(path)}")
        raise BadDataError(f"{what} holds no event log", hint)
    if point is not None and fold.state.index != point:
        raise _not_there(path, fold, point)
    item = fold.result()
    return {
        "revision": fold.state.index,
        "item": item | questions.answers(fold, item, path),
        "exit_code": int(_exit_code(fold, check, strict)),
    }


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
