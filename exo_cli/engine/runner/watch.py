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

    A load may be a conversion, or come from a disk that has to wake: it has the longest. A group that connects gives
    itself up after two minutes. A chunk of a prompt is half a second of work, a token less.
    """

    starting: float = 120.0
    connecting: float = 150.0
    loading: float = 1800.0
    warming_up: float = 300.0
    prefill: float = 120.0
    decoding: float = 60.0

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> "Patience":
        """The usual one; EXO_STALL_SECONDS, where it is a positive number, bounds each of them."""
        try:
            most = float(environ.get(VARIABLE, "inf"))
        except ValueError:
            most = float("inf")
        usual = cls()
        if not most > 0:
            return usual
        return cls(*(min(most, getattr(usual, name)) for name in cls.__slots__))


class Watch:
    """What one runner owes, and for how long it has been silent."""

    def __init__(self, patience: Patience) -> None:
        """It owes nothing yet."""
        self._patience = patience
        self._setup: type[Order] | None = None
        self._tasks: set[str] = set()
        self._is_decoding = False
        self._follows = False
        self._silent_seconds = 0.0

    def ordered(self, order: Order) -> None:
        """An order was written to it."""
        if type(order) in _SETUP:
            self._setup = type(order)
        elif isinstance(order, Generate):
            # Other ranks follow rank 0 in silence: when one of them is stuck, so is rank 0.
            self._follows = self._follows or order.params is None
            self._tasks.add(order.task_id)

    def heard(self, report: Report) -> None:
        """It said something."""
        self._silent_seconds = 0.0
        if isinstance(report, Step):
            self._is_decoding = self._is_decoding or report.tokens > 0
        elif isinstance(report, Done):
            self._tasks.discard(report.task_id)
            self._is_decoding = False
        elif isinstance(report, StatusReport) and self._setup and isinstance(report.status, _SETUP[self._setup][0]):
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
        if not self._tasks or self._follows:
            return None, 0.0
        if self._is_decoding:
            return "decoding", self._patience.decoding
        return "reading a prompt", self._patience.prefill
