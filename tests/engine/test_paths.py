"""Folders, this node's id, and the lock of a home."""

import os
import pwd
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from exo_cli.engine.core.errors import AuthError, BadDataError, ConflictError, ExitCode, UsageError
from exo_cli.engine.paths import HomeLock, Lock, Paths, find_paths, node_id, private_folder


def at_home(home: Path, temporary: Path = Path("/tmp")) -> Paths:
    return find_paths({"EXO_HOME": str(home), "TMPDIR": str(temporary)})


def test_exo_home_moves_every_folder(tmp_path):
    paths = at_home(tmp_path / "home")
    folders = [getattr(paths, name) for name in ("data", "cache", "state", "models", "runtime")]
    assert len(set(folders)) == 5
    for path in (
        *folders,
        paths.log,
        paths.node_id,
        paths.lock,
        paths.journal,
        paths.converted,
        paths.blas,
    ):
        assert path.is_relative_to(tmp_path / "home")
    assert paths.log == paths.data / "log"
    assert paths.home == tmp_path / "home"
    assert list(tmp_path.iterdir()) == [], "nothing is made by asking"


@pytest.mark.parametrize("written", ["home", "./home", "~/exo", "../x"])
def test_a_relative_home_is_refused_with_what_was_meant(written):
    with pytest.raises(UsageError, match="absolute") as caught:
        find_paths({"EXO_HOME": written})
    assert caught.value.exit_code == ExitCode.USAGE
    meant = caught.value.hints[0].removeprefix("export EXO_HOME=")
    assert Path(meant).is_absolute()
    assert "~" not in meant
    assert ".." not in meant


@pytest.mark.parametrize("environment", [{}, {"EXO_HOME": ""}])
def test_without_a_home_the_platform_says_where(environment, monkeypatch, tmp_path):
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    paths = find_paths({**os.environ, "EXO_HOME": "", **environment})
    assert paths.home is None
    for folder in (paths.data, paths.cache, paths.state, paths.models, paths.runtime):
        assert folder.is_absolute()
        assert "exo-cli" in str(folder)
    if sys.platform == "linux":
        assert paths.data == tmp_path / "data" / "exo-cli"
        assert paths.runtime.parent in {Path("/tmp"), Path(f"/run/user/{os.getuid()}")}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs itself is asked")
@pytest.mark.parametrize("written", [{}, {"XDG_DATA_HOME": "/x/data", "XDG_STATE_HOME": "relative"}])
def test_linux_folders_are_those_of_platformdirs(written, monkeypatch):
    from platformdirs import PlatformDirs

    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    for name, value in written.items():
        if value.startswith("/"):  # platformdirs takes relative ones too, which the rules of XDG forbid
            monkeypatch.setenv(name, value)
    dirs = PlatformDirs("exo-cli", appauthor=False)
    paths = find_paths({**os.environ, "EXO_HOME": "", **written})
    assert (paths.data, paths.cache, paths.state) == (dirs.user_data_path, dirs.user_cache_path, dirs.user_state_path)


def test_a_short_socket_path_stays_where_it_is(tmp_path):
    assert at_home(Path("/h")).control_socket == Path("/h/run/control.sock")


@pytest.mark.parametrize("temporary", ["/tmp", "/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T", "/tmp/" + "t" * 120])
def test_a_home_of_150_characters_has_a_socket(tmp_path, temporary):
    home = Path(str(tmp_path) + "/" + "h" * 149)
    home = Path(str(home)[:150])
    assert len(str(home)) == 150
    path = at_home(home, Path(temporary)).control_socket
    assert len(os.fsencode(path)) <= 100
    assert path.parent.name == f"exo-cli-{os.getuid()}"
    assert path == at_home(home, Path(temporary)).control_socket
    assert path != at_home(home.with_name("i" * 80), Path(temporary)).control_socket


def test_a_socket_can_be_bound_there(tmp_path):
    paths = at_home(tmp_path / ("h" * 150), tmp_path)
    folder = private_folder(paths.control_socket.parent)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(paths.control_socket))


def test_a_private_folder_is_made_and_tightened(tmp_path):
    folder = private_folder(tmp_path / "a" / "run")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    private_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_is_not_private_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").write_text("")
    for name, why in (
        ("link", "link"),
        ("open", "written by others"),
        ("file", "cannot make"),
        ("file/run", "cannot make"),
    ):
        with pytest.raises(AuthError, match=why) as caught:
            private_folder(tmp_path / name)
        assert caught.value.hints


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", 12345, -1)
    with pytest.raises(AuthError, match="belongs to user 12345"):
        private_folder(tmp_path / "theirs")


def test_the_node_id_is_kept(tmp_path):
    paths = at_home(tmp_path)
    first = node_id(paths)
    assert re.fullmatch(r"n-[a-z2-7]{12}", first)
    assert node_id(paths) == first
    assert node_id(at_home(tmp_path / "other")) != first
    assert [path.name for path in paths.data.iterdir()] == ["node-id"]


@pytest.mark.parametrize("text", ["", "n-short\n", "../../etc/passwd\n", "n-ABCDEFGHIJKL\n"])
def test_a_file_that_holds_no_id_is_not_replaced(tmp_path, text):
    paths = at_home(tmp_path)
    paths.data.mkdir()
    paths.node_id.write_text(text)
    with pytest.raises(BadDataError) as caught:
        node_id(paths)
    assert str(paths.node_id) in caught.value.hints[0]
    assert paths.node_id.read_text() == text


