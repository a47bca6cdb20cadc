"""Reaching a node: what is printed where it starts, its other ports, and what helps when it does not answer."""

import signal

import psutil
import pytest


@pytest.fixture(scope="module")
def home(new_home):
    """A node in the background."""
    home = new_home()
    started = home.exo("node", "start", "--detach", "--listen", home.address).ok()
    home.said = started
    yield home
    home.exo("node", "stop")


def test_a_node_in_the_background_says_where_it_listens(home):
    node_id, pid = home.said.out.split()
    assert home.said.err.splitlines() == [
        f"node {node_id} ({home.show()['name']}) listens on {home.address}, pid {pid}"
    ]  # fmt: skip


def test_a_document_of_it_says_so_too(new_home):
    home = new_home()
    item = home.exo("node", "start", "--detach", "--listen", home.address, "-o", "json").ok().item
    home.exo("node", "stop").ok()
    assert item["listen"] == home.address


@pytest.mark.parametrize("other", [1, 2])
def test_another_port_of_a_node_leads_to_the_one_for_commands(home, other):
    host = home.address.rpartition(":")[0]
    wrong = f"{host}:{home.port + other}"
    ended = home.exo("node", "list", "--endpoint", wrong)
    ended.failed(5, f"error: the node answers at {home.address}, not at {wrong} (from --endpoint)\n")
    [_, hint] = ended.err.splitlines()
    assert hint == f"hint: exo node show --endpoint {home.address}"
    home.exo(*hint.split()[2:]).ok()


@pytest.mark.skipif(not psutil.LINUX, reason="what a process does is read from /proc")
def test_a_suspended_node_is_told_from_one_that_hangs(home):
    process = psutil.Process(int(home.said.out.split()[1]))
    process.send_signal(signal.SIGSTOP)
    try:
        ended = home.exo("node", "stop").failed(5, f"error: the node is suspended (pid {process.pid})")
        assert f"hint: kill -CONT {process.pid}\n" in ended.err
    finally:
        process.send_signal(signal.SIGCONT)
    home.exo("node", "show").ok()
