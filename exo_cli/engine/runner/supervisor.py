"""The parent side of a runner: starts its process, hears it, sees it out. Orders in, reports out, one end.

The child is started by exec in a session of its own, so that the Ctrl-C of a terminal ends the node and the node ends
its runners. If the node itself is killed, the child sees the end of its standard input and ends.

Invariants: reports are handed on one at a time and in order; the last is the one report of how it ended, and comes
after the process is reaped; no exit of `run` leaves a process, a zombie or a descriptor behind.
"""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from pydantic import ValidationError

from exo_cli.engine.core.runners import RunnerFailed, RunnerShutdown, RunnerStatus
from exo_cli.engine.runner.frames import LIMIT_BYTES, REPORTS, Assign, Order, Report, StatusReport, Stop, encode
from exo_cli.engine.runner.pipe import Intake, Lines, OverlongLineError, RotatedFile, Tail
from exo_cli.engine.runner.watch import Patience, Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

# -P: a folder that the node happens to stand in must not lend its files to the child's imports.
CHILD = (sys.executable, "-P", "-m", "exo_cli.engine.runner.child")
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_MESSAGE_CHARACTERS = 4000
WATCH_SECONDS = 0.5
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


@dataclass(frozen=True, slots=True)
class Ladder:
    """How long an asked-for end may take: after Stop, after SIGTERM, and after SIGKILL (then it is given up)."""

    stop_seconds: float = 3.0
    terminate_seconds: float = 3.0
    kill_seconds: float = 5.0


