"""Standard streams that are closed: an answer that nobody can get is a failure, what needs none goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import PROGRAM
from tests.fakes_control import result


def without(closed: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command line in a shell that closes these descriptors."""
    line = 'exec "$0" "$@" ' + " ".join(f"{number}>&-" for number in closed)
    return subprocess.run(
        ["sh", "-c", line, str(PROGRAM), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("words", [("runners",), ("--version",), ("chat", "--help"), ("completion", "bash")])
def test_an_answer_without_a_stdout_is_an_error_of_one_line(node, words):
    node(runners=result({"revision": 1, "items": []}))
    ended = without("1", *words)
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        "error: the answer cannot be written: Bad file descriptor",
        f"hint: exo {' '.join(words)} > answer.txt",
    ]
    for closed in ("12", "012"):
        ended = without(closed, *words)
        assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "")


def test_a_full_disk_is_said_of_the_version_too():
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([PROGRAM, "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.splitlines()[1]) == (1, "hint: df -h")


def test_an_error_is_still_said_without_a_stdout():
    ended = without("01", "runners")
    assert ended.returncode == 5
    assert ended.stderr.startswith("error: no node is running")


def test_talk_without_a_stderr_goes_nowhere():
    ended = without("2", "--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("exo ")
    ended = without("2", "runners")
    assert (ended.returncode, ended.stdout, ended.stderr) == (5, "", "")


@pytest.mark.parametrize("closed", ["1", "12"])
def test_a_tab_without_a_stdout_is_quiet(closed):
    ended = without(closed, "__complete", "bash", "exo ru")
    assert (ended.returncode, ended.stderr) == (1, "")


def test_no_socket_and_no_file_gets_the_number_of_a_closed_stream():
    code = (
        "import os, socket\nfrom exo_cli.__main__ import _fill_missing\n_fill_missing()\n"
        "with socket.socket() as made: assert made.fileno() > 2, made\n"
        "assert all(os.get_inheritable(number) for number in (0, 1, 2))"
    )
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" 0>&- 1>&- 2>&-', sys.executable, code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=30,
        check=False,
    )
    assert ended.returncode == 0


def test_a_stdin_that_cannot_be_read_is_bad_data(program_path, tmp_path):
    with (tmp_path / "for-writing").open("wb") as file:
        ended = subprocess.run([program_path, "chat"], stdin=file, capture_output=True, text=True, check=False)
    assert ended.returncode == 12
    assert ended.stderr.startswith("error: stdin cannot be read")
