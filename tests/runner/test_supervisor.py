"""The parent side of a runner against children that misbehave in every way."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
import trio

from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.runners import RunnerFailed, RunnerShutdown
from exo_cli.engine.core.shards import Instance, Shard
from exo_cli.engine.core.tasks import ChatMessage, ChatParams
from exo_cli.engine.runner.frames import Assign, Cancel, Done, Generate, Load, Memory, StatusReport, Step, Stop
from exo_cli.engine.runner.pipe import Lines, OverlongLineError
from exo_cli.engine.runner.supervisor import WATCH_SECONDS, Ladder, ProcessHost, Runner, log_path
from exo_cli.engine.runner.watch import Patience

STAND_IN = str(Path(__file__).with_name("stand_in.py"))
QUICK = Ladder(stop_seconds=0.3, terminate_seconds=0.3)
# Of a whole second: what a healthy child may take on a busy machine.
SHORT = Patience(decoding=1.0, prefill=1.0, loading=1.0)


def an_assign(runner_id="i-1-0", threads=1):
    card = ModelCard(
        model_id="tiny", n_layers=2, hidden_size=8, n_heads=2, n_kv_heads=1, head_dim=4, vocab_size=16,
        storage_bytes=100, embedding_bytes=10, context_length=64, family="llama",
    )  # fmt: skip
    shard = Shard(runner_id=runner_id, node_id="a", rank=0, world_size=1, start_layer=0, end_layer=2, n_layers=2)
    instance = Instance(instance_id="i-1", model_card=card, context_tokens=64, shards=(shard,))
    return Assign(instance=instance, runner_id=runner_id, threads=threads)


def a_chat(task_id, text):
    return Generate(task_id=task_id, params=ChatParams(messages=(ChatMessage(role="user", content=text),)))


def a_host(tmp_path, mode, ladder=QUICK, patience=None):
    command = (sys.executable, "-S", "-E", STAND_IN, mode)
    environment = {"OPENBLAS_NUM_THREADS": "64", "GIVEN": "yes"}
    return ProcessHost(tmp_path / "logs", environment=environment, command=command, ladder=ladder, patience=patience)


class Heard:
    """What a node would hear of one runner."""

    def __init__(self):
        self.reports = []
        self.handle: Runner | None = None
        self.begun = trio.Event()
        self.changed = trio.Event()
        self.ended_at = None

    def started(self, handle):
        self.handle = handle
        self.begun.set()

    async def report(self, report):
        self.reports.append(report)
        self.changed.set()
        self.changed = trio.Event()

    @property
    def statuses(self):
        return [report.status.type for report in self.reports if isinstance(report, StatusReport)]

    @property
    def end(self):
        ends = [at for at, r in enumerate(self.reports) if isinstance(r, StatusReport) and r.status.type in ENDS]
        assert ends == [len(self.reports) - 1], "one end, and it is the last report"
        return self.reports[-1].status

    async def wait(self, condition):
        with trio.fail_after(10):
            while not any(condition(report) for report in self.reports):
                await self.changed.wait()


ENDS = ("RunnerFailed", "RunnerShutdown")


def status_is(name):
    return lambda report: isinstance(report, StatusReport) and report.status.type == name


def a_step(report):
    return isinstance(report, Step)


@asynccontextmanager
async def running(host, assign=None):
    heard = Heard()

    async def run():
        await host.run(assign or an_assign(), heard.started, heard.report)
        heard.ended_at = trio.current_time()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await heard.begun.wait()
            yield heard


def gone(pid):
    """Neither alive nor waiting to be reaped."""
    return not psutil.pid_exists(pid)


def open_fds():
    return sum(1 for _ in Path("/dev/fd").iterdir())


def used_seconds(pid):
    return psutil.Process(pid).cpu_times()[:2]


async def test_a_whole_life_in_order(tmp_path):
    async with running(a_host(tmp_path, "obedient")) as heard:
        await heard.handle.send(Load(model_path="/m"))
        await heard.handle.send(a_chat("t1", "count 3"))
        await heard.wait(lambda r: isinstance(r, Done))
        await heard.handle.stop()
        assert gone(heard.handle.pid)
    assert heard.end == RunnerShutdown()
    assert heard.statuses == ["RunnerIdle", "RunnerLoading", "RunnerLoaded", "RunnerShuttingDown", "RunnerShutdown"]
    assert "".join(r.texts[0].text for r in heard.reports if a_step(r)) == "0 1 2 "


async def test_killed_while_generating_is_told_within_a_second(tmp_path):
    async with running(a_host(tmp_path, "obedient")) as heard:
        await heard.handle.send(a_chat("t1", "forever"))
        await heard.wait(a_step)
        os.kill(heard.handle.pid, signal.SIGKILL)
        killed_at = trio.current_time()
    assert heard.ended_at - killed_at < 1
    assert heard.end == RunnerFailed(error_message="killed by signal 9 (SIGKILL)", phase="RunnerIdle", signal=9)
    assert gone(heard.handle.pid)
    with pytest.raises(trio.BrokenResourceError):
        await heard.handle.send(Cancel(task_id="t1"))
    await heard.handle.stop()


@pytest.mark.parametrize(
    ("mode", "at_least", "at_most"), [("stop_deaf", 0.3, 0.6), ("deaf", 0.6, 1.2), ("never_reads", 0.3, 0.6)]
)
async def test_an_end_asked_for_is_bounded(tmp_path, mode, at_least, at_most):
    async with running(a_host(tmp_path, mode)) as heard:
        await heard.wait(status_is("RunnerIdle"))
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(heard.handle.stop)
        assert at_least <= trio.current_time() - began < at_most + 0.5
        assert gone(heard.handle.pid)
        await heard.handle.stop()
    assert heard.end == RunnerShutdown()


async def test_a_frozen_process_is_ended_too(tmp_path):
    async with running(a_host(tmp_path, "obedient")) as heard:
        await heard.wait(status_is("RunnerIdle"))
        os.kill(heard.handle.pid, signal.SIGSTOP)
        await heard.handle.stop()
    assert heard.end == RunnerShutdown()


async def test_one_that_is_stopped_at_work_is_given_up_with_what_it_did(tmp_path):
    async with running(a_host(tmp_path, "obedient", patience=SHORT)) as heard:
        await heard.handle.send(Load(model_path="/m"))
        await heard.handle.send(a_chat("t1", "forever"))
        await heard.wait(a_step)
        os.kill(heard.handle.pid, signal.SIGSTOP)
        stopped_at = trio.current_time()
    assert heard.ended_at - stopped_at < 1.0 + 2 * WATCH_SECONDS + 0.5
    assert heard.end == RunnerFailed(
        error_message="no progress for 1 s while decoding", phase="RunnerLoaded", exit_code=None, signal=9
    )
    assert gone(heard.handle.pid)


@pytest.mark.parametrize(
    ("order", "doing"), [(Load(model_path="/m"), "loading"), (a_chat("t", "5"), "reading a prompt")]
)
async def test_one_that_never_begins_is_given_up(tmp_path, order, doing):
    async with running(a_host(tmp_path, "never_reads", patience=SHORT)) as heard:
        await heard.handle.send(order)
    assert heard.end.error_message == f"no progress for 1 s while {doing}"


async def test_one_that_owes_nothing_may_be_silent(tmp_path):
    async with running(a_host(tmp_path, "obedient", patience=SHORT)) as heard:
        await heard.wait(status_is("RunnerIdle"))
        await trio.sleep(3 * WATCH_SECONDS + 0.6)
        await heard.handle.stop()
    assert heard.end == RunnerShutdown()


async def test_a_node_that_is_behind_accuses_nobody(tmp_path):
    heard, held = Heard(), trio.Event()

    async def slowly(report):
        if a_step(report) and not held.is_set():
            held.set()
            await trio.sleep(2.1)
        await heard.report(report)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                a_host(tmp_path, "obedient", patience=SHORT).run, an_assign(), heard.started, slowly
            )  # fmt: skip
            await heard.begun.wait()
            await heard.handle.send(a_chat("t1", "forever"))
            await heard.wait(a_step)
            await heard.handle.stop()
    assert heard.end == RunnerShutdown()


async def test_a_machine_that_slept_holds_it_against_nobody(tmp_path, mock_clock):
    mock_clock.rate = 1.0
    heard = Heard()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            a_host(tmp_path, "obedient", patience=Patience()).run, an_assign(), heard.started, heard.report
        )  # fmt: skip
        await heard.begun.wait()
        await heard.handle.send(a_chat("t1", "forever"))
        await heard.wait(a_step)
        os.kill(heard.handle.pid, signal.SIGSTOP)
        for _ in range(3):
            mock_clock.jump(7200)
            await trio.sleep(WATCH_SECONDS / 2)
        os.kill(heard.handle.pid, signal.SIGCONT)
        count = len(heard.reports)
        await heard.wait(lambda _: len(heard.reports) > count + 5)
        await heard.handle.stop()
    assert heard.end == RunnerShutdown()


async def test_one_that_the_system_does_not_let_go_is_reported_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(Runner, "_kill", lambda _: None)
    ladder = Ladder(stop_seconds=0.1, terminate_seconds=0.1, kill_seconds=0.2)
    async with running(a_host(tmp_path, "deaf", ladder, SHORT)) as heard:
        await heard.handle.send(a_chat("t1", "forever"))
        await heard.wait(a_step)
        os.kill(heard.handle.pid, signal.SIGSTOP)
    assert heard.end.error_message == "no progress for 1 s while decoding"
    assert not gone(heard.handle.pid)
    os.kill(heard.handle.pid, signal.SIGKILL)
    await heard.handle._process.wait()


async def test_giving_up_on_stop_does_not_stop_the_ladder(tmp_path):
    async with running(a_host(tmp_path, "stop_deaf")) as heard:
        await heard.wait(status_is("RunnerIdle"))
        with trio.move_on_after(0.05):
            await heard.handle.stop()
        assert not gone(heard.handle.pid)
    assert heard.end == RunnerShutdown()


async def test_the_order_stop_starts_the_ladder(tmp_path):
    async with running(a_host(tmp_path, "stop_deaf")) as heard:
        await heard.handle.send(Stop())
    assert heard.end == RunnerShutdown()


async def test_last_words_are_in_the_failure(tmp_path):
    async with running(a_host(tmp_path, "last_words")) as heard:
        pass
    assert (heard.end.exit_code, heard.end.signal, heard.end.phase) == (3, None, "RunnerLoading")
    lines = heard.end.error_message.splitlines()
    assert lines[0] == "ended with exit code 3; its last words:"
    assert len(lines) == 21
    assert lines[1] == "line 12\N{REPLACEMENT CHARACTER}[31m"
    assert lines[-1] == "MemoryError: no room"
    assert b"line 1\x1b" in log_path(tmp_path / "logs", "i-1-0").read_bytes()


async def test_the_log_is_rotated(tmp_path):
    async with running(a_host(tmp_path, "chatty")) as heard:
        await heard.wait(status_is("RunnerIdle"))
        await heard.handle.stop()
    newer, older = (tmp_path / "logs" / name for name in ("i-1-0.log", "i-1-0.log.1"))
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [newer.name, older.name]
    assert max(newer.stat().st_size, older.stat().st_size) <= 1 << 20
    assert newer.read_bytes().splitlines()[-1].startswith(b"029999 ")
    assert newer.stat().st_mode & 0o077 == 0


async def test_a_log_that_cannot_be_written_ends_nothing(tmp_path):
    (tmp_path / "logs").write_text("a file where the folder should be")
    async with running(a_host(tmp_path, "chatty")) as heard:
        await heard.wait(status_is("RunnerIdle"))
        await heard.handle.stop()
    assert heard.end == RunnerShutdown()


async def test_a_slow_hearer_holds_the_runner_back(tmp_path):
    heard, gate = Heard(), trio.Event()

    async def slowly(report):
        await gate.wait()
        await heard.report(report)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(a_host(tmp_path, "flood").run, an_assign(), heard.started, slowly)
        await heard.begun.wait()
        await trio.sleep(0.3)
        used = used_seconds(heard.handle.pid)
        await trio.sleep(0.2)
        assert used_seconds(heard.handle.pid) == used, "it waits"
        # A node that hears nothing can still end it.
        await heard.handle.stop()
        gate.set()
    assert heard.end == RunnerShutdown()
    numbers = [int(r.texts[0].text) for r in heard.reports if a_step(r)]
    assert numbers == list(range(len(numbers)))
    assert 0 < len(numbers) < 20000


async def test_nothing_of_a_flood_is_lost(tmp_path):
    async with running(a_host(tmp_path, "flood")) as heard:
        await heard.wait(status_is("RunnerIdle"))
        await heard.handle.stop()
    assert sum(map(a_step, heard.reports)) == 20000


async def test_cancelling_kills_and_reaps(tmp_path):
    heard, scope = Heard(), trio.CancelScope()
    began = time.monotonic()
    with scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a_host(tmp_path, "deaf", Ladder()).run, an_assign(), heard.started, heard.report)
            await heard.wait(status_is("RunnerIdle"))
            scope.cancel()
    assert gone(heard.handle.pid)
    assert time.monotonic() - began < 2
    await heard.handle.stop()


async def test_a_hearer_that_raises_leaves_no_process(tmp_path):
    heard = Heard()

    async def raises(report):
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        await a_host(tmp_path, "obedient").run(an_assign(), heard.started, raises)
    assert gone(heard.handle.pid)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("garbage", "not a report: Invalid JSON: expected value at line 1 column 1"),
        ("overlong", "not a report: a line of more than 16777216 bytes"),
        ("fails", "no such file"),
        ("fails_and_stays", "no such file"),
        ("quits", "the runner ended without being asked"),
        ("mute", "the runner closed its reports and lived on"),
        ("half_a_line", "killed by signal 9 (SIGKILL)"),
        ("leaves_a_child", "ended with exit code 3"),
    ],
)
async def test_odd_ends(tmp_path, mode, message):
    began = trio.current_time()
    async with running(a_host(tmp_path, mode)) as heard:
        pass
    assert isinstance(heard.end, RunnerFailed)
    assert heard.end.error_message == message
    assert gone(heard.handle.pid)
    assert trio.current_time() - began < 4
    if mode == "fails":
        assert (heard.end.phase, heard.end.exit_code) == ("RunnerIdle", 1)
        assert Memory(resident_bytes=1) in heard.reports
    if mode == "leaves_a_child":
        assert Memory(resident_bytes=7) in heard.reports


@pytest.mark.parametrize("command", [("/nowhere/python",), ("/",)])
async def test_what_cannot_be_started_fails(tmp_path, command):
    heard, before = Heard(), open_fds()
    await ProcessHost(tmp_path, command=command).run(an_assign(), heard.started, heard.report)
    assert heard.end.error_message.startswith(f"cannot start {command[0]}: ")
    assert heard.handle is None
    assert open_fds() == before


async def test_the_child_has_its_own_session_and_no_foreign_descriptor(tmp_path):
    inheritable = os.dup(0)
    os.set_inheritable(inheritable, True)
    try:
        async with running(a_host(tmp_path, "surroundings"), an_assign(threads=3)) as heard:
            await heard.wait(lambda r: isinstance(r, Memory))
            await heard.handle.stop()
    finally:
        os.close(inheritable)
    facts = json.loads(heard.reports[0].note)
    assert facts["session"] == facts["pid"] == heard.handle.pid
    assert facts["fds"] == []
    assert (facts["threads"], facts["given"]) == ("3", "yes")


async def test_restarts_leave_nothing_behind(tmp_path):
    host = a_host(tmp_path, "obedient")

    async def once(how):
        async with running(host) as heard:
            if how == "kill":
                os.kill(heard.handle.pid, signal.SIGKILL)
            else:
                await heard.handle.stop()

    await once("stop")
    before = open_fds()
    for at in range(25):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(once, "kill")
            nursery.start_soon(once, "stop")
        assert open_fds() == before, f"after {at}"
    assert not psutil.Process().children(), "no zombies"


A_NODE = """
import sys, trio
sys.path.insert(0, {tests!r})
from test_supervisor import Heard, ProcessHost, an_assign, status_is
from pathlib import Path

