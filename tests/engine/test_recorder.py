"""The recorder: a file for one user alone, in which nothing is lost that the node did, and which costs it nothing."""

import json
import logging
import os
import resource
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from exo_cli.engine.core import planner
from exo_cli.engine.core.effects import Appended, FactsChanged, Now, Submitted, Tick
from exo_cli.engine.core.errors import ExitCode, UsageError
from exo_cli.engine.core.events import By
from exo_cli.engine.core.intents import Submission
from exo_cli.engine.core.replica import Replica
from exo_cli.engine.core.state import State
from exo_cli.engine.recorder import Recorder
from exo_cli.engine.replaying.rerunning import rerun
from tests.builders import a_node, a_wish, at

ROOT = Path(__file__).parents[2]


class Waits:
    """A client that waits."""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "a recording"


@contextmanager
def recorded(file, **options):
    """A node of its own, recorded; what it appends is durable at once."""
    recorder = Recorder(file, Replica("a", 1, "a:7101", a_node("a"), State(), "1"), **options)
    try:
        yield recorder
    finally:
        recorder.close()


def live(recorder, ticks=20):
    """It begins its term, somebody places a model, and time passes."""
    seconds = 0.0

    def step(given=None):
        nonlocal seconds
        seconds += 0.25
        now = Now(seconds, at(seconds))
        effects = recorder.start(now) if given is None else recorder.step(given, now)
        if effects.append:
            step(Appended(effects.append[-1].index))

    step()
    step(Submitted(Submission(command_id="c-1", by=By(node="a"), command=a_wish()), Waits()))
    for number in range(ticks):
        recorder._replica.open_streams = number // 4
        step(Tick())
    step(FactsChanged(a_node("a", cores=64)))


def lines_of(file):
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def test_every_step_is_a_line_and_has_the_same_effects_again(file):
    with recorded(file) as recorder:
        live(recorder)
    first, *steps = lines_of(file)
    assert (first["kind"], first["format"], first["node_id"]) == ("exo-record", 1, "a")
    assert [each["input"]["type"] for each in steps[:3]] == ["Start", "Appended", "Submitted"]
    assert [each["open_streams"] for each in steps if "open_streams" in each] == [1, 2, 3, 4]
    assert any(each["effects"].get("answer", [{}])[0].get("reply_to") == 0 for each in steps)
    told = rerun(str(file))
    assert told["exit_code"] == ExitCode.OK
    assert told["item"]["inputs"] == len(steps)
    assert told["item"]["difference"] is None


def test_it_is_for_this_user_alone(file):
    before = os.umask(0)
    try:
        with recorded(file):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_nothing_is_written_over(file, tmp_path):
    file.write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (file, tmp_path / "link", tmp_path / "no such folder" / "r", tmp_path):
        with pytest.raises(UsageError) as caught, recorded(path):
            pass
        assert caught.value.hints
    assert file.read_text() == "precious"
    assert not (tmp_path / "elsewhere").exists()


def test_it_ends_at_its_limit_and_says_so_once(file, caplog):
    with recorded(file, limit_bytes=6000) as recorder:
        live(recorder)
    assert file.stat().st_size <= 6000
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "ends here, the node goes on" in caplog.text
    told = rerun(str(file))
    assert told["exit_code"] == ExitCode.OK
    assert 0 < told["item"]["inputs"] == len(lines_of(file)) - 1
    assert told["item"]["torn_tail"] is None


def test_a_disk_that_takes_no_more_ends_the_recording_only(file, caplog):
    """The first refusal is of a part of a line: what is there before it is still of use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with recorded(file) as recorder:
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
            live(recorder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert len(caplog.records) == 1
    assert file.stat().st_size == 6000
    told = rerun(str(file))
    assert told["exit_code"] == ExitCode.OK
    assert told["item"]["torn_tail"].startswith("line ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_ends_the_recording_only(file, caplog):
    with recorded(file) as recorder, Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), recorder._file.fileno())
        live(recorder, ticks=3)
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


def test_a_step_that_raises_is_the_last_line(file, monkeypatch):
    def broken(view):
        raise AssertionError("a rule is broken")
        yield

    with recorded(file) as recorder, monkeypatch.context() as patch:
        patch.setitem(planner.RULES, "create runner", broken)
        with pytest.raises(AssertionError):
            live(recorder)
        steps = lines_of(file)[1:]
        assert steps[-1]["effects"] == {"raised": "AssertionError: a rule is broken"}
        assert rerun(str(file))["exit_code"] == ExitCode.OK
    difference = rerun(str(file))["item"]["difference"]
    assert difference["input"] == len(steps)
    assert ("raised", "AssertionError: a rule is broken", None) in [
        (each["path"], each["recorded"], each["now"]) for each in difference["changes"]
    ]


def test_a_kill_costs_no_line_that_was_carried_out(file):
    """Each line is with the system before its effects are: a kill -9 between two steps loses nothing."""
    script = f"""
import os, signal, sys
from pathlib import Path
from tests.engine.test_recorder import live, recorded
with recorded(Path({str(file)!r})) as recorder:
    live(recorder)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    assert lines_of(file)[-1]["input"]["type"] in {"FactsChanged", "Appended"}
    assert rerun(str(file))["exit_code"] == ExitCode.OK
