"""What a name, an id or the beginning of one means to the control surface."""

import pytest

from exo_cli.engine.core.errors import NotFoundError, UsageError
from exo_cli.engine.surface.asked import chosen

NODES = [
    {"node_id": "n-aa1", "name": "big"},
    {"node_id": "n-aa2", "name": "laptop"},
    {"node_id": "n-bb3", "name": "laptop"},
    {"node_id": "n-cc4", "name": "n-aa1"},
    {"node_id": "laptop-9", "name": "odd"},
]
RUNNERS = [
    {"runner_id": "i-a-0", "instance_id": "i-a"},
    {"runner_id": "i-a-1", "instance_id": "i-a"},
    {"runner_id": "i-b-0", "instance_id": "i-b"},
]


def a_node(wanted):
    return chosen(wanted, NODES, ("node_id", "name"), "node", "exo node list")["node_id"]


def a_restart(wanted):
    return chosen(wanted, RUNNERS, ("runner_id", "instance_id"), "runner", "exo runners", identity="instance_id")


@pytest.mark.parametrize(
    ("wanted", "node_id"),
    [("n-aa1", "n-aa1"), ("big", "n-aa1"), ("n-b", "n-bb3"), ("bi", "n-aa1"), ("odd", "laptop-9")],
)
def test_an_id_counts_before_a_name_and_both_before_their_beginnings(wanted, node_id):
    assert a_node(wanted) == node_id


@pytest.mark.parametrize(
    ("wanted", "candidates"),
    [("laptop", ["n-aa2", "n-bb3"]), ("n-aa", ["n-aa1", "n-aa2", "n-cc4"]), ("lap", ["n-aa2", "n-bb3", "laptop-9"])],
)
def test_what_several_are_called_is_nobody_in_particular(wanted, candidates):
    with pytest.raises(UsageError) as caught:
        a_node(wanted)
    assert (caught.value.code, caught.value.exit_code) == ("ambiguous", 2)
    assert caught.value.message.splitlines()[1:] == [f"  {each}" for each in candidates]


@pytest.mark.parametrize("wanted", ["", "n-x", "BIG"])
def test_what_nobody_is_called_is_not_found(wanted):
    with pytest.raises(NotFoundError):
        a_node(wanted)


@pytest.mark.parametrize("wanted", ["i-a", "i-a-1", "i-a-"])
def test_runners_of_one_instance_are_one_thing_to_restart(wanted):
    assert a_restart(wanted)["instance_id"] == "i-a"


def test_runners_of_two_are_not():
    with pytest.raises(UsageError, match="ambiguous"):
        a_restart("i-")
