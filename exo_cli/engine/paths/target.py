"""The file that somebody asked an answer to be put into: whole or not there at all, and for this user alone."""

import os
import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from exo_cli.engine.core.errors import FailedError, UsageError


def refuse_existing(path: Path, hint: str, why: str = "") -> None:
    """Raises UsageError for what is there already, FailedError where nothing can be put."""
    if os.path.lexists(path):
        raise UsageError(f"{shown(path)} is there already{why}: it is left as it is", hint)
    if not path.absolute().parent.is_dir():
        raise unwritable(path, "there is no such folder")


def shown(path: Path | str) -> str:
    """A path as it can be typed again."""
    return shlex.quote(str(path))


def unwritable(path: Path, why: str) -> FailedError:
    """The error for a file that cannot be written."""
    folder = shlex.quote(str(path.absolute().parent))
    return FailedError(f"{shown(path)} cannot be written: {why}", f"ls -ld {folder}", f"df {folder}")


@contextmanager
def whole_file(path: Path, *, replace: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which gets its name when the block ends well; with `replace` another one gives way to it.

    Raises:
        UsageError: without `replace`: there is one.
        FailedError: it cannot be written.
    """
    draft = path.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
        if not replace:
            refuse_existing(path, f"ls -l {shown(path)}")
        draft.replace(path)
    except OSError as error:
        raise unwritable(path, error.strerror or str(error)) from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
