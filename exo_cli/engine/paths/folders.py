"""Folders of this program: making them, judging them, and what is said when the system refuses.

The error classes are imported where they are used: every command imports this module.
"""

import errno
import os
import stat
from pathlib import Path

TYPE_CHECKING = False  # typing itself is kept out of every command's way
if TYPE_CHECKING:
    from exo_cli.engine.core.errors import ExoError

_OWN_HOME = "export EXO_HOME=$HOME/exo"


def unusable(path: Path, error: OSError, what: str = "cannot use") -> "ExoError":
    """The error for a folder or file of ours that the system refuses: it is something else, is forbidden, or failed."""
    from exo_cli.engine.core.errors import AuthError, FailedError, UsageError

    message = f"{what} {path}: {error.strerror}"
    if isinstance(error, NotADirectoryError | FileExistsError | IsADirectoryError):
        return UsageError(message, f"ls -ld {path}")
    # A folder that cannot be made because one above it is missing all the same: /proc and the like.
    if isinstance(error, PermissionError | FileNotFoundError) or error.errno == errno.EROFS:
        there = next(each for each in (path, *path.parents) if os.access(each, os.F_OK))
        return AuthError(message, f"ls -ld {there}", _OWN_HOME)
    return FailedError(message, f"df {path.parent}")


def made_folder(folder: Path) -> Path:
    """Make a folder of this program, for this user alone.

    Raises:
        UsageError: something on the way is no folder.
        AuthError: it may not be made, or nothing may be put into it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise unusable(folder, error, "cannot write to the folder") from None
    return folder


def private_folder(folder: Path) -> Path:
    """Make `folder`, or judge it: a folder, not a link, of this user's, that nobody else can enter (0700).

    Raises:
        AuthError: somebody else's, or others could have put something into it.
    """
    from exo_cli.engine.core.errors import AuthError

    hint = _OWN_HOME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise AuthError(f"cannot make the folder {folder}: {error.strerror}", hint) from None
    if not stat.S_ISDIR(found.st_mode):
        raise AuthError(f"{folder} is a link, a folder of this user's is needed", f"ls -ld {folder}", hint)
    if found.st_uid != os.getuid():
        raise AuthError(f"{folder} belongs to user {found.st_uid}, not to {os.getuid()}", f"ls -ld {folder}", hint)
    if found.st_mode & 0o022:
        raise AuthError(f"{folder} can be written by others", f"chmod 700 {folder}", hint)
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    return folder
