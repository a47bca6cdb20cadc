"""Runner statuses and their transition table.

A runner is the child process that holds one shard. Its statuses are reported by its supervisor, with the `attempt`
(the incarnation of the process). Within an attempt a status only moves forwards along TRANSITIONS; reports may be
coalesced, so any status that can be reached is legal. `RunnerShutdown` removes the runner from the state.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Value(BaseModel):
    """What crosses a boundary: frozen, nothing unknown, tagged by `type` where it stands in a union."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunnerIdle(Value):
    """The process runs and holds nothing. `ring_endpoint` is where this rank listens for its group (`host:port`)."""

    type: Literal["RunnerIdle"] = "RunnerIdle"
    ring_endpoint: str | None = None


class RunnerConnecting(Value):
    """Joining its group."""

    type: Literal["RunnerConnecting"] = "RunnerConnecting"


class RunnerConnected(Value):
    """Member of a group of all ranks."""

    type: Literal["RunnerConnected"] = "RunnerConnected"


class RunnerLoading(Value):
    """Reading weights: `layers_loaded` of `total_layers` of this shard."""

    type: Literal["RunnerLoading"] = "RunnerLoading"
    layers_loaded: int = 0
    total_layers: int = 0


class RunnerLoaded(Value):
    """All weights of the shard are in memory."""

    type: Literal["RunnerLoaded"] = "RunnerLoaded"


class RunnerWarmingUp(Value):
    """Running the same path as a request once."""

    type: Literal["RunnerWarmingUp"] = "RunnerWarmingUp"


class RunnerReady(Value):
    """A request would be answered."""

    type: Literal["RunnerReady"] = "RunnerReady"


class RunnerRunning(Value):
    """At work on at least one request (reported when it lasts a second)."""

    type: Literal["RunnerRunning"] = "RunnerRunning"


class RunnerShuttingDown(Value):
    """Asked to end."""

    type: Literal["RunnerShuttingDown"] = "RunnerShuttingDown"


class RunnerShutdown(Value):
    """The process is gone and reaped."""

    type: Literal["RunnerShutdown"] = "RunnerShutdown"


class RunnerFailed(Value):
    """The process died, or said why it cannot go on. `phase` is the status in which it happened."""

    type: Literal["RunnerFailed"] = "RunnerFailed"
    error_message: str | None = None
    phase: str | None = None
    signal: int | None = None
    exit_code: int | None = None


RunnerStatus = Annotated[
    RunnerIdle
    | RunnerConnecting
    | RunnerConnected
    | RunnerLoading
    | RunnerLoaded
    | RunnerWarmingUp
    | RunnerReady
    | RunnerRunning
    | RunnerShuttingDown
    | RunnerShutdown
    | RunnerFailed,
    Field(discriminator="type"),
]

_ENDS = ("RunnerShuttingDown", "RunnerShutdown", "RunnerFailed")

TRANSITIONS: dict[str, tuple[str, ...]] = {
    "RunnerIdle": ("RunnerConnecting", "RunnerLoading", *_ENDS),
    "RunnerConnecting": ("RunnerConnected", *_ENDS),
    "RunnerConnected": ("RunnerLoading", *_ENDS),
    "RunnerLoading": ("RunnerLoaded", *_ENDS),
    "RunnerLoaded": ("RunnerWarmingUp", *_ENDS),
    "RunnerWarmingUp": ("RunnerReady", *_ENDS),
    "RunnerReady": ("RunnerRunning", *_ENDS),
    "RunnerRunning": ("RunnerReady", *_ENDS),
    "RunnerShuttingDown": ("RunnerShutdown", "RunnerFailed"),
    "RunnerFailed": ("RunnerShuttingDown", "RunnerShutdown"),
    "RunnerShutdown": (),
}


def _reachable() -> dict[str, frozenset[str]]:
    closure: dict[str, frozenset[str]] = {}
    for start in TRANSITIONS:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for following in TRANSITIONS[todo.pop()]:
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        closure[start] = frozenset(seen)
    return closure


REACHABLE = _reachable()


def may_follow(earlier: str, later: str) -> bool:
    """Whether a report of status `later` can be true after `earlier` in one attempt (steps between may be missing)."""
    return later in REACHABLE[earlier] or (earlier == later == "RunnerLoading")


SERVING = frozenset({"RunnerReady", "RunnerRunning"})
