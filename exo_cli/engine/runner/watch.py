"""The watch on a runner that owes something: not how long its work takes counts, but how long it shows no progress.

A process that is stopped, or stuck in a system call or a collective, says nothing and never will; everybody who waits
for it would wait for ever. Silence is counted in ticks of the node, so a machine that slept holds it against nobody.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from exo_cli.engine.core.runners import RunnerConnected, RunnerIdle, RunnerLoaded, RunnerReady, RunnerStatus
from exo_cli.engine.runner.frames import (
    Assign,
    Connect,
    Done,
    Generate,
    Load,
    Order,
    Report,
    StatusReport,
    Step,
    Warmup,
)

VARIABLE = "EXO_STALL_SECONDS"
# What each order is ended by, and what is being done meanwhile.
_SETUP: dict[type[Order], tuple[type[RunnerStatus], str]] = {
    Assign: (RunnerIdle, "starting"),
    Connect: (RunnerConnected, "connecting to its group"),
    Load: (RunnerLoaded, "loading"),
    Warmup: (RunnerReady, "warming up"),
}


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds without any progress after which a runner is given up, by what it does.

    Long, because a healthy runner that is killed helps nobody: a large model on a slow CPU takes minutes for a part of
    a prompt, and a load may be a conversion, or come from a disk that has to wake. Only to take a request up is no
    work at all.
    """

    starting: float = 120.0
    connecting: float = 150.0
    loading: float = 1800.0
    warming_up: float = 900.0
    prefill: float = 600.0
    decoding: float = 180.0
    taking_up: float = 60.0

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> "Patience":
        """The usual one, or EXO_STALL_SECONDS for everything, where that is a positive number (`inf`: for ever)."""
        try:
            wanted = float(environ.get(VARIABLE, ""))
        except ValueError:
            return cls()
        return cls(*([wanted] * len(cls.__slots__))) if wanted > 0 else cls()


class Watch:
    """What one runner owes, and for how long it has been silent."""

    def __init__(self, patience: Patience) -> None:
        """It owes nothing yet."""
        self._patience = patience
        self._setup: type[Order] | None = None
        self._tasks: dict[str, None] = {}
        self._is_decoding = False
        self._is_ready = self._takes_up = False
        self._follows = False
        self._silent_seconds = 0.0

    def ordered(self, order: Order) -> None:
        """An order was written to it."""
        if isinstance(order, Assign):
            shard = order.instance.shard_of(order.runner_id)
            # Other ranks follow rank 0 in silence: when one of them is stuck, so is rank 0.
            self._follows = shard is not None and shard.rank > 0
        if type(order) in _SETUP:
            self._setup = type(order)
        elif isinstance(order, Generate):
            # Who is ready says at once that it runs, whatever its rank: one that was stopped while idle does not.
            self._takes_up = self._takes_up or (self._is_ready and not self._tasks)
            self._tasks[order.task_id] = None

    def heard(self, report: Report) -> None:
        """It said something. That one of those in line is refused or called off is no sign of the one at work."""
        if isinstance(report, Done):
            is_first = report.task_id == next(iter(self._tasks), None)
            self._tasks.pop(report.task_id, None)
            if not is_first:
                return
            self._is_decoding = False
        self._silent_seconds = 0.0
        if isinstance(report, Step):
            self._is_decoding = self._is_decoding or report.tokens > 0
        elif isinstance(report, StatusReport):
            self._is_ready, self._takes_up = isinstance(report.status, RunnerReady), False
            if self._setup and isinstance(report.status, _SETUP[self._setup][0]):
                self._setup = None

    def passed(self, seconds: float) -> str | None:
        """So much time has passed; a sentence when that was too much of silence."""
        doing, limit = self._owed()
        if doing is None:
            self._silent_seconds = 0.0
            return None
        self._silent_seconds += seconds
        if self._silent_seconds < limit:
            return None
        return f"no progress for {self._silent_seconds:.0f} s while {doing}"

    def _owed(self) -> tuple[str | None, float]:
        if self._setup is not None:
            doing = _SETUP[self._setup][1]
            limits = {
                Assign: self._patience.starting,
                Connect: self._patience.connecting,
                Load: self._patience.loading,
                Warmup: self._patience.warming_up,
            }
            return doing, limits[self._setup]
        if self._tasks and self._takes_up:
            return "taking up a request", self._patience.taking_up
        if not self._tasks or self._follows:
            return None, 0.0
        if self._is_decoding:
            return "decoding", self._patience.decoding
        return "reading a prompt", self._patience.prefill
