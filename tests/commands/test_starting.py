"""What no node can be started with is refused before anything is begun, in the background as in the foreground."""

import os

import pytest
from pydantic import ValidationError

from exo_cli.commands.node import NAME_CHARACTERS
from exo_cli.engine.core.topology import NodeFacts
from tests.fakes_control import result

PORTS = "not a port from 1 to 65533 (a node uses three in a row)"
REFUSED = [
    (("--name", "x" * 129), "--name has 129 characters, at most 128 are allowed", "exo node start --name desk"),
    (("--name", ""), "--name is empty", "exo node start --name desk"),
    (("--name", " "), "--name is empty", "exo node start --name desk"),
    (("--name", "a\nb"), "--name has characters that cannot be shown: 'a\\nb'", "exo node start --name desk"),
    (("--name", "a\x1b[1m"), "--name has characters that cannot be shown", "exo node start --name desk"),
    (("--engine", "foo"), "there is no engine 'foo': it is mlx or scripted:FILE", "unset EXO_ENGINE"),
    (("--engine", "scripted:"), "there is no engine 'scripted:'", "unset EXO_ENGINE"),
    (("--peer", "nonsense"), "--peer: not an address (host:port): 'nonsense'", "exo node start --peer HOST:7101"),
    (("--peer", "a:0"), f"--peer: {PORTS}: 'a:0'", "exo node start --peer HOST:7101"),
    (("--listen", "a:65534"), f"--listen: {PORTS}: 'a:65534'", "exo node start --listen 127.0.0.1:7101"),
    (("--listen", "a:" + "9" * 5000), f"--listen: {PORTS}", "exo node start --listen 127.0.0.1:7101"),
]


@pytest.mark.parametrize("detach", [(), ("--detach",)])
@pytest.mark.parametrize(("words", "said", "hint"), REFUSED)
def test_what_no_node_can_be_started_with(exo, home, detach, words, said, hint):
    ended = exo("node", "start", *detach, *words)
    assert (ended.code, ended.out) == (2, "")
    error, *hints = ended.err.splitlines()
    assert error.startswith(f"error: {said}")
    assert hints == [f"hint: {hint}"]
    assert not home.exists()


def test_an_engine_of_the_environment_is_judged_too(exo, monkeypatch):
    monkeypatch.setenv("EXO_ENGINE", "foo")
    assert exo("node", "start").code == 2


def test_a_name_may_be_as_long_as_the_facts_of_a_node_allow():
    def facts(characters):
        return NodeFacts(name="x" * characters, version="1", memory_bytes=1, memory_available_bytes=1, cores=1)

    assert len(facts(NAME_CHARACTERS).name) == NAME_CHARACTERS
    with pytest.raises(ValidationError):
        facts(NAME_CHARACTERS + 1)


def test_a_node_that_does_not_end_is_ended_by_what_does_end_it(exo, node):
    node(stop=result({"pid": os.getpid()}))
    ended = exo("node", "stop", "--timeout", "0")
    assert ended.code == 6
    assert ended.err.splitlines()[-1] == f"hint: kill -9 {os.getpid()}"
