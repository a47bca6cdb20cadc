"""Two nodes on one machine: both see the same, each can do all, and either may go and come back."""

import pytest

from tests.e2e.cluster import FOR_EVER, alive, wait_until

LOST_SECONDS = 15.0


@pytest.fixture(scope="module")
def pair(new_home, script):
    """The first node, which is the master, and a second that has joined it."""
    first, second = new_home(), new_home()
    engine = script("rate 200", 'repeat forever token "w{n} "')
    first.start(engine=engine, name="first")
    second.start(engine=engine, name="second", peer=first)
    wait_until(lambda: agree(first, second), "two nodes that see each other")
    return first, second


def agree(*homes):
    """Whether all see as many nodes as there are, and one master."""
    lists = [home.nodes() for home in homes]
    masters = {item["node_id"] for items in lists for item in items if item["master"]}
    return all(len(items) == len(homes) for items in lists) and len(masters) == 1


@pytest.fixture(autouse=True)
def _nothing_left(pair):
    yield
    if pair[0].show() is not None:
        pair[0].clear()
    wait_until(lambda: [home.runners() for home in pair if home.show()] in ([[]], [[], []]), "no runners anywhere")


def node_ids(pair):
    return [home.show()["node_id"] for home in pair]


def test_both_list_the_same_nodes_and_the_same_master(pair):
    lists = [home.exo("node", "list", "-o", "json").ok().items for home in pair]
    first_id, second_id = node_ids(pair)
    for items in lists:
        assert {item["node_id"]: (item["name"], item["master"]) for item in items} == {
            first_id: ("first", True),
            second_id: ("second", False),
        }
    assert [item["voter"] for item in lists[0]].count(True) == 1


def test_a_model_is_split_over_both_and_answers_at_either(pair):
    first, second = pair
    placed = second.exo("place", "wide", "--min-nodes", 2, "--strategy", "pipeline", "-o", "json").ok().item
    assert placed["status"] == "ready"
    runners = [home.exo("runners", "-o", "json").ok().items for home in pair]
    assert runners[0][0]["since"] == runners[1][0]["since"]
    ranks = {item["rank"]: (item["node_id"], item["layers"], item["world_size"]) for item in runners[1]}
    assert {node for node, _, _ in ranks.values()} == set(node_ids(pair))
    assert [layers for _, layers, _ in (ranks[0], ranks[1])] == [[0, 2], [2, 4]]
    assert {size for _, _, size in ranks.values()} == {2}
    for home in pair:
        assert home.exo("chat", "hello", "--max-tokens", 3).ok().out == "w0 w1 w2 \n"
    # Each of the ranks did its part of the end too.
    for home in pair:
        home.wait_idle()
    processes = first.runner_processes() + second.runner_processes()
    assert len(processes) == 2
    first.exo("delete", placed["instance_id"]).ok()
    assert alive(processes) == []
    for home in pair:
        wait_until(lambda home=home: home.runners() == [], "no runners here either", 2)


def test_an_instance_of_either_is_used_and_deleted_from_the_other(pair):
    for here, there in (pair, pair[::-1]):
        instance = here.exo("place", "m", "--nodes", there.show()["node_id"]).ok().out.strip()
        assert [len(home.runner_processes()) for home in (here, there)] == [0, 1]
        assert here.exo("chat", "hello", "--max-tokens", 3).ok().out == "w0 w1 w2 \n"
        chat = here.begin("chat", "hello", *FOR_EVER)
        chat.wait_says("w5 ")
        here.call("delete", instance_id=instance)
        assert chat.wait(2).failed(7, "was deleted").out.startswith("w0 w1 ")
        wait_until(lambda there=there: not there.runner_processes(), "the end of the process", 5)


def test_control_c_reaches_a_runner_of_the_other_node(pair):
    first, second = pair
    first.exo("place", "m", "--nodes", node_ids(pair)[1]).ok()
    assert first.shell("exo chat 'count for ever' | head -c 20").code == 0
    second.wait_idle(2)


