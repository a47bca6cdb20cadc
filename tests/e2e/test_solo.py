"""`exo chat` without a node: it starts one for its own duration, and nothing is left of it."""

import pytest

from tests.e2e.cluster import processes_of, wait_until

GONE_SECONDS = 5.0


@pytest.fixture
def home(new_home, script):
    """No node, and an engine for those that chats start."""
    home = new_home()
    file = script("rate 100", 'repeat 60 token "w{n} "')
    home.environment["EXO_ENGINE"] = f"scripted:{file}"
    yield home
    for process in processes_of(home):
        process.kill()


def nothing_runs(home):
    wait_until(lambda: not processes_of(home), f"no process of {home.path}", GONE_SECONDS)
    assert not home.paths.control_socket.exists()


def test_a_chat_brings_its_node_and_takes_it_along(home):
    home.exo("chat", "hello", "--no-start").failed(5, "no node is running")
    said = home.exo("chat", "hello", "--max-tokens", 3).ok()
    assert said.out == "w0 w1 w2 \n"
    assert "starting one for this chat" in said.err
    assert "exo node start --detach && exo place smollm2" in said.err.splitlines()[-1]
    nothing_runs(home)
    assert not home.paths.log.exists() or home.log_bytes() == 0, "its log was in memory"


def test_two_at_once_share_one_node(home):
    first = home.begin("chat", "hello")
    second = home.begin("chat", "hello")
    first.wait_says("w1 ")
    second.wait_says("w1 ")
    starters = [each for each in processes_of(home) if "--solo" in each.cmdline()]
    assert len(starters) == 1
    text = "".join(f"w{n} " for n in range(60)) + "\n"
    assert first.wait().ok().out == text
    assert second.wait().ok().out == text
    nothing_runs(home)


def test_nothing_is_left_of_a_chat_that_is_killed(home):
    chat = home.begin("chat", "hello")
    chat.wait_says("w1 ")
    assert len(processes_of(home)) == 3
    chat.process.kill()
    chat.process.wait()
    nothing_runs(home)


def test_a_solo_node_that_is_killed_takes_its_runner_along(home):
    chat = home.begin("chat", "hello")
    chat.wait_says("w1 ")
    [node] = [each for each in processes_of(home) if "--solo" in each.cmdline()]
    node.kill()
    chat.wait(5).failed(5)
    wait_until(lambda: not processes_of(home), "no process", GONE_SECONDS)
