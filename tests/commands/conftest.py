"""Fixtures of the command line's tests: a home, the program in this process or as a real one, a fake node."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from exo_cli.app import main
from exo_cli.engine.paths import find_paths
from tests.fakes_control import FakeNode, Method

PROGRAM = Path(sys.executable).with_name("exo")


@dataclass(frozen=True)
class Ended:
    """How a command line ended."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def home(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This test's EXO_HOME, and nothing in the environment that changes what is shown."""
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return own_home / "exo"


@pytest.fixture
def program_path() -> Path:
    """The installed program."""
    return PROGRAM


@pytest.fixture
def exo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ended]:
    """Run a command line in this process; `stdin` None is /dev/null, else a file."""

    def run(*words: str, stdin: str | bytes | None = None) -> Ended:
        given = Path(os.devnull)
        if stdin is not None:
            given = tmp_path / "stdin"
            given.write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        with given.open() as file, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", file)
            code = main(list(words))
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return run


@pytest.fixture
def program() -> Callable[..., Ended]:
    """Run a command line as a real process; `stdin` None is /dev/null."""

    def run(*words: str, stdin: str | bytes | None = None, timeout: float = 30, **environment: str) -> Ended:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [PROGRAM, *words],
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            env={**os.environ, **environment},
            timeout=timeout,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def start_program() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Begin a command line as a real process, to be signalled or cut off."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **how: Any) -> "subprocess.Popen[bytes]":
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        begun.append(subprocess.Popen([PROGRAM, *words], **{**pipes, **how}))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def node(home: Path) -> Iterator[Callable[..., FakeNode]]:
    """Start a fake node at this home's socket."""
    begun: list[FakeNode] = []

    def start(**methods: Method) -> FakeNode:
        begun.append(FakeNode(find_paths().control_socket, methods))
        return begun[-1]

    yield start
    for each in begun:
        each.close()