async def main():
    host = ProcessHost(Path({folder!r}), command={command!r})
    async with trio.open_nursery() as nursery:
        for runner_id in ("i-1-0", "i-2-0"):
            heard = Heard()
            nursery.start_soon(host.run, an_assign(runner_id), heard.started, heard.report)
            await heard.wait(status_is("RunnerIdle"))
            print(heard.handle.pid, flush=True)

trio.run(main)
"""


def test_runners_end_with_a_node_that_is_killed(tmp_path):
    """No runner holds a pipe of another one open, so each sees the end of its orders."""
    command = [sys.executable, "-S", "-E", STAND_IN, "obedient"]
    script = A_NODE.format(tests=str(Path(__file__).parent), folder=str(tmp_path), command=command)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as node:
        pids = [int(node.stdout.readline()) for _ in range(2)]
        node.kill()
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline and any(map(is_running, pids)):
        time.sleep(0.02)
    assert not any(map(is_running, pids))


def is_running(pid):
    """Alive; where nobody reaps the orphans of a container, one that ended stays as a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_lines_come_whole_however_they_are_cut():
    text = b"one\n\ntwo two\nthree"
    for size in range(1, len(text) + 1):
        lines = Lines(7)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert [line for piece in pieces for line in lines.feed(piece)] == [b"one", b"", b"two two"]
    with pytest.raises(OverlongLineError):
        list(lines.feed(b"x" * 8))
