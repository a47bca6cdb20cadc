"""Where things lie: every folder that the program uses, who this node is, and the locks that keep a second one out.

All folders follow from EXO_HOME when it is set (one tree, easy to move and to remove), else from the platform's rules
under the name `exo-cli`. Every command imports this module, so it needs little of the standard library and no more:
platformdirs (which Linux does without) and the error classes are imported where they are used.
"""

import fcntl
import os
import re
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from exo_cli.engine.paths.folders import made_folder as made_folder
from exo_cli.engine.paths.folders import private_folder as private_folder
from exo_cli.engine.paths.folders import unusable as unusable

NAME = "exo-cli"
_NODE_ID = re.compile(r"n-[a-z2-7]{12}")
# The kernel's limit for a socket's path is 108 bytes on Linux and 104 on macOS, end mark included.
_SOCKET_PATH_BYTES = 100


class Paths:
    """The folders, as paths; nothing is made or looked at until something is written there."""

    __slots__ = ("cache", "data", "home", "models", "runtime", "shares_runtime", "state", "temporary")

    def __init__(
        self,
        *,
        data: Path,
        cache: Path,
        state: Path,
        runtime: Path,
        models: Path,
        home: Path | None,
        temporary: Path,
        shares_runtime: bool = False,
    ) -> None:
        """Take the roots. `home` is EXO_HOME when it set them; a runtime folder may be one for several data folders."""
        self.data = data
        self.cache = cache
        self.state = state
        self.runtime = runtime
        self.models = models
        self.home = home
        self.temporary = temporary
        self.shares_runtime = shares_runtime

    @property
    def sidecars(self) -> Path:
        """The folder of what `exo replay` remembers of long logs."""
        return self.cache / "replay"

    @property
    def log(self) -> Path:
        """The folder of the event log's segments."""
        return self.data / "log"

    @property
    def node_id(self) -> Path:
        """The file that holds this node's id."""
        return self.data / "node-id"

    @property
    def lock(self) -> Path:
        """The file that a running node holds locked."""
        return self.data / "lock"

    @property
    def journal(self) -> Path:
        """The folder of the journal."""
        return self.state / "journal"

    @property
    def runner_logs(self) -> Path:
        """The folder of what runner processes print."""
        return self.state / "runners"

    @property
    def converted(self) -> Path:
        """The folder of models converted from other formats."""
        return self.cache / "converted"

    @property
    def blas(self) -> Path:
        """The folder of the matrix library made ready for mlx."""
        return self.cache / "blas"

    @property
    def control_socket(self) -> Path:
        """The socket that commands talk to; its folder is made by `private_folder(paths.control_socket.parent)`.

        Where a user has one runtime folder and data elsewhere than usual (another HOME), the name follows the data. A
        path too long for the kernel is replaced by a hashed name in a folder of this user's in the temp folder.
        """
        natural = self.runtime / (_hashed(self.data) if self.shares_runtime else "control.sock")
        if len(os.fsencode(natural)) <= _SOCKET_PATH_BYTES:
            return natural
        name = _hashed(natural)
        short = self.temporary / f"{NAME}-{os.getuid()}" / name
        if len(os.fsencode(short)) <= _SOCKET_PATH_BYTES:
            return short
        return Path("/tmp") / short.parent.name / name


def find_paths(environment: Mapping[str, str] | None = None) -> Paths:
    """The folders of this environment (the process's own when None is given).

    Raises:
        UsageError: EXO_HOME is relative (it would mean another place for every folder a command is called in), or it
            is no folder.
    """
    environment = os.environ if environment is None else environment
    temporary = Path(environment.get("TMPDIR") or "/tmp")
    if not (written := environment.get("EXO_HOME")):
        return _linux_paths(environment, temporary) if sys.platform == "linux" else _platform_paths(temporary)
    home = Path(written)
    if not home.is_absolute():
        from exo_cli.engine.core.errors import UsageError

        meant = Path(os.path.abspath(home.expanduser()))  # noqa: PTH100 - resolve() would follow links
        raise UsageError(f"EXO_HOME has to be an absolute path, and is {written!a}", f"export EXO_HOME={meant}")
    if os.path.exists(home) and not os.path.isdir(home):  # noqa: PTH110, PTH112 - those of Path raise
        from exo_cli.engine.core.errors import UsageError

        raise UsageError(f"EXO_HOME has to be a folder, and {home} is none", "unset EXO_HOME")
    return Paths(
        data=home / "data",
        cache=home / "cache",
        state=home / "state",
        runtime=home / "run",
        models=home / "models",
        home=home,
        temporary=temporary,
    )


def _hashed(path: Path) -> str:
    import hashlib

    return f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.sock"


