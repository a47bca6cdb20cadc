"""Nodes that are sent to the wrong place, and copied folders: each is told what is wrong, and nothing runs on twice."""

import shutil
import signal

import pytest

from tests.e2e.cluster import free_port, processes_of, wait_until


@pytest.fixture(scope="module")
def master(new_home, script):
    home = new_home()
    home.start(engine=script('repeat 3 token "w{n} "'), name="first")
    return home


def a_copy(master, new_home):
    """Another home with what the first has on disk."""
    copy = new_home()
    shutil.copytree(master.paths.data, copy.paths.data)
    return copy


def test_a_copy_that_greets_its_original_leaves_and_both_say_so(master, new_home):
    copy = a_copy(master, new_home)
    node = copy.begin("node", "start", "--listen", copy.address, "--peer", master.address)
    node.wait(20).failed(11, f"is in use at {master.address}", "hint: EXO_HOME=")
    wait_until(lambda: f"a node at {copy.address} was turned away" in master.node.err, "a word of the original")
    assert [item["state"] for item in master.nodes()] == ["alive"]


def test_a_copy_of_the_master_of_two_leaves_too(master, new_home):
    second = new_home()
    second.start(peer=master)
    copy = a_copy(master, new_home)
    # It was told of nobody, and knows the second node from its log.
    copy.begin("node", "start", "--listen", copy.address).wait(20).failed(11, f"is in use at {master.address}")
    assert master.show()["phase"] == "master"
    second.stop()


@pytest.mark.long
def test_a_node_whose_peer_is_not_there_says_so_and_goes_on_trying(new_home):
    home, port = new_home(), free_port()
    node = home.begin("node", "start", "--listen", home.address, "--peer", f"127.0.0.1:{port}")
    wait_until(lambda: f"peer 127.0.0.1:{port}: " in node.err, "a warning")
    item = wait_until(home.show, "a node that answers")
    assert (item["phase"], list(item["tried"])) == ("seeking", [f"127.0.0.1:{port}"])
    assert [each["state"] for each in home.nodes()] == ["seeking"]
    home.exo("chat", "hello").failed(5, "no master", f"127.0.0.1:{port}", "hint: exo node show")
    home.exo("place", "smollm2", seconds=20).failed(5, "no master", f"127.0.0.1:{port}")
    # The peer comes up after all.
    late = new_home()
    late.port = port
    late.start()
    wait_until(lambda: home.show()["phase"] == "following", "a node that has joined", 20)
    assert home.show()["tried"] == {}


def test_a_node_cannot_be_its_own_peer(new_home):
    home = new_home()
    own = home.exo("node", "start", "--listen", home.address, "--peer", home.address)
    own.failed(2, f"--peer {home.address} is the address of this node itself")
    by_name = home.begin("node", "start", "--listen", home.address, "--peer", f"localhost:{home.port}")
    wait_until(lambda: "it is the address of this node itself" in by_name.err, "a warning")


@pytest.mark.long
def test_the_command_that_starts_one_in_the_background_says_so_as_well(master, new_home):
    copy = a_copy(master, new_home)
    words = ("node", "start", "--detach", "--listen", copy.address, "--peer", master.address)
    copy.exo(*words).failed(11, f"is in use at {master.address}")
    # Told of nobody, it asks where it was before.
    copy.exo(*words[:-2]).failed(11, f"is in use at {master.address}")
    lost, port = new_home(), free_port()
    started = lost.exo("node", "start", "-d", "--listen", lost.address, "--peer", f"127.0.0.1:{port}").ok()
    assert f"warning: peer 127.0.0.1:{port}: " in started.err
    lost.exo("node", "stop").ok()


@pytest.mark.long
def test_a_node_that_joins_another_cluster_says_what_ends(master, new_home, script):
    home = new_home()
    home.start(engine=script('token "w"'))
    instance = home.place("m", script('token "w"'))
    home.stop()
    home.start(peer=master)
    wait_until(lambda: f"which ends {instance}" in home.node.err, "a warning")
    assert home.runners() == []
    home.stop()


def test_who_is_interrupted_while_starting_one_leaves_none(new_home):
    home = new_home()
    starting = home.begin("node", "start", "--detach", "--listen", home.address)
    log = home.paths.state / "node.log"
    wait_until(log.exists, "a node that begins", 5)
    starting.process.send_signal(signal.SIGINT)
    assert starting.wait(10).code == -signal.SIGINT
    wait_until(lambda: not processes_of(home), "no process of that home")
