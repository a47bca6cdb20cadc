"""A real node that is recorded while people use it, and the recording stepped again."""

import json
import stat

import pytest

from tests.e2e.cluster import wait_until

CANARY = "xylophone-canary-4711"


@pytest.fixture
def recorded(new_home, script):
    """A home whose node runs, and is recorded into a file beside what else it has."""
    home = new_home()
    file = home.path / "recording"
    home.start("--record", file, engine=script("echo"))
    return home, file


def test_what_was_placed_talked_to_and_deleted_is_the_same_again(recorded):
    home, file = recorded
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    instance_id = home.exo("place", "tiny").ok().out.strip()
    before = file.stat().st_size
    assert CANARY in home.exo("chat", f"say {CANARY}", "--system", f"you are {CANARY}").ok().out
    wait_until(lambda: home.record_counts()["TaskDeleted"], "the history of the chat")
    print("bytes of a chat, with the ticks meanwhile:", file.stat().st_size - before)
    home.exo("delete", instance_id).ok()
    home.stop()
    ended = home.exo("replay", file, "--rerun").ok()
    assert ended.out.endswith(" inputs, no difference\n")
    assert ended.err == ""
    seen = {json.loads(line)["input"]["type"] for line in file.read_text().splitlines()[1:]}
    assert seen >= {"Start", "Tick", "Appended", "Submitted", "RunnerChanged", "ChatAdmitted", "ChatEnded"}
    assert CANARY not in file.read_text()


def test_one_that_was_killed_is_whole_up_to_its_last_line(recorded):
    home, file = recorded
    home.exo("place", "tiny").ok()
    home.kill()
    assert home.exo("replay", file, "--rerun").ok().out.endswith(" inputs, no difference\n")


def test_two_nodes_of_which_one_goes_and_comes_back(new_home, script):
    first, second = new_home(), new_home()
    first.start("--record", first.path / "r", engine=script("echo"), name="first")
    second.start("--record", second.path / "r1", engine=script("echo"), name="second", peer=first)
    wait_until(lambda: len(first.nodes()) == 2, "two nodes")
    first.exo("place", "wide", "--min-nodes", 2, "--strategy", "pipeline").ok()
    first.exo("chat", "hello").ok()
    second.kill()
    second.start("--record", second.path / "r2", engine=script("echo"), name="second", peer=first)
    second.exo("delete", "wide")
    for home in (second, first):
        home.stop()
    for file in (first.path / "r", second.path / "r1", second.path / "r2"):
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
