"""Starting a node: where it cannot, it says why; where the folders lie deep, it does."""

import re
import socket

import pytest

from tests.e2e.cluster import alive


def test_a_home_of_150_characters_works(new_home, script, homes):
    home = new_home(name="x" * (149 - len(str(homes))))
    assert len(str(home.path)) == 150
    home.start(engine=script("echo"))
    home.exo("place", "m").ok()
    assert home.exo("chat", "how are you").ok().out == "how are you\n"
    children = home.children()
    home.stop()
    assert alive(children) == []


def test_a_second_node_is_refused_with_the_reason(new_home, script):
    home, other = new_home(), new_home()
    home.start()
    second = home.exo("node", "start").failed(11, str(home.pid))
    assert re.search(rf"\b{home.pid}\b", second.err)
    assert home.show() is not None

    taken = other.exo("node", "start", "--listen", home.address).failed(11, f"port {home.port}", f"pid {home.pid}")
    assert "hint: exo node start --listen" in taken.err
    # Any of the three ports may be the one in the way.
    with socket.create_server(("127.0.0.1", other.port + 1)):
        other.exo("node", "start", "--listen", other.address).failed(11, f"port {other.port + 1}")
    other.exo("node", "start", "--listen", "nonsense").failed(2, "nonsense")
    other.start()
    assert home.stop().code == 0
    assert other.stop().code == 0


def test_a_detached_node_runs_on_and_is_stopped(new_home, script):
    home = new_home()
    started = home.exo("node", "start", "--detach", "--listen", home.address, EXO_ENGINE=f"scripted:{script('echo')}")
    node_id, pid = started.ok().out.split()
    shown = home.exo("node", "show", "-o", "json").ok().item
    assert (shown["node_id"], str(shown["pid"])) == (node_id, pid)
    home.exo("place", "m").ok()
    assert home.exo("chat", "a b").ok().out == "a b\n"
    home.exo("node", "start", "--detach").failed(11, pid)
    home.exo("node", "stop").ok()
    home.exo("node", "stop").failed(5, "no node is running")


@pytest.mark.long
def test_a_torn_log_is_opened_and_a_damaged_one_refused(new_home):
    home = new_home()
    home.start()
    assert home.stop().code == 0
    [segment] = home.paths.log.glob("*.log")
    whole = segment.read_bytes()
    second = whole.index(b'{"index":1,')

    segment.write_bytes(whole[: second + 20])
    home.start()
    assert f"byte {second}" in home.node.err, home.node.err
    assert home.stop().code == 0
    assert home.exo("replay", segment, "-o", "json").ok().item["torn_tail"] is None

    mended = bytearray(segment.read_bytes())
    mended[second + 30] ^= 1
    segment.write_bytes(mended)
    home.exo("node", "start", "--listen", home.address).failed(12, "record 1", str(second), "exo replay", "mv ")
    home.exo("replay", segment).failed(12, "record 1", str(second))
    assert segment.read_bytes() == mended

    # As the hint says: it becomes a node again.
    home.paths.log.rename(home.paths.log.with_name("log.damaged"))
    assert home.start()["phase"] == "master"
