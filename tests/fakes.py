"""Stand-ins for the ports, in process, without waits of their own; each passes the contract suite of the real thing."""

import itertools
import signal as signals
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping

import trio

from exo_cli.engine.core import runners
from exo_cli.engine.core.runners import RunnerFailed, RunnerShutdown, RunnerStatus
from exo_cli.engine.core.tasks import Usage
from exo_cli.engine.runner import frames
from exo_cli.engine.runner.frames import Assign, Done, Generate, Order, Report, StatusReport, Step, StepText

_ANSWERS = {
    "Assign": (runners.RunnerIdle(),),
    "Connect": (runners.RunnerConnecting(), runners.RunnerConnected()),
    "Load": (runners.RunnerLoading(layers_loaded=0, total_layers=1), runners.RunnerLoaded()),
    "Warmup": (runners.RunnerWarmingUp(), runners.RunnerReady()),
}


class FakeRunnerHost:
    """A `ports.RunnerHost` without processes. `runners` has every runner that was started, by id, the latest one.

    `words` is the answer to every task (None: words without end), one word a step and `step_seconds` between them.
    Orders whose type is in `ignored` are heard and not obeyed (cue what they bring with `FakeRunner.say`); one in
    `failing` ends the runner with that message. `broken` is why no runner can be started at all.
    """

    def __init__(
        self,
        *,
        words: Iterable[str] | None = ("Paris",),
        step_seconds: float = 0.0,
        ignored: Iterable[str] = (),
        failing: Mapping[str, str] | None = None,
        broken: str | None = None,
    ) -> None:
        self.words = None if words is None else tuple(words)
        self.step_seconds = step_seconds
        self.ignored = set(ignored)
        self.failing = dict(failing or {})
        self.broken = broken
        self.runners: dict[str, FakeRunner] = {}
        self.starts: list[Assign] = []
        self._pids = itertools.count(1_000_000)

    async def run(
        self,
        assign: Assign,
        on_start: Callable[["FakeRunner"], None],
        on_report: Callable[[Report], Awaitable[None]],
    ) -> None:
        """As the port says."""
        await trio.lowlevel.checkpoint()
        self.starts.append(assign)
        if self.broken is not None:
            await on_report(StatusReport(status=RunnerFailed(error_message=self.broken)))
            return
        runner = self.runners[assign.runner_id] = FakeRunner(self, assign, next(self._pids))
        await runner.live(on_start, on_report)
        await on_report(StatusReport(status=runner.ending()))


class FakeRunner:
    """A `ports.RunnerHandle`: remembers its `orders`, obeys them at once, and does on cue what a process would."""

    stop_seconds = 6.0

    def __init__(self, host: FakeRunnerHost, assign: Assign, pid: int) -> None:
        self.pid = pid
        self.assign = assign
        self.orders: list[Order] = []
        self.gone = False
        self._host = host
        self._todo: deque[Order] = deque([assign])
        self._said: deque[Report] = deque()
        self._news = trio.Event()
        self._cancelled: set[str] = set()
        self._phase: str | None = None
        self._verdict: RunnerStatus | None = None
        self._killed = trio.Event()
        self._reaped = trio.Event()

    async def send(self, order: Order) -> None:
        """As the port says."""
        await trio.lowlevel.checkpoint()
        if self.gone:
            raise trio.BrokenResourceError
        self.orders.append(order)
        if isinstance(order, frames.Stop):
            self._verdict = self._verdict or RunnerShutdown()
        self._todo.append(order)
        self._wake()

    async def stop(self) -> None:
        """As the port says; when Stop is ignored, `stop_seconds` stand for the ladder."""
        if not self.gone:
            await self.send(frames.Stop())
            with trio.move_on_after(self.stop_seconds):
                await self._reaped.wait()
            self.crash()
        await self._reaped.wait()

    def say(self, *reports: Report) -> None:
        """Cue: the process reports this, in order."""
        for report in reports:
            if isinstance(report, StatusReport):
                self._phase = report.status.type
            self._said.append(report)
        self._wake()

    def crash(self, signal: int = 9, *, exit_code: int | None = None, message: str | None = None) -> None:
        """Cue: the process is no more."""
        if exit_code is None:
            seen = f"killed by signal {signal} ({signals.Signals(signal).name})"
        else:
            seen = f"ended with exit code {exit_code}"
        self._verdict = self._verdict or RunnerFailed(
            error_message=message or seen,
            phase=self._phase,
            signal=None if exit_code is not None else signal,
            exit_code=exit_code,
        )
        self.gone = True
        self._killed.set()

    def ending(self) -> RunnerStatus:
        """How it ended."""
        assert self._verdict is not None, "asked before the end"
        return self._verdict

    async def live(
        self, on_start: Callable[["FakeRunner"], None], on_report: Callable[[Report], Awaitable[None]]
    ) -> None:
        """From start to end."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hand_on, on_report)
                on_start(self)
                async with trio.open_nursery() as work:
                    work.start_soon(self._obey_all, work)
                    await self._killed.wait()
                    work.cancel_scope.cancel()
                self._reaped.set()
                self._wake()
        finally:
            self.gone = True
            self._reaped.set()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def _hand_on(self, on_report: Callable[[Report], Awaitable[None]]) -> None:
        while True:
            while self._said:
                await on_report(self._said.popleft())
            if self._reaped.is_set():
                return
            await self._news.wait()

    async def _obey_all(self, work: trio.Nursery) -> None:
        while True:
            while self._todo:
                order = self._todo.popleft()
                if order.type in self._host.failing:
                    self.crash(exit_code=1, message=self._host.failing[order.type])
                elif order.type not in self._host.ignored:
                    self._obey(order, work)
            await self._news.wait()

    def _obey(self, order: Order, work: trio.Nursery) -> None:
        match order:
            case Generate():
                work.start_soon(self._generate, order)
            case frames.Cancel():
                self._cancelled.add(order.task_id)
            case frames.Stop():
                self.say(StatusReport(status=runners.RunnerShuttingDown()))
                self.gone = True
                self._killed.set()
            case _:
                self.say(*(StatusReport(status=status) for status in _ANSWERS[order.type]))

    async def _generate(self, order: Generate) -> None:
        words = itertools.repeat("word") if self._host.words is None else iter(self._host.words)
        tokens = 0
        for word in words:
            if order.task_id in self._cancelled:
                break
            self.say(Step(texts=(StepText(task_id=order.task_id, text=word),), tokens=1))
            tokens += 1
            await trio.sleep(self._host.step_seconds)
        reason = "cancelled" if order.task_id in self._cancelled else "stop"
        self.say(Done(task_id=order.task_id, reason=reason, usage=Usage(tokens=tokens)))
