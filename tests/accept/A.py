"""First light, in its long forms: failures twenty times over, logs cut and flipped at every byte, and the figures."""

import shutil
import statistics
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from exo_cli.engine.core.errors import BadDataError, BadStateError
from exo_cli.engine.replaying import replay
from tests.e2e.cluster import FOR_EVER, PROGRAM, alive, broken_hub, wait_until

TIMES = 20
IDLE_SECONDS = 120.0


@pytest.fixture(scope="module")
def scripts(script):
    return {
        "endless": script("rate 200", 'repeat forever token "w{n} "'),
        "long": script('repeat 200 token "w{n} "'),
        "short": script("token Hello"),
        "broken": script("on load raise tensor 7 is missing"),
    }


def grown(home, before):
    """By how much the log grew, in words."""
    records, size = before
    return f"{len(home.records()) - records} records, {home.log_bytes() - size} bytes"


def wait_status(home, instance_id, status, seconds=60.0):
    def seen():
        found = [item for item in home.call("instances")["items"] if item["instance_id"] == instance_id]
        return found and found[0]["status"] == status and found[0]

    return wait_until(seen, f"{instance_id} is {status}", seconds)


def test_a_runner_is_killed_twenty_times(new_home, scripts, figure):
    home = new_home()
    home.start()
    instance = home.place("m", scripts["endless"])
    before = (len(home.records()), home.log_bytes())
    seconds = []
    for number in range(TIMES):
        wait_status(home, instance, "ready")
        chat = home.begin("chat", "count", *FOR_EVER)
        chat.wait_says("w3 ")
        [process] = home.runner_processes()
        process.kill()
        began = time.monotonic()
        chat.wait(3).failed(7, "SIGKILL")
        seconds.append(time.monotonic() - began)
        if number % 5 == 4:
            # Five in a row within a minute are the end, until somebody says otherwise.
            wait_status(home, instance, "failed")
            assert home.runner_processes() == []
            home.call("restart", instance_id=instance)
    wait_status(home, instance, "ready")
    assert len(home.runner_processes()) == 1
    assert home.exo("chat", "again", "--max-tokens", 2).ok().out == "w0 w1 \n"
    assert len(home.records()) - before[0] <= TIMES * 12
    figure(f"log of {TIMES} killed runners, each with a chat", grown(home, before))
    figure("from kill -9 of a runner to the end of its chat", f"{max(seconds):.2f} s at most", "3 s")
    folded = replay(str(home.paths.log))
    assert folded["item"]["state_hash"] == home.show()["state_hash"]
    assert home.stop().code == 0