def test_a_home_that_is_a_file_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    for written in (tmp_path / "file", "/dev/null"):
        with pytest.raises(UsageError, match="has to be a folder") as caught:
            at_home(Path(written))
        assert caught.value.hints == ("unset EXO_HOME",)


@pytest.mark.parametrize("inside", ["data", "state", "cache"])
def test_a_file_where_a_folder_is_needed(tmp_path, inside):
    (tmp_path / inside).write_text("a file")
    with pytest.raises(UsageError, match=f"{inside}: File exists"):
        HomeLock(at_home(tmp_path))
    if inside == "data":
        with pytest.raises(UsageError):
            node_id(at_home(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="it is about /proc")
def test_a_home_that_cannot_be_made(tmp_path):
    for home in ("/proc/x", "/proc/x/y"):
        for use in (HomeLock, node_id):
            with pytest.raises(AuthError) as caught:
                use(at_home(Path(home)))
            assert caught.value.hints[0] == "ls -ld /proc"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("closed", [".", "state", "data/lock"])
def test_a_home_of_somebody_else_is_forbidden(closed):
    """As another user, in a child process that has its modules already. Pytest's folders are not for others."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        for folder in ("data", "state", "cache"):
            (home / folder).mkdir()
        (home / "data" / "lock").write_text("")
        for path in (home, *home.rglob("*")):
            os.chown(path, 12345, -1)
        os.chown(home / closed, 0, -1)
        (home / closed).chmod(0o700)
        script = (
            "import os, sys\nfrom exo_cli.engine.core import errors\nfrom exo_cli.engine.paths import *\n"
            "os.setgroups([]); os.setuid(12345)\n"
            "try: HomeLock(find_paths())\nexcept errors.AuthError as error: sys.exit(error.hints[0])"
        )
        run = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"EXO_HOME": str(home)},
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            check=False,
        )
        assert (run.returncode, run.stderr) == (1, f"ls -ld {(home / closed).resolve()}\n")


@pytest.fixture
def short_path():
    with tempfile.TemporaryDirectory(prefix="x") as folder:
        yield Path(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the platform says where the data is")
@pytest.mark.parametrize("session", [True, False])
def test_two_homes_of_one_user_have_two_sockets(short_path, session):
    # Short, because a socket's path that is too long is replaced by another.
    place = {"TMPDIR": str(short_path), "XDG_RUNTIME_DIR": str(short_path if session else short_path / "none")}
    usual = find_paths({**place, "HOME": pwd.getpwuid(os.getuid()).pw_dir}).control_socket
    one, other, data = (
        find_paths({**place, **more}).control_socket
        for more in ({"HOME": "/h/one"}, {"HOME": "/h/other"}, {"HOME": "/h/one", "XDG_DATA_HOME": "/d"})
    )
    assert len({usual, one, other, data}) == 4
    assert {path.parent for path in (one, other, data)} == {usual.parent}
    assert usual.name == "control.sock"
    assert one == find_paths({**place, "HOME": "/h/one"}).control_socket


def test_many_processes_agree_on_one_id(tmp_path):
    script = "from exo_cli.engine.paths import *; print(node_id(find_paths()))"
    environment = os.environ | {"EXO_HOME": str(tmp_path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        for _ in range(4)
    ]
    assert len({process.communicate()[0] for process in processes}) == 1


def test_a_second_holder_of_a_home_is_refused(tmp_path):
    paths = at_home(tmp_path)
    with HomeLock(paths), pytest.raises(ConflictError) as caught:
        HomeLock(paths)
    error = caught.value
    assert error.message == f"EXO_HOME {tmp_path} is in use by pid {os.getpid()}"
    assert (error.hints, error.exit_code) == (("exo node stop",), ExitCode.CONFLICT)
    HomeLock(paths).release()


def test_a_lock_ends_with_its_process_however_it_ends(tmp_path):
    script = "from exo_cli.engine.paths import *; lock = HomeLock(find_paths()); print(1, flush=True); input()"
    environment = os.environ | {"EXO_HOME": str(tmp_path)}
    pipe = subprocess.PIPE
    checkout = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=pipe, stdin=pipe, cwd=checkout
    ) as process:
        process.stdout.readline()
        with pytest.raises(ConflictError, match=f"pid {process.pid}"):
            HomeLock(at_home(tmp_path))
        process.send_signal(signal.SIGKILL)
    lock = HomeLock(at_home(tmp_path))
    assert at_home(tmp_path).lock.read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_holder_that_left_no_number_is_another_process(tmp_path):
    with Lock(tmp_path / "lock", "it") as lock:
        os.truncate(tmp_path / "lock", 0)
        with pytest.raises(ConflictError, match="it is in use by another process"):
            Lock(tmp_path / "lock", "it")
    lock.release()


def test_importing_it_is_light():
    script = "import sys, exo_cli.engine.paths; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True
    )
    heavy = {
        "platformdirs",
        "pydantic",
        "trio",
        "dataclasses",
        "inspect",
        "tempfile",
        "hashlib",
        "exo_cli.engine.core.errors",
    }
    assert not heavy & set(run.stdout.split())
