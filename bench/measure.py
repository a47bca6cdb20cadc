"""Measuring: things one after another, again and again, and the median of their ratios."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

ROUNDS = 5
NOISY = 0.15


class Row(NamedTuple):
    """A figure and the bar that it is held to. `spread` is that of the floor alone: noise that is not judged."""

    what: str
    value: float
    bar: float | None = None
    at_least: bool = True
    spread: float = 0.0
    unit: str = "ratio"

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        if self.spread > NOISY:
            return "noisy"
        return "holds" if (self.value >= self.bar) == self.at_least or self.value == self.bar else "MISSED"


def interleaved(work: Mapping[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """CPU seconds of each, in rounds of one after another; the first round only warms up."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, run in work.items():
            began = time.process_time()
            run()
            if number:
                taken[name].append(time.process_time() - began)
    return taken


def ratio(floor: list[float], other: list[float]) -> float:
    """The median of floor / other, round by round."""
    return statistics.median(one / two for one, two in zip(floor, other, strict=True))


def spread(taken: list[float]) -> float:
    """How far apart the rounds of one thing are, as a part of their median."""
    return (max(taken) - min(taken)) / statistics.median(taken)
