"""One node from start to stop: placing, chatting and deleting, in the shapes that scripts rely on."""

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.cluster import FOR_EVER, alive, wait_until

CANARY = "xylophone-canary-4711"
LOG_BYTES_A_CHAT = 1500


@pytest.fixture(scope="module")
def home(new_home, script):
    """A node whose placements answer with two tokens."""
    home = new_home()
    home.start(engine=script("token Hello", 'token " there"'), name="first")
    return home


@pytest.fixture(autouse=True)
def _nothing_left(home):
    """No test is in the way of the next."""
    yield
    if home.show() is not None:
        home.clear()


@pytest.fixture(scope="module")
def scripts(script):
    """What the instances of these tests do."""
    return {
        "echo": script("echo"),
        "long": script('repeat 200 token "w{n} "'),
        "endless": script("rate 200", 'repeat forever token "w{n} "'),
        "slow": script("rate 100", 'repeat 15 token "w{n} "'),
    }


def test_a_model_is_placed_talked_to_and_deleted(home):
    shown = home.exo("node", "show", "-o", "json").ok()
    assert {"kind", "schema", "revision", "item"} == json.loads(shown.out).keys()
    node = shown.item
    assert node["name"] == "first"
    assert node["master"] is True
    assert node["voter"] is True
    assert node["listen"] == home.address
    assert node["log_dir"] == str(home.paths.log)
    assert {"node_id", "state", "addresses", "memory_bytes", "endpoint", "term", "index", "state_hash"} <= node.keys()

    placed = home.exo("place", "smollm2", "-o", "json").ok()
    assert json.loads(placed.out)["kind"] == "Instance"
    instance = placed.item
    assert (instance["model"], instance["status"], instance["changed"]) == ("smollm2", "ready", "created")
    assert instance["runners"] == [f"{instance['instance_id']}-0"]
    again = home.exo("place", "smollm2").ok()
    assert again.out == f"{instance['instance_id']}\n"
    assert len(home.children()) == 1

    listed = home.exo("runners", "-o", "json").ok()
    document = json.loads(listed.out)
    assert (document["kind"], document["schema"]) == ("RunnerList", 1)
    [runner] = document["items"]
    assert runner["status"] == "RunnerReady"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", runner.pop("since"))
    expected = {
        "runner_id": instance["runners"][0],
        "instance_id": instance["instance_id"],
        "node_id": node["node_id"],
        "model": "smollm2",
        "strategy": "pipeline",
        "rank": 0,
        "world_size": 1,
        "layers": [0, 4],
        "error": None,
    }
    assert expected.items() <= runner.items()

    said = home.exo("chat", "Say hello", "--max-tokens", 16).ok()
    assert said.out == "Hello there\n"
    assert home.exo("chat", "Say hello", "--max-tokens", 1).ok().out == "Hello\n"
    answer = home.exo("chat", "Say hello", "-o", "json").ok().item
    assert answer["text"] == "Hello there"
    assert answer["finish_reason"] == "stop"
    assert answer["usage"]["tokens"] == 2

    [listed_node] = home.exo("node", "list", "-o", "json").ok().items
    assert listed_node["node_id"] == node["node_id"]
    assert {"name", "master", "voter", "state", "addresses", "memory_bytes"} <= listed_node.keys()

    processes = home.children()
    deleted = home.exo("delete", instance["instance_id"]).ok()
    assert deleted.out == f"deleted {instance['instance_id']}\n"
    assert home.exo("runners", "-o", "json").ok().items == []
    assert alive(processes) == []

    live = home.show()
    folded = home.exo("replay", home.paths.log, "-o", "json").ok()
    assert json.loads(folded.out)["kind"] == "Replay"
    assert folded.item["state_hash"] == live["state_hash"]
    assert folded.item["last_index"] == json.loads(folded.out)["revision"] == live["index"]
    assert folded.item["findings"] == []
    assert folded.item["torn_tail"] is None
    assert folded.item["state"]["instances"] == {}
    assert folded.item["state"]["runners"] == {}


def test_what_is_not_there_has_its_own_exit_code(home, scripts):
    home.exo("chat", "hello").failed(3, "hint: exo place smollm2")
    home.exo("delete", "i-nosuchthing").failed(3, "no instance")
    home.exo("chat", "hello", "--endpoint", "127.0.0.1:9").failed(5, "127.0.0.1:9", "--endpoint")
    home.exo("runners", EXO_ENDPOINT="127.0.0.1:9").failed(5, "EXO_ENDPOINT")
    ids = [home.place("twin", scripts["echo"]), home.place("twin", scripts["echo"])]
    home.exo("delete", "i-").failed(2, "ambiguous", *ids)
    assert {runner["instance_id"] for runner in home.runners()} == set(ids)
    home.exo("delete", *ids).ok()


