"""The process that holds a shard: obeys the node's orders, reports what it does, and dies with the node.

    python -m exo_cli.engine.runner.child [--cache FOLDER]     a runner: orders on stdin, reports on stdout
    python -m exo_cli.engine.runner.child --probe              one line about what could run here
    python -m exo_cli.engine.runner.child --convert SRC DST    a GGUF file as a folder that mlx-lm reads

It knows the order of statuses and that each task has exactly one Done. It knows nothing of models: engines do, and
are imported when the first order says which one. A task that fails fails alone; a failure anywhere else is reported
as RunnerFailed with the status in which it happened, and ends the process with code 1; so is the loss of the group.

Its standard error is a file, and the words of a request never reach it: a task's error is written there as its stack
and its class. The whole sentence is in Done, for the client alone.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path

from exo_cli.engine.core.runners import (
    SERVING,
    RunnerConnected,
    RunnerConnecting,
    RunnerFailed,
    RunnerIdle,
    RunnerLoaded,
    RunnerLoading,
    RunnerReady,
    RunnerRunning,
    RunnerShutdown,
    RunnerShuttingDown,
    RunnerStatus,
    RunnerWarmingUp,
)
from exo_cli.engine.core.tasks import ChatParams
from exo_cli.engine.inference import CalledOffError, Engine, EngineError, GroupLostError, Result, Setting, engine_for
from exo_cli.engine.runner import aside
from exo_cli.engine.runner.frames import (
    Assign,
    Connect,
    Done,
    Generate,
    Load,
    Memory,
    StatusReport,
    Step,
    StepText,
    Stop,
    Warmup,
)
from exo_cli.engine.runner.inbox import Entry, Inbox, Refusal, Unreadable
from exo_cli.engine.runner.outgoing import Outgoing, own_pipes

CACHE_VARIABLE = "EXO_RUNNER_CACHE"
UNNAMED_CODE = "generation_failed"


class _OrderError(Exception):
    """An order that makes no sense in this status."""


class Child:
    """One shard's life. `run` returns the exit code."""

    def __init__(self, inbox: Inbox, outgoing: Outgoing, cache_folder: Path) -> None:
        """Nothing is loaded before an order says so."""
        self._inbox, self._outgoing, self._cache_folder = inbox, outgoing, cache_folder
        self._status: RunnerStatus = RunnerIdle()
        self._setting: Setting | None = None
        self._held: Engine | None = None
        self._model_bytes = 0

    def run(self) -> int:
        """Obey until Stop, or until something fails that is no task."""
        self._report(RunnerIdle())
        try:
            while not isinstance(entry := self._inbox.next(), Stop):
                try:
                    self._obey(entry)
                except CalledOffError:
                    # Stop is next in the line, or behind orders that it calls off.
                    continue
            self._end()
        except Exception as error:
            if isinstance(error, GroupLostError):
                aside.print_stack(error)
            else:
                traceback.print_exc()
            self._outgoing.send(
                StatusReport(status=RunnerFailed(error_message=sentence(error), phase=self._status.type, exit_code=1))
            )
            return 1
        return 0

    def _obey(self, entry: Entry) -> None:
        match entry:
            case Generate(task_id=task_id):
                self._work(task_id, entry.params)
            case Refusal(task_id):
                self._skip(task_id)
            case Unreadable(fault):
                raise _OrderError(f"an order cannot be read: {fault}")
            case _ if self._inbox.stopping():
                return
            case Assign():
                self._assign(entry)
            case Connect(ring=ring):
                self._expect(entry, "RunnerIdle")
                self._report(RunnerConnecting())
                self._engine.connect(ring, self._place.shard.rank)
                self._report(RunnerConnected())
            case Load(model_path=model_path):
                self._expect(entry, *(["RunnerIdle"] if self._place.shard.world_size == 1 else []), "RunnerConnected")
                self._load(Path(model_path))
            case Warmup():
                self._expect(entry, "RunnerLoaded")
                self._report(RunnerWarmingUp())
                self._engine.warmup(self._inbox.stopping)
                self._report(RunnerReady())
                self._report_memory(None)
            case _:
                raise _OrderError(f"{entry.type} is not handled in line")

    def _assign(self, order: Assign) -> None:
        shard = order.instance.shard_of(order.runner_id)
        if shard is None or self._setting is not None:
            raise _OrderError(f"{order.runner_id} has no shard in this instance, or was assigned before")
        self._inbox.may_refuse = shard.rank == 0
        self._setting = Setting(order.instance, shard, order.threads, order.precision, self._cache_folder)
        self._held = engine_for(self._setting)

    def _load(self, model_path: Path) -> None:
        total = len(self._place.shard.layers)
        self._report(RunnerLoading(layers_loaded=0, total_layers=total))
        seen = 0

        def progress(loaded: int, total: int) -> None:
            nonlocal seen
            if loaded > seen:
                seen = loaded
                self._report(RunnerLoading(layers_loaded=loaded, total_layers=total))

        loaded = self._engine.load(model_path, progress, self._inbox.stopping)
        self._model_bytes = loaded.model_bytes
        self._report(RunnerLoaded())
        self._report_memory(loaded.note)

    def _work(self, task_id: str, params: ChatParams | None) -> None:
        """One task from its turn to its one Done."""
        if self._status.type not in SERVING:
            self._inbox.finish(task_id)
            error = f"the runner is {self._status.type}, not ready"
            self._outgoing.send(Done(task_id=task_id, reason="error", code="not_ready", error=error))
            return
        if self._status.type == "RunnerReady":
            self._report(RunnerRunning())
        digest = None if params is None else _digest(params)
        lost: GroupLostError | None = None
        try:
            result = self._follow(task_id) if params is None else self._generate(task_id, params)
        except Exception as error:
            aside.print_stack(error)
            code = error.code if isinstance(error, EngineError) else UNNAMED_CODE
            result = Result("error", error=sentence(error), code=code)
            lost = error if isinstance(error, GroupLostError) else None
        idle = self._inbox.finish(task_id)
        self._outgoing.send(
            Done(
                task_id=task_id,
                reason=result.reason,
                error=result.error,
                code=result.code or (UNNAMED_CODE if result.reason == "error" else None),
                usage=result.usage,
                seed=result.seed,
                digest=digest,
            )
        )
        if lost is not None:
            # Not this task alone: the next one would fail the same way, and the other ranks have to hear of it.
            raise lost
        if idle:
            self._report(RunnerReady())

    def _generate(self, task_id: str, params: ChatParams) -> Result:
        if self._place.shard.rank != 0:
            raise EngineError("only rank 0 takes the words of a request", "wrong_rank")
        for piece in self._engine.generate(task_id, params, lambda: self._inbox.cancelled(task_id)):
            if isinstance(piece, Result):
                return piece
            texts = (StepText(task_id=task_id, text=piece.text),) if piece.text else ()
            self._outgoing.send(Step(texts=texts, tokens=piece.tokens))
        raise EngineError("the engine ended without a result")

    def _follow(self, task_id: str) -> Result:
        if self._place.shard.rank == 0:
            raise EngineError("rank 0 was given a request without its words", "wrong_rank")
        self._engine.follow(task_id)
        return Result("stop")

    def _skip(self, task_id: str) -> None:
        if self._place.shard.rank == 0 and self._status.type in SERVING:
            self._engine.skip(task_id)

    def _end(self) -> None:
        self._report(RunnerShuttingDown())
        if self._held is not None:
            self._held.close()
        self._report(RunnerShutdown())

    @property
    def _engine(self) -> Engine:
        if self._held is None:
            raise _OrderError("an order came before Assign")
        return self._held

    @property
    def _place(self) -> Setting:
        if self._setting is None:
            raise _OrderError("an order came before Assign")
        return self._setting

    def _expect(self, order: Connect | Load | Warmup, *statuses: str) -> None:
        if self._status.type not in statuses:
            raise _OrderError(f"{order.type} in status {self._status.type} (expected {' or '.join(statuses)})")

    def _report(self, status: RunnerStatus) -> None:
        self._status = status
        self._outgoing.send(StatusReport(status=status))

    def _report_memory(self, note: str | None) -> None:
        self._outgoing.send(Memory(resident_bytes=aside.resident_bytes(), model_bytes=self._model_bytes, note=note))