def _is_usual(data: Path) -> bool:
    """Whether a data folder is the one that the platform has for this user, whatever HOME says."""
    import pwd

    try:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return False
    return data == home / (".local/share" if sys.platform == "linux" else "Library/Application Support") / NAME


def _linux_paths(environment: Mapping[str, str], temporary: Path) -> Paths:
    """What platformdirs says on Linux, without the 40 ms of importing it: every TAB waits for this."""

    def folder(variable: str, default: str) -> Path:
        base = environment.get(variable, "")
        # The rules of XDG: a relative value is ignored.
        return Path(base if base.startswith("/") else f"{environment.get('HOME') or Path.home()}/{default}") / NAME

    session = environment.get("XDG_RUNTIME_DIR", "")
    session = session if session.startswith("/") else f"/run/user/{os.getuid()}"
    has_session = os.access(session, os.W_OK)
    data = folder("XDG_DATA_HOME", ".local/share")
    return Paths(
        data=data,
        cache=folder("XDG_CACHE_HOME", ".cache"),
        state=folder("XDG_STATE_HOME", ".local/state"),
        runtime=Path(session) / NAME if has_session else temporary / f"{NAME}-{os.getuid()}",
        models=data / "models",
        home=None,
        temporary=temporary,
        shares_runtime=not _is_usual(data),
    )


def _platform_paths(temporary: Path) -> Paths:
    from platformdirs import PlatformDirs

    dirs = PlatformDirs(NAME, appauthor=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runtime = dirs.user_runtime_path
    if runtime.parent.name.startswith("runtime-"):
        # No session folder here. What platformdirs falls back to has a parent in the temp folder that anybody may own.
        runtime = temporary / f"{NAME}-{os.getuid()}"
    return Paths(
        data=dirs.user_data_path,
        cache=dirs.user_cache_path,
        state=dirs.user_state_path,
        runtime=runtime,
        models=dirs.user_data_path / "models",
        home=None,
        temporary=temporary,
        shares_runtime=not _is_usual(dirs.user_data_path),
    )


class Lock:
    """A file held locked by one process; its text is that process's id. Gone with the process, however it ends."""

    def __init__(self, path: Path, subject: str, *hints: str) -> None:
        """Take the lock. The file stays when it is let go: removing it would let two processes hold "the" lock.

        Raises:
            ConflictError: `subject` is in use, by the process named.
            UsageError, AuthError, FailedError: the file cannot be made, see `unusable`.
        """
        from exo_cli.engine.core.errors import ConflictError, FailedError

        try:
            made_folder(path.parent)
            self._fd: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise unusable(path, error, "cannot lock") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            self.release()
            details: dict[str, object] = {"path": str(path), "pid": int(holder) if holder.isdecimal() else None}
            by = f"pid {holder}" if holder.isdecimal() else "another process"
            raise ConflictError(f"{subject} is in use by {by}", *hints, details=details) from None
        except OSError as error:
            self.release()
            raise FailedError(f"cannot lock {path}: {error.strerror}", f"df {path.parent}") from None

    def release(self) -> None:
        """Let go; a second time is nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> "Lock":
        """Hold it for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go at the block's end."""
        self.release()


class HomeLock(Lock):
    """What a running node holds, so that a second one cannot work on the same folders."""

    def __init__(self, paths: Paths) -> None:
        """Take it. Raises ConflictError naming the process that has it; no folder that a node needs fails later."""
        for folder in (paths.data, paths.state, paths.cache):
            made_folder(folder)
        subject = f"the folder {paths.data}" if paths.home is None else f"EXO_HOME {paths.home}"
        super().__init__(paths.lock, subject, "exo node stop")


def node_id(paths: Paths) -> str:
    """This node's id, kept on disk for ever: `n-` and 12 characters (60 bits), drawn when first asked for.

    Raises:
        BadDataError: the file holds something else.
        UsageError, AuthError, FailedError: it cannot be read or written, see `unusable`.
    """
    from exo_cli.engine.core.errors import BadDataError

    path = paths.node_id
    try:
        if not path.exists():
            _keep_new_id(path)
        kept = path.read_bytes()[:64].decode(errors="replace").strip()
    except OSError as error:
        raise unusable(path, error, "cannot keep the node's id in") from None
    if not _NODE_ID.fullmatch(kept):
        raise BadDataError(f"{path} holds no node id but {kept[:40]!a}", f"rm {path}  # to become a new node")
    return kept


def _keep_new_id(path: Path) -> None:
    from exo_cli.engine.fresh import fresh_id

    drawn = fresh_id("n")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(f"{drawn}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        # A link, unlike a rename, never replaces: of two processes at once, both keep the first one's id.
        with suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
