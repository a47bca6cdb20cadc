"""Nodes and chats whose standard streams are closed: the numbers stay taken, and who has nothing to print runs on."""

import pytest


@pytest.mark.parametrize("closed", ["1", "12", "012"])
def test_a_node_needs_none_of_its_streams(new_home, closed):
    home = new_home()
    streams = " ".join(f"{number}>&-" for number in closed)
    home.shell(
        f"exo node start --listen {home.address} {streams} &\n"
        "until exo node show; do kill -0 $! || exit 9; sleep 0.1; done >/dev/null 2>&1\n"
        "exo node stop && wait $!"
    ).ok()


def test_a_chat_whose_answer_nobody_can_get(new_home, script):
    home = new_home()
    home.start(engine=script("echo"))
    home.exo("place", "m").ok()
    home.shell("exo chat hi >&-").failed(1, "error: the answer cannot be written", "hint: exo chat hi > answer.txt")
    assert home.exo("chat", "and on").ok().out == "and on\n"
