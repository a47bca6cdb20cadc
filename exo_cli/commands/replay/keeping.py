"""Keeping: a page put into a file, and never in place of anything but a page of ours."""

import os
from pathlib import Path

from exo_cli.engine.core.errors import UsageError
from exo_cli.engine.log.scan import refuse_beside_segments
from exo_cli.engine.paths.target import refuse_existing, shown, unwritable, whole_file
from exo_cli.replay_page import MARK

_ELSEWHERE = "exo replay LOG --html other.html"


def refuse_what_is_there(file: str, logs: tuple[str, ...]) -> None:
    """See that a page may be put there, which is better said before a long log is read.

    Raises:
        UsageError: a folder, a log, something that no page of ours is.
        FailedError: it cannot be looked at.
    """
    target = Path(os.path.realpath(file))
    try:
        if any(each.exists() and target.exists() and target.samefile(each) for each in map(Path, logs)):
            raise UsageError(f"{shown(target)} is the log itself", _ELSEWHERE)
        if target.is_dir():
            raise UsageError(f"{shown(target)} is a folder", f"exo replay LOG --html {shown(target / 'log.html')}")
        refuse_beside_segments(target)
        if not (target.is_file() and _is_page(target)):
            refuse_existing(target, _ELSEWHERE, ", and is no page of exo replay")
    except OSError as error:
        raise unwritable(target, error.strerror or str(error)) from None


def keep(page: str, file: str, logs: tuple[str, ...]) -> None:
    """Write it. Raises as above."""
    refuse_what_is_there(file, logs)
    with whole_file(Path(os.path.realpath(file)), replace=True) as stream:
        stream.write(page.encode("ascii"))


def _is_page(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(MARK)) == MARK
