"""Identity: a copy leaves, and nobody else does, however late, early or often somebody says that an id is taken."""

import pytest

from exo_cli.engine.core.effects import Ask, Asked, Now, Replied, Reply, Tick
from exo_cli.engine.core.replica import Replica
from exo_cli.engine.core.state import State
from exo_cli.engine.core.wire import Envelope, Hello, Refusal, Welcome
from tests.builders import BEGAN, a_node, a_state, an_instance


def now(seconds):
    return Now(seconds, BEGAN)


def a_replica(address="a:1", *, peers=("b:1",), state=None, started=0.0):
    replica = Replica("a", 2, address, a_node("a"), state or State(), "1", peers)
    replica.start(now(started))
    return replica


def question(replica, seconds):
    """The next greeting of a node, whenever it comes after a time."""
    for tick in range(100):
        for each in replica.step(Tick(), now(seconds + tick * 0.5)).send:
            if isinstance(each, Ask) and isinstance(each.message, Hello):
                return each, seconds + tick * 0.5
    raise AssertionError("it greets nobody")


def said(replica, ask, body, seconds, source="b"):
    """What comes of an answer."""
    envelope = Envelope(cluster="c", source=source, incarnation=1, version="1", body=body)
    return replica.step(Replied(ask.ask_id, envelope), now(seconds))


def taken(address="b:1", **details):
    return Refusal(code="duplicate_id", reason="node id a is in use", details={"address": address, **details})


@pytest.mark.parametrize(
    ("mine", "theirs", "leaves"), [(1.0, 100.0, True), (1.0, 1.5, True), (30.0, 1.0, False), (100.0, 1000.0, False)]
)
def test_of_two_the_later_one_leaves_if_it_is_young(mine, theirs, leaves):
    replica = a_replica()
    ask, seconds = question(replica, mine)
    effects = said(replica, ask, taken(uptime_seconds=theirs), seconds, source="a")
    assert (effects.leave is not None) == leaves
    assert [note.fields["why"] for note in effects.note] == ["node id a is in use"]


@pytest.mark.parametrize(("address", "leaves"), [("a:1", False), ("c:1", True)])
def test_of_two_that_began_together_and_ask_each_other_one_leaves(address, leaves):
    replica = a_replica(address)
    ask, seconds = question(replica, 0.2)
    hello = Hello(address="b:1", facts=a_node("a"))
    greeting = Envelope(cluster="", source="a", incarnation=2, version="1", body=hello)
    answered = replica.step(Asked(greeting, "b"), now(seconds))
    assert any(isinstance(each, Reply) and isinstance(each.message, Refusal) for each in answered.send)
    effects = said(replica, ask, taken(uptime_seconds=0.2), seconds, source="a")
    assert (effects.leave is not None) == leaves


def test_a_master_that_comes_back_elsewhere_is_not_driven_out_by_who_hears_late():
    state = a_state(nodes=("a", "b", "c"), instances=[an_instance("i", ("a",))])
    replica = a_replica("a:2", peers=("b:7101", "c:7101"), state=state)
    welcome = Welcome(cluster_id="c-test", master="a", master_address="a:2", term=2, head=100, peers={})
    seconds = 0.0
    for at, answer in ((0.0, taken("a:7101")), (3.0, welcome), (25.0, taken("a:7101")), (27.0, welcome)):
        ask, seconds = question(replica, max(at, seconds))
        assert said(replica, ask, answer, seconds, source=ask.address[0]).leave is None


def test_who_is_refused_by_a_third_for_seconds_leaves():
    replica = a_replica()
    left = []
    seconds = 0.0
    for _ in range(6):
        ask, seconds = question(replica, seconds + 0.5)
        left.append(said(replica, ask, taken("z:1"), seconds).leave is not None)
    assert not left[0]
    assert left[-1]


def test_itself_is_named_as_that_once_and_asked_no_more():
    replica = a_replica(state=a_state(nodes=("a", "x")), peers=("localhost:1",))
    assert replica.is_master
    ask, seconds = question(replica, 0.5)
    effects = said(replica, ask, taken("a:1", uptime_seconds=1.0), seconds, source="a")
    assert effects.leave is None
    assert [note.fields["why"] for note in effects.note] == ["it is the address of this node itself"]
    assert "localhost:1" in replica.follower.link.met


def test_where_it_was_before_it_asks_once_and_says_nothing():
    replica = a_replica("a:2", peers=(), state=a_state(nodes=("a",)))
    assert replica.is_master
    ask, seconds = question(replica, 0.5)
    assert ask.address == "a:7101"
    effects = replica.step(Replied(ask.ask_id, None, "nobody there"), now(seconds))
    assert (effects.note, replica.follower.link.tried) == ([], {})
    with pytest.raises(AssertionError, match="it greets nobody"):
        question(replica, seconds + 1.0)