def test_a_model_does_not_load_twenty_times(new_home, scripts, figure):
    home = new_home()
    home.start()
    before = (len(home.records()), home.log_bytes())
    item = home.call("place", model="m", engine=f"scripted:{scripts['broken']}")["item"]
    for _ in range(TIMES // 5):
        wait_status(home, item["instance_id"], "failed")
        [runner] = home.runners()
        assert (runner["status"], runner["failures"]) == ("RunnerFailed", 5)
        assert "tensor 7 is missing" in runner["error"]
        home.call("restart", instance_id=item["instance_id"])
    home.delete(item["instance_id"])
    assert len(home.records()) - before[0] <= TIMES * 8
    figure(f"log of {TIMES} failing loads", grown(home, before), "bounded")


def test_a_model_does_not_come_twenty_times(new_home, figure):
    with broken_hub(503) as hub:
        home = new_home()
        home.environment |= {"HF_ENDPOINT": hub.address}
        home.start()
        before = (len(home.records()), home.log_bytes())
        item = home.call("place", model="org/tiny", engine="mlx")["item"]
        wait_until(lambda: hub.refused >= TIMES, f"{TIMES} tries", 400)
        spent = len(home.records()) - before[0]
        assert spent <= TIMES * 3 + 5, home.record_counts()
        figure(f"log of {TIMES} failing downloads", grown(home, before), "bounded")
        assert "503" in home.call("instances")["items"][0]["error"]
        home.delete(item["instance_id"])


def test_a_log_is_cut_and_flipped_at_every_byte(new_home, scripts, figure, tmp_path):
    home = new_home()
    home.start()
    instance = home.place("m", scripts["short"])
    for _ in range(3):
        home.exo("chat", "hello").ok()
    home.delete(instance)
    whole = home.show()
    assert home.stop().code == 0
    [segment] = home.paths.log.glob("*.log")
    data = segment.read_bytes()
    lines = data.splitlines(keepends=True)
    full = replay(str(segment))
    assert full["exit_code"] == 0
    assert full["item"]["state_hash"] == whole["state_hash"]
    last = full["item"]["last_index"]
    # A node that stops writes a closing line behind its last record; records are what has an index.
    ends = [at for at, line in enumerate(lines) if b'"index":' in line[:9]]
    first_cut = sum(map(len, lines[: ends[-2]]))

    file = tmp_path / "cut.log"
    torn = 0
    for cut in range(first_cut, len(data)):
        file.write_bytes(data[:cut])
        folded = replay(str(file))["item"]
        whole_lines = data[:cut].count(b"\n")
        missing = sum(at >= whole_lines for at in ends)
        assert last - missing <= folded["last_index"] <= last, cut
        assert (folded["torn_tail"] is None) == data[:cut].endswith(b"\n"), cut
        torn += folded["torn_tail"] is not None
        assert file.read_bytes() == data[:cut], "replay never writes"
    figure("cuts of the last two records", f"{len(data) - first_cut} folded, {torn} with a torn tail", "all")

    middle = ends[len(ends) // 2]
    begin = sum(map(len, lines[:middle]))
    refused = 0
    for at in range(begin, begin + len(lines[middle])):
        flipped = bytearray(data)
        flipped[at] ^= 0x15
        file.write_bytes(flipped)
        with pytest.raises(BadDataError) as caught:
            replay(str(file))
        assert caught.value.exit_code == 12
        assert str(begin) in str(caught.value.message), caught.value.message
        refused += 1
    figure("flips of a record in the middle", f"{refused} of {len(lines[middle])} refused, with the offset", "all")

    # A node opens what is torn, says so, and goes on behind it.
    segment.write_bytes(data[: sum(map(len, lines[: ends[-1]])) + 9])
    shutil.rmtree(home.paths.journal, ignore_errors=True)
    home.start()
    assert "torn" in home.node.err or "cut" in home.node.err, home.node.err
    home.place("m", scripts["short"])
    assert home.exo("chat", "hello").ok().out == "Hello\n"
    assert home.stop().code == 0
    assert replay(str(home.paths.log))["exit_code"] == 0


def test_a_node_is_killed_twenty_times(new_home, scripts, figure):
    home = new_home()
    home.start()
    instance = home.place("m", scripts["endless"])
    seconds = []
    for _ in range(TIMES):
        chat = home.begin("chat", "count", *FOR_EVER)
        chat.wait_says("w3 ")
        children = home.kill()
        began = time.monotonic()
        wait_until(lambda children=children: not alive(children), "the end of its children", 3)
        seconds.append(time.monotonic() - began)
        chat.wait(3).failed(5)
        home.start()
        wait_status(home, instance, "ready")
    figure("from kill -9 of a node to the end of its runner", f"{max(seconds):.2f} s at most", "3 s")
    assert replay(str(home.paths.log))["exit_code"] == 0


def test_an_idle_node_does_next_to_nothing(new_home, scripts, figure):
    home = new_home()
    home.start()
    home.place("m", scripts["short"])
    home.exo("chat", "hello").ok()
    node = psutil.Process(home.pid)
    [runner] = home.runner_processes()
    time.sleep(3.0)  # what lasts a second is told after a second
    before, size, began = node.cpu_times(), home.log_bytes(), time.monotonic()
    runner_before = runner.cpu_times()
    time.sleep(IDLE_SECONDS)
    spent, now = time.monotonic() - began, node.cpu_times()
    busy = (now.user + now.system - before.user - before.system) / spent
    idle_runner = (sum(runner.cpu_times()[:2]) - sum(runner_before[:2])) / spent
    memory = node.memory_info().rss >> 20
    size = home.log_bytes() - size
    figure("idle node, CPU", f"{100 * busy:.2f} %", "under 1 %")
    figure("idle scripted runner, CPU", f"{100 * idle_runner:.2f} %")
    figure("idle node, resident memory", f"{memory} MiB", "under 120 MB")
    figure("idle node, log", f"{size} bytes in {spent:.0f} s, {size * 86400 / spent / 1e6:.2f} MB a day", "under 1 MB")
    assert memory < 120
    assert size * 86400 / spent < 1e6


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def test_what_a_command_takes(new_home, scripts, figure):
    home = new_home()
    home.start()
    places, deletes = [], []
    with home.client() as client:
        for number in range(TIMES):
            began = time.perf_counter()
            item = client.call("place", model=f"m{number}", engine=f"scripted:{scripts['short']}")["item"]
            placed = time.perf_counter()
            with suppress(BadStateError):
                for _ in client.stream("wait", instance_id=item["instance_id"], **{"for": "ready"}):
                    pass
            asked = time.perf_counter()
            client.call("delete", instance_id=item["instance_id"])
            places.append(placed - began)
            deletes.append(time.perf_counter() - asked)
            for _ in client.stream("wait", instance_id=item["instance_id"], **{"for": "deleted"}):
                pass
    for what, values in (("place", places), ("delete", deletes)):
        figure(
            f"{what} acknowledged, one node",
            f"p50 {1e3 * statistics.median(values):.1f} ms, p90 {1e3 * quantile(values, 0.9):.1f} ms",
            "p50 5 ms",
        )

    home.place("m", scripts["short"])
    bare = [first_byte([sys.executable, "-c", "print(1)"], home) for _ in range(TIMES)]
    chats = [first_byte([str(PROGRAM), "chat", "--no-stdin", "hi"], home) for _ in range(TIMES)]
    lists = [first_byte([str(PROGRAM), "runners"], home) for _ in range(TIMES)]
    figure("python -c, first byte", f"p50 {1e3 * statistics.median(bare):.0f} ms")
    figure("warm chat of the shell, first byte", f"p50 {1e3 * statistics.median(chats):.0f} ms", "300 ms")
    figure("exo runners, first byte", f"p50 {1e3 * statistics.median(lists):.0f} ms", "25 times python")

    home.clear()
    home.place("m", scripts["long"])
    before = (len(home.records()), home.log_bytes())
    for _ in range(TIMES):
        home.exo("chat", "tell me").ok()
    wait_until(lambda: home.records()[-1]["event"]["type"] == "TaskDeleted", "the last history")
    size = (home.log_bytes() - before[1]) / TIMES
    figure("log of a chat of 200 tokens", f"{size:.0f} bytes", "1500 bytes")
    assert size <= 1500


def first_byte(words, home):
    """Seconds from the start of a process to the first byte that it prints."""
    began = time.perf_counter()
    with subprocess.Popen(words, env=home.environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.read(1), words
        seconds = time.perf_counter() - began
        process.stdout.read()
    assert process.returncode == 0
    return seconds