def test_a_node_is_reached_by_its_address(home, scripts):
    instance = home.place("echo", scripts["echo"])
    home.path.joinpath("elsewhere").mkdir()
    far = {"EXO_HOME": str(home.path / "elsewhere"), "EXO_ENDPOINT": home.address}
    assert [item["instance_id"] for item in home.exo("runners", "-o", "json", **far).ok().items] == [instance]
    assert home.exo("chat", "one two three", **far).ok().out == "one two three\n"
    second = home.exo("place", "other", "--endpoint", home.address, EXO_HOME=far["EXO_HOME"]).ok().out.strip()
    assert home.exo("chat", "hi", "-m", "other", "--endpoint", home.address, EXO_HOME=far["EXO_HOME"]).ok().out == (
        "Hello there\n"
    )
    home.exo("delete", instance, second, **far).ok()
    assert home.runners() == []


def test_the_log_holds_no_prompt_and_little_of_a_chat(home, scripts):
    instance = home.place("long", scripts["long"])
    echo = home.place("echo", scripts["echo"])
    before = home.log_bytes()
    said = home.exo("chat", "-m", "long", f"Tell me of the {CANARY}. " + "Much of it. " * 100, "-o", "json").ok()
    assert said.item["usage"]["tokens"] == 200
    wait_until(lambda: home.log_bytes() > before, "the history of the chat")
    assert home.log_bytes() - before <= LOG_BYTES_A_CHAT
    assert CANARY in home.exo("chat", "-m", "echo", f"Say {CANARY}", "--system", f"You are {CANARY}").ok().out
    assert home.files_with(CANARY.encode()) == []
    home.delete(instance, echo)


def test_a_chat_that_lasts_is_told_in_one_history(home, scripts):
    instance = home.place("slow", scripts["endless"])
    before = home.log_bytes()
    home.exo("chat", "-m", "slow", "hello", "--max-tokens", 300).ok()
    wait_until(lambda: home.call("node")["item"]["index"] and home.record_counts()["TaskDeleted"], "its end")
    wait_until(lambda: home.records()[-1]["event"].get("runner_status", {}).get("type") == "RunnerReady", "idle again")
    assert home.log_bytes() - before <= LOG_BYTES_A_CHAT
    home.delete(instance)


def test_eight_chats_at_once_all_end(home, scripts):
    instance = home.place("slow", scripts["slow"])
    home.wait_idle()

    def ask(number):
        with home.client() as client:
            asking = client.stream("chat", messages=[{"role": "user", "content": f"number {number}"}])
            text = ""
            while True:
                try:
                    text += next(asking).get("text", "")
                except StopIteration as end:
                    return text, end.value["item"]["finish_reason"]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert answers == [("".join(f"w{n} " for n in range(15)), "stop")] * 8
    home.wait_idle()
    home.delete(instance)


def test_control_c_ends_a_chat_and_frees_its_runner(home, scripts):
    instance = home.place("endless", scripts["endless"])
    counts = home.record_counts()
    chat = home.begin("chat", "count for ever", *FOR_EVER)
    chat.wait_says("w9 ")
    chat.process.send_signal(signal.SIGINT)
    ended = chat.wait(2)
    assert ended.code == -signal.SIGINT
    assert ended.out.startswith("w0 w1 w2 ")
    assert "Traceback" not in ended.err
    home.wait_idle(2)
    wait_until(lambda: home.record_counts()["TaskDeleted"] > counts["TaskDeleted"], "the end of its task", 2)
    [ending] = [
        record["event"] for record in home.records()[-8:]
        if record["event"]["type"] == "TaskStatusUpdated" and record["event"]["task_status"] == "Cancelled"
    ]  # fmt: skip
    assert ending["finish_reason"] == "cancelled"

    # The reader of a pipe goes away.
    piped = home.shell("exo chat 'count for ever' | head -c 20; code=${PIPESTATUS[0]}; echo; echo $code").ok()
    assert piped.out.splitlines()[0] == "w0 w1 w2 w3 w4 w5 w6 w7 "[:20]
    assert piped.out.splitlines()[1] == "141"
    assert "Traceback" not in piped.err
    home.wait_idle(2)
    # The runner has its hands free: the next one is answered at once.
    assert home.exo("chat", "again", "--max-tokens", 3).ok().out == "w0 w1 w2 \n"
    home.delete(instance)


def test_control_c_reaches_a_node_by_its_address(home, scripts):
    home.place("endless", scripts["endless"])
    chat = home.begin("chat", "count for ever", "--endpoint", home.address, *FOR_EVER)
    chat.wait_says("w9 ")
    chat.process.send_signal(signal.SIGINT)
    ended = chat.wait(3)
    assert ended.code == -signal.SIGINT
    assert "Traceback" not in ended.err
    home.wait_idle(2)


def test_a_node_that_is_stopped_ends_its_chats_with_a_word(home, scripts):
    home.place("endless", scripts["endless"])
    chat = home.begin("chat", "count for ever", *FOR_EVER)
    chat.wait_says("w9 ")
    processes = home.children()
    assert len(processes) == 1
    assert home.stop().code == 0
    ended = chat.wait(2).failed(7, "is stopping")
    assert ended.out.startswith("w0 w1 ")
    assert alive(processes) == []
    assert not home.paths.control_socket.exists()
    home.exo("runners").failed(5, "no node is running")