def sentence(error: BaseException) -> str:
    """An error as one line for people: what we say ourselves as it is, foreign ones with their class."""
    text = " ".join(str(error).split())[:2000]
    if isinstance(error, EngineError | _OrderError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _digest(params: ChatParams) -> str:
    words = json.dumps([[message.role, message.content] for message in params.messages])
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _live(cache_folder: Path) -> int:
    # A Ctrl-C on the terminal reaches everybody there; what it means for a runner is the node's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # What was preloaded is for this process, not for one that a library may start.
    os.environ.pop("LD_PRELOAD", None)
    orders, reports = own_pipes()
    outgoing = Outgoing(reports)
    inbox = Inbox(orders, outgoing.send)
    inbox.start()
    return Child(inbox, outgoing, cache_folder).run()


def _default_cache() -> Path:
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named)
    from platformdirs import user_cache_path

    return user_cache_path("exo") / "models"


def main(arguments: list[str]) -> int:
    """Be a runner, or do one of the other two things."""
    parser = argparse.ArgumentParser(prog="exo_cli.engine.runner.child", description="A runner, for a node to start.")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where converted models are kept")
    parser.add_argument("--probe", action="store_true", help="print one line about what could run here")
    parser.add_argument("--convert", nargs=2, type=Path, metavar=("SRC", "DST"), help="make a folder of a GGUF file")
    chosen = parser.parse_args(arguments)
    if chosen.probe:
        return aside.probe()
    if chosen.convert:
        return aside.convert(*chosen.convert)
    return _live(chosen.cache or _default_cache())


if __name__ == "__main__":
    # Not through the interpreter's own end: threads of libraries may be anywhere, and there is nothing left to do.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
