"""A real node that is recorded while people use it, and the recording stepped again."""

import json
import stat

import pytest

from exo_cli.engine.core import planner
from exo_cli.engine.core.errors import ExitCode
from exo_cli.engine.replaying.rerunning import rerun
from tests.e2e.cluster import wait_until

CANARY = "xylophone-canary-4711"


@pytest.fixture
def recorded(new_home, script):
    """A home whose node runs, and is recorded into a file beside what else it has."""
    home = new_home()
    file = home.path / "recording"
    home.start("--record", file, engine=script("echo"))
    return home, file


def test_what_was_placed_talked_to_and_deleted_is_the_same_again(recorded, monkeypatch):
    home, file = recorded
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    instance_id = home.exo("place", "tiny").ok().out.strip()
    assert CANARY in home.exo("chat", f"say {CANARY}", "--system", f"you are {CANARY}").ok().out
    wait_until(lambda: home.record_counts()["TaskDeleted"], "the history of the chat")
    home.exo("delete", instance_id).ok()
    home.stop()
    ended = home.exo("replay", file, "--rerun").ok()
    assert ended.out.endswith(" inputs, no difference\n")
    assert ended.err == ""
    steps = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    seen = {each["input"]["type"] for each in steps}
    assert seen >= {"Start", "Tick", "Appended", "Submitted", "RunnerChanged", "ChatAdmitted", "ChatEnded"}
    assert CANARY not in file.read_text()
    # Without one rule, the input at which it had acted is named.
    acts = [[act["type"] for act in each["effects"].get("act", ())] for each in steps]
    monkeypatch.setitem(planner.RULES, "warm up", lambda view: iter(()))
    told = rerun(str(file))
    assert told["exit_code"] == ExitCode.DIFFERS
    assert told["item"]["difference"]["input"] == next(n for n, each in enumerate(acts, 1) if "StartWarmup" in each)


def test_one_that_was_killed_is_whole_up_to_its_last_line(recorded):
    home, file = recorded
    home.exo("place", "tiny").ok()
    home.kill()
    assert home.exo("replay", file, "--rerun").ok().out.endswith(" inputs, no difference\n")


@pytest.mark.long
def test_two_nodes_that_go_and_come_back(new_home, script):
    first, second = new_home(), new_home()
    engine = script("echo")
    first.start("--record", first.path / "r1", engine=engine, name="first")
    second.start("--record", second.path / "r1", engine=engine, name="second", peer=first)
    wait_until(lambda: len(first.nodes()) == 2, "two nodes")
    wide = first.exo("place", "wide", "--min-nodes", 2, "--strategy", "pipeline").ok().out.strip()
    first.exo("chat", "hello").ok()
    second.kill()
    second.start("--record", second.path / "r2", engine=engine, name="second", peer=first)
    first.kill()
    first.start("--record", first.path / "r2", engine=engine, name="first")
    wait_until(lambda: second.show()["phase"] == "following", "a follower of the master that is back", 30.0)
    first.exo("delete", wide).ok()
    second.stop()
    first.stop()
    for file in (home.path / name for home in (first, second) for name in ("r1", "r2")):
        assert first.exo("replay", file, "--rerun").ok().out.endswith(" inputs, no difference\n")


def test_what_is_there_already_is_kept_and_no_node_begins(new_home):
    home = new_home()
    file = home.path / "precious"
    file.write_text("precious")
    for detached in ((), ("--detach",)):
        home.exo("node", "start", *detached, "--listen", home.address, "--record", file).failed(
            2, "is there", "hint: mv"
        )
    home.exo("node", "start", "--listen", home.address, "--record", home.path / "no" / "r").failed(2, "hint: ls -ld")
    assert file.read_text() == "precious"
    assert home.show() is None


def test_one_in_the_background_is_recorded_too(new_home):
    home = new_home()
    home.exo("node", "start", "--detach", "--listen", home.address, "--record", home.path / "r").ok()
    home.exo("node", "stop").ok()
    assert home.exo("replay", home.path / "r", "--rerun").ok().out.endswith(" inputs, no difference\n")
