"""An EXO_HOME that cannot be used: one line that says why, whichever command meets it."""

from pathlib import Path

import pytest

ALL = ["runners", "chat hi", "place m", "delete i-1", "node start", "node start --detach", "node list", "node stop",
       "node logs", "plugin list"]  # fmt: skip
WRITERS = ["chat hi", "node start", "node start --detach"]


def assert_one_line(ended, code, said):
    error, *hints = ended.err.removeprefix("no node is running: starting one for this chat\n").splitlines()
    assert (ended.code, ended.out) == (code, "")
    assert error.startswith("error: ")
    assert said in error
    assert hints
    assert all(hint.startswith("hint: ") for hint in hints)


@pytest.mark.parametrize("line", ALL)
def test_a_home_that_is_a_file(exo, monkeypatch, tmp_path, line):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EXO_HOME", str(tmp_path / "file"))
    assert_one_line(exo(*line.split()), 2, "EXO_HOME has to be a folder")


@pytest.mark.parametrize("line", WRITERS)
def test_a_home_below_a_file(exo, monkeypatch, tmp_path, line):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EXO_HOME", str(tmp_path / "file" / "home"))
    assert_one_line(exo(*line.split()), 2, "Not a directory")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="it is about /proc")
@pytest.mark.parametrize("line", WRITERS)
def test_a_home_that_cannot_be_made(exo, monkeypatch, line):
    monkeypatch.setenv("EXO_HOME", "/proc/x")
    assert_one_line(exo(*line.split()), 4, "/proc/x")


def test_the_log_of_a_node_that_is_a_folder(exo, home):
    (home / "state" / "node.log").mkdir(parents=True)
    assert_one_line(exo("node", "logs"), 2, "cannot read")
    (home / "state" / "node.log.1").mkdir()
    (home / "state" / "node.log.1" / "x").mkdir()
    assert_one_line(exo("node", "start", "--detach"), 1, "cannot write")
