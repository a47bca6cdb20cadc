"""Keeping: a page put into a file, whole or not at all, and never in place of anything but a page of ours."""

import os
import secrets
import shlex
from pathlib import Path
from typing import NoReturn

from exo_cli.engine.core.errors import FailedError, UsageError
from exo_cli.engine.log.scan import segments_of
from exo_cli.replay_page import MARK


def refuse_what_is_there(file: str, logs: tuple[str, ...]) -> None:
    """See that a page may be put there, which is better said before a long log is read.

    Raises:
        UsageError: a folder, a log, something that no page of ours is.
        FailedError: it cannot be looked at.
    """
    target = Path(os.path.realpath(file))
    elsewhere = "exo replay LOG --html other.html"
    try:
        if any(each.exists() and target.exists() and target.samefile(each) for each in map(Path, logs)):
            raise UsageError(f"{file} is the log itself", elsewhere)
        if target.is_dir():
            raise UsageError(
                f"{file} is a folder", f"exo replay LOG --html {shlex.quote(str(Path(file) / 'log.html'))}"
            )
        if target.parent.is_dir() and segments_of(target.parent):
            raise UsageError(
                f"{target.parent} is the folder of an event log, and nothing else belongs there", elsewhere
            )
        if target.exists() and not (target.is_file() and _is_page(target)):
            raise UsageError(f"{file} is there already, and is no page of exo replay: it is left as it is", elsewhere)
    except OSError as error:
        _fail(file, error)


def keep(page: str, file: str, logs: tuple[str, ...]) -> None:
    """Write it beside the file and rename it. Raises as above."""
    refuse_what_is_there(file, logs)
    target = Path(os.path.realpath(file))
    draft = target.with_name(f".exo-page-{secrets.token_hex(8)}")
    try:
        try:
            with draft.open("x", encoding="ascii") as stream:
                stream.write(page)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        _fail(file, error)


def _is_page(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(MARK)) == MARK


def _fail(file: str, error: OSError) -> NoReturn:
    folder = shlex.quote(str(Path(file).parent))
    raise FailedError(
        f"{file} cannot be written: {error.strerror or error}", f"ls -ld {folder}", f"df {folder}"
    ) from None
