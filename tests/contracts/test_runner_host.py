"""What every RunnerHost promises: the one that starts processes, and the fake that the other tests trust."""

import os
import signal
from contextlib import asynccontextmanager

import pytest
import trio

from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.runners import RunnerFailed, RunnerShutdown
from exo_cli.engine.core.shards import Instance, Shard
from exo_cli.engine.core.tasks import ChatMessage, ChatParams
from exo_cli.engine.runner.frames import Assign, Cancel, Done, Generate, Load, StatusReport, Step, Stop, Warmup
from exo_cli.engine.runner.supervisor import Ladder, ProcessHost
from tests.fakes import FakeRunnerHost

ENDS = ("RunnerFailed", "RunnerShutdown")
ENDLESS = "rate 200\nrepeat forever token word"


class Stage:
    """A host of one kind, and how its runners are made to do things."""

    def __init__(self, kind, folder):
        self.is_real = kind == "processes"
        self.folder = folder
        self.fake = FakeRunnerHost()
        self.engine = "scripted"
        self.host = self.fake
        if self.is_real:
            self.host = ProcessHost(folder / "logs", ladder=Ladder(stop_seconds=0.5, terminate_seconds=0.5))
        self.play("token Paris")

    def play(self, script, **fake):
        """What the runners started from here on do."""
        if self.is_real:
            path = self.folder / "script"
            path.write_text(script)
            self.engine = f"scripted:{path}"
        else:
            self.host = FakeRunnerHost(**fake)

    def assign(self):
        card = ModelCard(
            model_id="tiny", n_layers=1, hidden_size=8, n_heads=2, n_kv_heads=1, head_dim=4, vocab_size=16,
            storage_bytes=100, embedding_bytes=10, context_length=64, family="llama",
        )  # fmt: skip
        shard = Shard(runner_id="i-1-0", node_id="a", rank=0, world_size=1, start_layer=0, end_layer=1, n_layers=1)
        instance = Instance(instance_id="i-1", model_card=card, engine=self.engine, context_tokens=64, shards=(shard,))
        return Assign(instance=instance, runner_id="i-1-0", threads=1)

    @asynccontextmanager
    async def running(self, on_report=None):
        heard = Heard(on_report)
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                heard.cancel_run = nursery.cancel_scope.cancel
                nursery.start_soon(self.host.run, self.assign(), heard.start, heard.report)
                await heard.begun.wait()
                yield heard

    def kill(self, heard):
        if self.is_real:
            os.kill(heard.handle.pid, signal.SIGKILL)
        else:
            heard.handle.crash(9)


class Heard:
    """What a node would hear of one runner."""

    def __init__(self, on_report=None):
        self.reports = []
        self.begun = trio.Event()
        self.changed = trio.Event()
        self.first = on_report

    def start(self, handle):
        self.handle = handle
        self.begun.set()

    async def report(self, report):
        if self.first:
            await self.first(report)
        self.reports.append(report)
        self.changed.set()
        self.changed = trio.Event()

    async def wait(self, condition):
        with trio.fail_after(10):
            while not any(condition(report) for report in self.reports):
                await self.changed.wait()

    async def wait_status(self, name):
        await self.wait(lambda report: isinstance(report, StatusReport) and report.status.type == name)

    @property
    def statuses(self):
        return [report.status.type for report in self.reports if isinstance(report, StatusReport)]

    @property
    def end(self):
        ends = [at for at, r in enumerate(self.reports) if isinstance(r, StatusReport) and r.status.type in ENDS]
        assert ends == [len(self.reports) - 1], "one end, and it is the last report"
        return self.reports[-1].status

    async def to_ready(self):
        await self.handle.send(Load(model_path="/nowhere"))
        await self.handle.send(Warmup())
        await self.wait_status("RunnerReady")

    async def ask(self, task_id="t"):
        message = ChatMessage(role="user", content="hello")
        await self.handle.send(Generate(task_id=task_id, params=ChatParams(messages=(message,))))


@pytest.fixture(params=["processes", "fake"])
def stage(request, tmp_path):
    return Stage(request.param, tmp_path)


async def test_a_life_is_reported_in_order(stage):
    async with stage.running() as heard:
        await heard.to_ready()
        await heard.handle.stop()
    assert heard.end == RunnerShutdown()
    once = list(dict.fromkeys(heard.statuses))
    assert once == [
        "RunnerIdle", "RunnerLoading", "RunnerLoaded", "RunnerWarmingUp", "RunnerReady",
        "RunnerShuttingDown", "RunnerShutdown",
    ]  # fmt: skip


