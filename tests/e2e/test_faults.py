"""What breaks: runners that are killed, models that do not load or come, instances that go, the node itself."""

import time

import pytest

from exo_cli.engine.core.errors import BadStateError
from tests.e2e.cluster import FOR_EVER, alive, broken_hub, wait_until


@pytest.fixture(scope="module")
def scripts(script):
    """What the instances of these tests do."""
    return {
        "endless": script("rate 200", 'repeat forever token "w{n} "'),
        "stumbles": script("request 1:", "token one", "raise out of luck", "request 2:", "token two"),
        "deaf": script("token one", "block hard", "on stop block hard"),
        "slow": script("on load sleep 30"),
        "steady": script("rate 40", 'repeat 120 token "w{n} "', "token end"),
    }


@pytest.fixture(scope="module")
def home(new_home, script):
    """A node for all of it."""
    with broken_hub(404) as hub:
        home = new_home()
        home.environment |= {"HF_ENDPOINT": hub.address}
        # A placement that does not say otherwise is one that breaks while it loads.
        home.start(engine=script("on load layers 2", "on load raise tensor 7 is missing"))
        yield home


@pytest.fixture(autouse=True)
def _nothing_left(home):
    yield
    if home.show() is not None:
        home.clear()


def chatting(home, *words):
    """A chat that has begun to answer."""
    chat = home.begin("chat", "count", *words, *FOR_EVER)
    chat.wait_says("w5 ")
    return chat


def test_a_runner_that_is_killed_ends_its_chat_and_is_started_again(home, scripts):
    instance = home.place("m", scripts["endless"])
    [process] = home.runner_processes()
    chat = chatting(home)
    process.kill()
    ended = chat.wait(3).failed(7, "signal 9", "SIGKILL", f"{instance}-0")
    assert ended.out.startswith("w0 w1 ")
    assert ended.out.endswith("\n")
    wait_until(lambda: "signal 9" in (home.runners()[0]["last_error"] or ""), "the reason in exo runners", 2)
    shown = home.exo("runners", "-o", "json").ok().items[0]
    assert "signal 9" in shown["last_error"]
    assert shown["failures"] == 1
    assert "signal 9" in home.exo("runners", "-o", "wide").ok().out
    # The next chat waits for the fresh runner.
    assert home.exo("chat", "again", "--max-tokens", 3).ok().out == "w0 w1 w2 \n"
    [fresh] = home.runner_processes()
    assert fresh.pid != process.pid


@pytest.mark.long
def test_a_runner_that_is_stopped_in_its_tracks_is_given_up_and_started_again(new_home, scripts):
    home = new_home()
    home.environment |= {"EXO_STALL_SECONDS": "5"}
    home.start()
    home.place("m", scripts["endless"])
    [process] = home.runner_processes()
    chat = chatting(home)
    process.suspend()
    chat.wait(15).failed(7, "no progress for 5 s while decoding")
    assert not alive([process])
    wait_until(lambda: "no progress" in (home.runners()[0]["last_error"] or ""), "the reason in exo runners", 2)
    chatting(home)


def test_delete_ends_the_chats_of_its_instance_and_no_others(home, scripts):
    doomed, other = home.place("doomed", scripts["endless"]), home.place("other", scripts["steady"])
    going_on = chatting(home, "-m", "other")
    chat = chatting(home, "-m", "doomed")
    began = time.monotonic()
    home.call("delete", instance_id=doomed)
    ended = chat.wait(2).failed(7, f"instance {doomed} was deleted")
    assert time.monotonic() - began < 2
    assert ended.out.startswith("w0 w1 ")
    wait_until(lambda: {runner["instance_id"] for runner in home.runners()} == {other}, "one instance less", 5)
    assert len(home.runner_processes()) == 1
    assert going_on.wait(20).ok().out == "".join(f"w{n} " for n in range(120)) + "end\n"
    ends = [
        record["event"] for record in home.records()[-20:] if record["event"]["type"] == "TaskStatusUpdated"
        and record["event"]["task_status"] not in {"Running", "Pending"}
    ]  # fmt: skip
    assert sorted(end["task_status"] for end in ends[-2:]) == ["Cancelled", "Complete"]


def test_a_request_that_fails_fails_alone(home, scripts):
    home.place("m", scripts["stumbles"])
    [process] = home.runner_processes()
    ended = home.exo("chat", "hello").failed(7, "out of luck")
    assert ended.out == "one\n"
    assert home.exo("chat", "hello").ok().out == "two\n"
    assert [each.pid for each in home.runner_processes()] == [process.pid]
    assert home.runners()[0]["failures"] == 0


