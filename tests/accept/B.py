"""Replay, in its long forms: the bars at a million events, the least log of a long one, garbage without end, reruns."""

import json
import random
import subprocess
import sys
import time

import zstandard

import bench.replay
from bench.logs import events_of, write
from exo_cli.engine.core.errors import BadDataError, NotFoundError
from exo_cli.engine.core.events import InstanceDeleted, RunnerStatusUpdated
from exo_cli.engine.core.runners import RunnerShutdown
from exo_cli.engine.log.rotation import Limits
from exo_cli.engine.replaying import replay
from exo_cli.engine.replaying.rerunning import rerun
from exo_cli.engine.replaying.trials import shrink
from tests.e2e.cluster import wait_until
from tests.engine.test_recordings import RECORDINGS, events_in, frames
from tests.sim.story import run

SHRUNK_EVENTS, SHRUNK_SECONDS = 300_000, 60.0
FUZZED, SEEDS, CHATS = 3000, range(100, 130), 200
GARBAGE_BYTES = 700 << 20


def test_the_bars(figure):
    rows = bench.replay.run()
    for row in rows:
        bar = "" if row.bar is None else f"{'>=' if row.at_least else '<='} {row.bar:g}"
        figure(row.what, f"{row.value:,.2f} {row.unit}", bar)
    assert [row.what for row in rows if row.verdict == "MISSED"] == []


def test_a_long_log_is_cut_down_to_a_few_events(tmp_path, figure):
    """The log of a busy cluster, in which one runner in the middle never said that it was gone."""
    events, deleted, silent = [], set(), None
    for event in events_of(SHRUNK_EVENTS):
        if isinstance(event, InstanceDeleted):
            deleted.add(event.instance_id)
        is_shutdown = isinstance(event, RunnerStatusUpdated) and isinstance(event.runner_status, RunnerShutdown)
        if silent is None and len(events) > SHRUNK_EVENTS // 2 and is_shutdown:
            instance_id, _, rank = event.runner_id.rpartition("-")
            if instance_id in deleted and rank == "0":
                silent = event.runner_id
                continue
        events.append(event)
    log = write(tmp_path / "log", events)
    [wanted] = replay(str(log), check=True)["item"]["findings"]
    assert wanted["id"] == silent
    began = time.monotonic()
    finding, placed, _test = shrink(str(log), f"{wanted['kind']}:{silent}")
    seconds = time.monotonic() - began
    figure(f"{SHRUNK_EVENTS:,} events cut down", f"{len(placed)} events in {seconds:.1f} s", "12 events, 60 s")
    assert (finding.id, len(placed) <= 12, seconds < SHRUNK_SECONDS) == (silent, True, True)


def test_nothing_that_is_fed_to_it_brings_it_down(tmp_path, figure):
    """Bytes changed, cut, put in and torn, of logs of both kinds; all of it in one process, whose memory is bounded."""
    own = b"".join(path.read_bytes() for path in write(tmp_path / "own", events_of(300), Limits(1 << 20)).iterdir())
    wholes = [
        own,
        zstandard.compress(own),
        frames(events_in("late-status.bin")),
        json.dumps(events_in("clean.bin")).encode(),
        (RECORDINGS / "node-lost.bin.zst").read_bytes(),
    ]
    refused, path = list[str](), tmp_path / "log"
    for seed in range(FUZZED):
        rng = random.Random(seed)
        raw = bytearray(rng.choice(wholes))
        for _ in range(rng.randint(1, 6)):
            start, size = rng.randrange(len(raw)), rng.randrange(60)
            raw[start : start + rng.choice([0, size])] = rng.randbytes(rng.choice([0, 1, size]))
            raw = raw or bytearray(b"x")
        path.write_bytes(raw)
        try:
            replay(str(path), check=True, skip_bad=bool(seed % 2))
        except (BadDataError, NotFoundError) as error:
            refused.append(error.message)
    assert [each for each in refused if "\n" in each] == []
    figure("changed logs", f"{len(refused)} of {FUZZED} refused, no other error", "exit 12, no traceback")
    limited = (
        "import resource, sys; from exo_cli.engine.replaying import replay\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({GARBAGE_BYTES}, {GARBAGE_BYTES}))\nreplay(sys.argv[1])"
    )
    path.write_bytes(zstandard.compress(bytes(1 << 31)))
    bomb = subprocess.run([sys.executable, "-c", limited, path], capture_output=True, text=True, check=False)
    assert "BadDataError" in bomb.stderr, bomb.stderr
    assert "MemoryError" not in bomb.stderr


def test_recordings_are_stepped_again(tmp_path, figure):
    inputs = 0
    for seed in SEEDS:
        (folder := tmp_path / str(seed)).mkdir()
        run(seed, folder)
        for file in folder.iterdir():
            told = rerun(str(file))
            assert told["exit_code"] == 0, (seed, told["item"])
            inputs += told["item"]["inputs"]
    figure("simulated nodes stepped again", f"{inputs:,} inputs of {len(SEEDS)} seeds, no difference", "none")


def test_a_busy_node_is_recorded_and_stepped_again(new_home, script, figure):
    home = new_home()
    file = home.path / "recording"
    home.start("--record", file, engine=script('token "a"'))
    home.exo("place", "tiny").ok()
    size = file.stat().st_size
    for number in range(CHATS):
        home.exo("chat", f"number {number}").ok()
    wait_until(lambda: home.record_counts()["TaskDeleted"] == CHATS, "the history of the chats")
    grown = (file.stat().st_size - size) / CHATS
    home.stop()
    began = time.monotonic()
    told = rerun(str(file))
    rate = told["item"]["inputs"] / (time.monotonic() - began)
    assert told["exit_code"] == 0, told["item"]
    figure("recording of a chat (ticks included)", f"{grown / 1024:.1f} KiB")
    figure("inputs stepped again", f"{rate:,.0f} a second")


def test_its_own_log_through_a_long_day(new_home, script, figure):
    """Runners killed, nodes killed and stopped, chats all the while: nothing is found, over several segments."""
    home = new_home()
    engine = script('repeat 20 token "w{n} "')
    home.start(engine=engine)
    home.exo("place", "tiny").ok()
    for number in range(30):
        home.exo("chat", "count").ok()
        if number % 10 == 4:  # the fifth in a row would be the last
            [process] = home.runner_processes()
            process.kill()
            wait_until(lambda old=process: home.runner_processes() not in ([], [old]), "another process", 30)
            wait_until(lambda: [each["status"] for each in home.runners()] == ["RunnerReady"], "a ready runner", 60)
        if number % 10 == 9:
            home.kill() if number % 20 == 9 else home.stop()
            home.start(engine=engine)
            wait_until(lambda: [each["status"] for each in home.runners()] == ["RunnerReady"], "a ready runner", 60)
    home.clear()
    home.stop()
    answer = replay(str(home.path), check=True, strict=True)
    figure("its own log through a long day", f"{answer['item']['events']} records, no findings", "none")
    assert (answer["item"]["findings"], answer["exit_code"]) == ([], 0)