async def test_each_task_is_done_once(stage):
    stage.play('token "The "\ntoken "capital"', words=("The ", "capital"))
    async with stage.running() as heard:
        await heard.to_ready()
        for task_id in ("t1", "t2"):
            await heard.ask(task_id)
        await heard.wait(lambda report: isinstance(report, Done) and report.task_id == "t2")
        await heard.handle.stop()
    for task_id in ("t1", "t2"):
        steps = [text for r in heard.reports if isinstance(r, Step) for text in r.texts if text.task_id == task_id]
        assert "".join(step.text for step in steps) == "The capital"
        (done,) = [r for r in heard.reports if isinstance(r, Done) and r.task_id == task_id]
        assert (done.reason, done.usage.tokens) == ("stop", 2)


async def test_a_task_can_be_cancelled(stage):
    stage.play(ENDLESS, words=None, step_seconds=0.005)
    async with stage.running() as heard:
        await heard.to_ready()
        await heard.ask()
        await heard.wait(lambda report: isinstance(report, Step))
        await heard.handle.send(Cancel(task_id="t"))
        await heard.handle.send(Cancel(task_id="nobody knows it".replace(" ", "-")))
        await heard.wait(lambda report: isinstance(report, Done))
        await heard.handle.stop()
    assert [r.reason for r in heard.reports if isinstance(r, Done)] == ["cancelled"]


async def test_a_death_is_told_within_a_second(stage):
    stage.play(ENDLESS, words=None, step_seconds=0.005)
    async with stage.running() as heard:
        await heard.to_ready()
        await heard.ask()
        await heard.wait(lambda report: isinstance(report, Step))
        stage.kill(heard)
        began = trio.current_time()
        await heard.wait_status("RunnerFailed")
        assert trio.current_time() - began < 1
    assert isinstance(heard.end, RunnerFailed)
    assert heard.end.error_message == "killed by signal 9 (SIGKILL)"
    assert (heard.end.signal, heard.end.exit_code) == (9, None)
    assert heard.end.phase in ("RunnerReady", "RunnerRunning")
    with pytest.raises(trio.BrokenResourceError):
        await heard.ask("later")
    await heard.handle.stop()


async def test_what_it_says_of_its_failure_is_the_last_word(stage):
    stage.play("on load raise no such weights", failing={"Load": "RuntimeError: no such weights"})
    async with stage.running() as heard:
        await heard.wait_status("RunnerIdle")
        await heard.handle.send(Load(model_path="/nowhere"))
    assert "no such weights" in heard.end.error_message
    assert heard.end.exit_code == 1
    assert heard.end.phase in ("RunnerLoading", "RunnerIdle")


async def test_stop_is_for_any_number_of_callers(stage):
    async with stage.running() as heard:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(heard.handle.stop)
        await heard.handle.stop()
    assert heard.end == RunnerShutdown()
    with pytest.raises(trio.BrokenResourceError):
        await heard.handle.send(Warmup())


async def test_the_order_stop_ends_it(stage):
    async with stage.running() as heard:
        await heard.wait_status("RunnerIdle")
        await heard.handle.send(Stop())
    assert heard.end == RunnerShutdown()


async def test_a_runner_that_ignores_stop_is_ended(stage):
    stage.play("block hard", words=None, step_seconds=0.1, ignored=("Stop",))
    async with stage.running() as heard:
        await heard.to_ready()
        await heard.ask()
        if not stage.is_real:
            heard.handle.stop_seconds = 0.2
        await heard.handle.stop()
    assert heard.end == RunnerShutdown()


async def test_a_slow_hearer_misses_nothing(stage):
    stage.play("repeat 50 token x", words=("x",) * 50)

    async def slowly(report):
        await trio.sleep(0.002)

    async with stage.running(slowly) as heard:
        await heard.to_ready()
        await heard.ask()
        await heard.wait(lambda report: isinstance(report, Done))
        await heard.handle.stop()
    assert sum(r.tokens for r in heard.reports if isinstance(r, Step)) == 50
    assert heard.end == RunnerShutdown()


async def test_cancelling_ends_it_without_a_word(stage):
    async with stage.running() as heard:
        await heard.wait_status("RunnerIdle")
        heard.cancel_run()
    assert not set(heard.statuses) & set(ENDS)
    with pytest.raises(trio.BrokenResourceError):
        await heard.handle.send(Warmup())
    await heard.handle.stop()


async def test_what_cannot_be_started_fails(stage):
    stage.host = FakeRunnerHost(broken="cannot start /nowhere: No such file or directory")
    if stage.is_real:
        stage.host = ProcessHost(stage.folder, command=["/nowhere"])
    heard = Heard()
    await stage.host.run(stage.assign(), heard.start, heard.report)
    assert heard.end.error_message == "cannot start /nowhere: No such file or directory"
    assert not heard.begun.is_set()