@pytest.mark.long
def test_a_node_that_is_killed_is_missed_and_comes_back(pair):
    first, second = pair
    ids = node_ids(pair)
    stays = first.place("m", first_script(first), nodes=[ids[0]])
    goes = first.exo("place", "wide", "--min-nodes", 2).ok().out.strip()
    chat = first.begin("chat", "hello", "-m", "wide", *FOR_EVER)
    chat.wait_says("w5 ")
    second.begin("chat", "hello", "-m", "m", *FOR_EVER).wait_says("w5 ")
    children = second.kill()
    wait_until(lambda: not alive(children), "the end of its children", 3)
    ended = chat.wait(LOST_SECONDS)
    assert ended.code in {5, 7}, ended
    assert ended.out.startswith("w0 w1 ")
    wait_until(lambda: len(first.nodes()) == 1, "a shorter list of nodes", LOST_SECONDS)
    wait_until(lambda: {each["instance_id"] for each in first.runners()} == {stays}, "one instance less", 2)
    ends = [
        record["event"] for record in first.records() if record["event"]["type"] == "InstanceDeleted"
        and record["event"]["instance_id"] == goes
    ]  # fmt: skip
    assert [end["reason"] for end in ends] == ["node_lost"]
    wait_until(lambda: len(first.runner_processes()) == 1, "one process less", 5)
    first.exo("chat", "-m", "wide", "hi").failed(3)
    # What it had asked for is asked for by nobody now.
    first.wait_idle(LOST_SECONDS)
    assert first.exo("chat", "hello", "--max-tokens", 1).ok().out == "w0 \n"

    second.start(name="second", peer=first)
    wait_until(lambda: agree(first, second), "two nodes again")
    assert node_ids(pair) == ids
    assert second.exo("chat", "hello", "--max-tokens", 1).ok().out == "w0 \n"


def first_script(home):
    """The script that its placements follow by themselves."""
    assert home.node is not None
    return home.node.words[home.node.words.index("--engine") + 1].removeprefix("scripted:")


@pytest.mark.long
def test_the_first_node_comes_back_with_its_instances_and_was_not_missed_by_chats(pair, script):
    first, second = pair
    ids = node_ids(pair)
    steady = script("rate 40", 'repeat 160 token "w{n} "')
    instance = first.place("m", first_script(first), nodes=[ids[0]])
    other = first.place("steady", steady, nodes=[ids[1]])
    wait_until(lambda: len({home.show()["state_hash"] for home in pair}) == 1, "one state", 5)
    engine = first_script(first)
    going_on = second.begin("chat", "hello", "-m", "steady")
    going_on.wait_says("w3 ")
    first.kill()
    # Chats need no master: neither one that runs, nor one that begins.
    assert second.exo("chat", "hello", "-m", "steady", "--max-tokens", 2).ok().out == "w0 w1 \n"
    assert going_on.wait(10).ok().out == "".join(f"w{n} " for n in range(160)) + "\n"
    second.exo("place", "more", "--min-nodes", 1).failed(5)

    first.start(engine=engine, name="first", peer=second)
    wait_until(lambda: agree(first, second), "two nodes again", 20)
    assert node_ids(pair) == ids
    with second.client() as client:
        for _ in client.stream("wait", instance_id=instance, timeout_seconds=30, **{"for": "ready"}):
            pass
    assert second.exo("chat", "hello", "-m", "m", "--max-tokens", 1).ok().out == "w0 \n"
    assert {each["instance_id"] for each in first.runners()} == {instance, other}
    wait_until(lambda: len({home.show()["state_hash"] for home in pair}) == 1, "one state", 5)
    # What the chats did meanwhile is told afterwards, once.
    histories = [
        record["event"]["task_id"] for record in first.records() if record["event"]["type"] == "TaskDeleted"
    ]  # fmt: skip
    assert len(histories) == len(set(histories))
    wait_until(lambda: told_of(first, other) >= 2, "the histories of both chats", 10)


def told_of(home, instance_id):
    """How many chats of an instance have a history in the log of a node."""
    return sum(
        record["event"]["type"] == "TaskCreated" and record["event"]["task"]["instance_id"] == instance_id
        for record in home.records()
    )