@pytest.mark.long
def test_a_runner_that_ignores_the_order_to_stop_is_ended(home, scripts):
    instance = home.place("m", scripts["deaf"])
    chat = home.begin("chat", "hello")
    chat.wait_says("one")
    began = time.monotonic()
    deleting = home.begin("delete", instance)
    chat.wait(5).failed(7, "was deleted")
    # The next placement does not wait for it.
    again = home.place("m", scripts["endless"])
    assert home.exo("chat", "hello", "--max-tokens", 1).ok().out == "w0 \n"
    deleting.wait(15).ok()
    assert time.monotonic() - began < 15
    assert [runner["instance_id"] for runner in home.runners()] == [again]


def test_why_a_runner_does_not_move_is_told_live(home, scripts):
    with home.client() as client:
        placed = client.call("place", model="m", engine=f"scripted:{scripts['slow']}", new=True)["item"]
    wait_until(lambda: home.runners()[0]["status"] == "RunnerLoading", "a runner that loads")
    told = home.exo("runners", "why", placed["instance_id"]).ok().out
    assert "warm up                it is RunnerLoading, not RunnerLoaded" in told
    [row] = home.exo("runners", "why", "-o", "json").ok().items
    assert (row["runner_id"], row["stuck"]) == (placed["runners"][0], False)
    assert len(row["rules"]) == 8
    assert home.exo("runners", "--why").ok().out == home.exo("runners", "why").ok().out
    home.exo("runners", "why", "nobody").failed(3, "nothing that is placed is called 'nobody'")


def test_a_chat_that_waits_for_its_model_hears_of_its_end(home, scripts):
    item = home.call("place", model="slow", engine=f"scripted:{scripts['slow']}")["item"]
    chat = home.begin("chat", "hello", "-m", "slow")
    wait_until(lambda: "waiting for" in chat.err, "a chat that waits")
    home.call("delete", instance_id=item["instance_id"])
    chat.wait(3).failed(3, "no instance of 'slow'")


@pytest.mark.long
def test_a_model_that_does_not_load_fails_with_its_reason_and_little_log(home):
    before, counts = home.log_bytes(), home.record_counts()
    placed = home.exo("place", "broken", seconds=60).failed(7, "tensor 7 is missing")
    instance = placed.out.strip()
    assert f"hint: exo delete {instance}" in placed.err
    [runner] = home.runners()
    assert runner["status"] == "RunnerFailed"
    assert "tensor 7 is missing" in runner["error"]
    assert runner["failures"] == 5
    wait_until(lambda: not home.runner_processes(), "no process of it")
    home.exo("chat", "hi").failed(7, "tensor 7 is missing", "hint: exo runners restart")
    grown = home.record_counts() - counts
    assert sum(grown.values()) <= 6 * 5 + 5, grown
    assert home.log_bytes() - before <= 12_000
    # It rests: nothing more is written.
    at_rest = home.log_bytes()
    time.sleep(1.0)
    assert home.log_bytes() == at_rest
    assert "tensor 7 is missing" in home.exo("runners", "logs", runner["runner_id"]).ok().out


def test_a_model_that_does_not_come_fails_with_its_reason_and_little_log(home):
    before, counts = home.log_bytes(), home.record_counts()
    instance = home.call("place", model="org/tiny", engine="mlx")["item"]["instance_id"]
    with pytest.raises(BadStateError, match="org/tiny"), home.client() as client:
        for _ in client.stream("wait", instance_id=instance, timeout_seconds=30, **{"for": "ready"}):
            pass
    [item] = home.call("instances")["items"]
    assert item["status"] == "failed"
    at_rest = home.log_bytes()
    time.sleep(1.0)
    assert home.log_bytes() == at_rest
    grown = home.record_counts() - counts
    assert grown["NodeDownloadProgress"] <= 2
    assert sum(grown.values()) <= 8
    assert home.log_bytes() - before <= 4000


def test_a_node_that_is_killed_leaves_no_process_and_a_log_that_opens(home, scripts):
    instance = home.place("m", scripts["endless"])
    last = home.records()[-1]["index"]
    chat = chatting(home)
    node_id = home.show()["node_id"]
    children = home.kill()
    assert len(children) == 1
    wait_until(lambda: not alive(children), "the end of its children", 3)
    chat.wait(3).failed(5)
    home.exo("runners").failed(5, "no node is running")

    home.start()
    assert home.show()["node_id"] == node_id
    assert [item["instance_id"] for item in home.call("instances")["items"]] == [instance]
    with home.client() as client:
        for _ in client.stream("wait", instance_id=instance, timeout_seconds=30, **{"for": "ready"}):
            pass
    assert len(home.runner_processes()) == 1
    assert home.exo("chat", "again", "--max-tokens", 2).ok().out == "w0 w1 \n"
    records = home.records()
    assert [record["index"] for record in records] == list(range(len(records)))
    assert len(records) > last