class ProcessHost:
    """Runners as child processes of this node. A `ports.RunnerHost`."""

    def __init__(
        self,
        log_dir: Path,
        *,
        environment: "Mapping[str, str] | None" = None,
        command: "Sequence[str]" = CHILD,
        ladder: Ladder | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Runners write `<runner id>.log` into `log_dir`; `environment` is added to this process's own."""
        self._log_dir = log_dir
        self._environment = dict(environment or {})
        self._command = tuple(command)
        self._ladder = ladder or Ladder()
        self._patience = patience or Patience.of()

    async def run(
        self, assign: Assign, on_start: "Callable[[Runner], None]", on_report: "Callable[[Report], Awaitable[None]]"
    ) -> None:
        """Start a process, hand on its reports until it is reaped, then report how it ended."""
        try:
            process = await self._spawn(assign.threads)
        except OSError as error:
            reason = f"cannot start {self._command[0]}: {error.strerror or error}"
            await on_report(StatusReport(status=RunnerFailed(error_message=reason)))
            return
        log = RotatedFile(log_path(self._log_dir, assign.runner_id))
        runner = Runner(process, log, self._ladder, Watch(self._patience))
        await runner.live(assign, on_start, on_report)
        await on_report(StatusReport(status=runner.ending()))

    async def _spawn(self, threads: int) -> trio.Process:
        # Threads of a matrix library spin: each runner has as many as it was assigned, whatever the environment says.
        counts = dict.fromkeys(_THREAD_VARIABLES, str(threads))
        return await trio.lowlevel.open_process(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            close_fds=True,
            start_new_session=True,
            env={**os.environ, **self._environment, **counts},
        )


def log_path(log_dir: Path, runner_id: str) -> Path:
    """Where the standard error of a runner goes; what came before is beside it, with `.1` added."""
    return log_dir / f"{runner_id}.log"


class Runner:
    """One process, from its first order to its end. A `ports.RunnerHandle`."""

    def __init__(self, process: trio.Process, log: RotatedFile, ladder: Ladder, watch: Watch) -> None:
        """Take over a started process; `live` does the rest."""
        self.pid = process.pid
        self._process = process
        self._ladder, self._watch = ladder, watch
        self._log = log
        self._stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert isinstance(stdout, trio.lowlevel.FdStream), "started with pipes"
        assert isinstance(stderr, trio.lowlevel.FdStream), "started with pipes"
        self._reports, self._errors = Intake(stdout), Intake(stderr)
        self._tail = Tail()
        self._outbox, self._orders = trio.open_memory_channel[Order](16)
        self._phase: str | None = None
        self._verdict: RunnerStatus | None = None
        self._is_behind = False
        self._ends = trio.Event()
        self._dead = trio.Event()

    async def send(self, order: Order) -> None:
        """Give an order; it is written whole or not at all. Stop starts the ladder, without waiting for its end."""
        if isinstance(order, Stop):
            self._ask_to_end()
        else:
            await self._outbox.send(order)

    async def stop(self) -> None:
        """Ask, then SIGTERM, then SIGKILL; returns when the process is reaped. Any number of callers, any time."""
        self._ask_to_end()
        await self._dead.wait()

    async def live(
        self, assign: Assign, on_start: "Callable[[Runner], None]", on_report: "Callable[[Report], Awaitable[None]]"
    ) -> None:
        """Everything between start and reaping."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._see_out)
                nursery.start_soon(self._hear_errors)
                self._outbox.send_nowait(assign)
                on_start(self)
                await self._hear_reports(on_report)
        finally:
            await self._clean_up()

    def ending(self) -> RunnerStatus:
        """How it ended, for the last report. What was known first counts: asked for, said by the child, or seen."""
        code = self._process.returncode
        verdict = self._verdict or RunnerFailed(error_message=_death(code, self._tail.text))
        if not isinstance(verdict, RunnerFailed):
            return verdict
        ended = {"signal": -code} if code is not None and code < 0 else {"exit_code": code}
        return verdict.model_copy(update={"phase": verdict.phase or self._phase, **ended})

    def _ask_to_end(self) -> None:
        self._verdict = self._verdict or RunnerShutdown()
        self._ends.set()

    async def _see_out(self) -> None:
        """Wait for the death; meanwhile write orders and, once the end has begun, climb the ladder."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_orders)
            nursery.start_soon(self._climb, nursery.cancel_scope)
            nursery.start_soon(self._watch_over)
            await self._process.wait()
            nursery.cancel_scope.cancel()
        self._reports.child_died()
        self._errors.child_died()
        self._dead.set()

    async def _write_orders(self) -> None:
        assert self._stdin is not None, "started with pipes"
        with self._orders:
            try:
                async for order in self._orders:
                    self._watch.ordered(order)
                    await self._stdin.send_all(encode(order))
            except trio.BrokenResourceError:
                return  # It reads no more; how it ends says why, and later orders find the channel broken.

    async def _watch_over(self) -> None:
        """End one that shows no progress. Asking would not help: it does not listen."""
        fault: str | None = None
        while fault is None:
            await trio.sleep(WATCH_SECONDS)
            # While this node is behind in hearing, nobody knows whether there is silence.
            blind = self._is_behind or self._ends.is_set()
            fault = None if blind else self._watch.passed(WATCH_SECONDS)
        self._verdict = self._verdict or RunnerFailed(error_message=fault)
        self._ends.set()
        self._kill()

    async def _climb(self, waiting: trio.CancelScope) -> None:
        await self._ends.wait()
        with trio.move_on_after(self._ladder.stop_seconds):
            if isinstance(self._verdict, RunnerShutdown):
                await self._offer_stop()
            await trio.sleep_forever()
        self._verdict = self._verdict or RunnerFailed(error_message="the runner closed its reports and lived on")
        self._process.terminate()
        await trio.sleep(self._ladder.terminate_seconds)
        self._kill()
        await trio.sleep(self._ladder.kill_seconds)
        waiting.cancel()  # It hangs inside the system: those who wait for its end hear of it all the same.

    async def _offer_stop(self) -> None:
        try:
            await self._outbox.send(Stop())
        except trio.BrokenResourceError:
            return

    async def _hear_reports(self, on_report: "Callable[[Report], Awaitable[None]]") -> None:
        lines = Lines(LIMIT_BYTES)
        while chunk := await self._reports.receive():
            self._is_behind = True
            try:
                for line in lines.feed(chunk):
                    await self._hear(REPORTS.validate_json(line), on_report)
            except (ValidationError, OverlongLineError) as error:
                self._verdict = self._verdict or RunnerFailed(error_message=f"not a report: {_fault(error)}")
                self._ends.set()
                self._kill()
                return
            self._is_behind = False
        # A line without its end was cut off by the death. And who cannot report is of no use, should it live on.
        self._ends.set()

    async def _hear(self, report: Report, on_report: "Callable[[Report], Awaitable[None]]") -> None:
        """Hand a report on. One of the end is kept back until it is true that the process is gone."""
        self._watch.heard(report)
        if not isinstance(report, StatusReport):
            await on_report(report)
        elif isinstance(report.status, RunnerFailed | RunnerShutdown):
            unasked = RunnerFailed(error_message="the runner ended without being asked")
            self._verdict = self._verdict or (report.status if isinstance(report.status, RunnerFailed) else unasked)
            self._ends.set()
        else:
            self._phase = report.status.type
            await on_report(report)

    async def _hear_errors(self) -> None:
        while chunk := await self._errors.receive():
            self._tail.feed(chunk)
            self._log.write(chunk)

    def _kill(self) -> None:
        # Not reaped yet, so the number is still its own. The group goes with it: nobody else would end what it started.
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)

    async def _clean_up(self) -> None:
        self._kill()
        with trio.move_on_after(self._ladder.kill_seconds, shield=True):
            await self._process.wait()
        self._dead.set()
        self._orders.close()
        self._log.close()
        self._reports.close()
        self._errors.close()
        if self._stdin is not None:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stdin)


def _death(code: int | None, last_words: str) -> str:
    """How a process ended that nobody asked to, with what it said last unless somebody else ended it."""
    if code is None:
        return "killed, but the system has not let it go"
    how = f"ended with exit code {code}" if code >= 0 else f"killed by signal {-code} ({_signal_name(-code)})"
    if not last_words or -code in _FROM_OUTSIDE:
        return how
    return f"{how}; its last words:\n{last_words[-_MESSAGE_CHARACTERS:]}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "no name"


def _fault(error: ValidationError | OverlongLineError) -> str:
    """What is wrong with a line; nothing of the line itself, which may be what somebody asked or was told."""
    if isinstance(error, OverlongLineError):
        return str(error)
    return error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"][:200]
