"""The simulated world: one queue, one clock, one seed; a network that loses, delays, repeats and splits.

Nothing here knows what a message means. Everything that happens is drawn from `rng` in the order of the queue, so a
seed tells a whole run.
"""

import heapq
import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from pydantic import BaseModel

from exo_cli.engine.core.effects import Ask, Publish
from exo_cli.engine.core.wire import Message, pack
from exo_cli.engine.recorder import Recorder

if TYPE_CHECKING:
    from exo_cli.engine.core.replica import Replica
    from tests.sim.shell import Shell


class BrokenPromiseError(AssertionError):
    """A promise was broken; the trace tells how."""


class World:
    """Time, chance, and the wires between shells."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.seed, self.now, self.steps = seed, 0.0, 0
        self.trace: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=20000)
        self.shells: dict[str, Shell] = {}
        self.follows: dict[tuple[str, str], set[str]] = {}
        self.cuts: set[frozenset[str]] = set()
        self.drop = self.repeat = self.slow = 0.0
        self.delay_seconds = 0.02
        self.lines: dict[int, bytes] = {}
        self.hashes: dict[int, str] = {}
        self.records: Path | None = None
        self.recorders: list[Recorder] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def door(self, shell: "Shell") -> "Replica | Recorder":
        """What a shell steps: its new replica, with a recorder in front of it where `records` is a folder."""
        if self.records is None:
            return shell.replica
        self.recorders.append(Recorder(self.records / f"{shell.name}-{shell.life}", shell.replica, shell.seeds))
        return self.recorders[-1]

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something after a while; equal times in the order of asking."""
        self._count += 1
        heapq.heappush(self._queue, (self.now + seconds, self._count, do))

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, do = heapq.heappop(self._queue)
            do()
        self.now = until

    def note(self, who: str, *what: object) -> None:
        """A line of the trace; it is put into words only when somebody asks."""
        self.trace.append((self.now, who, what))

    def told(self, lines: int) -> list[str]:
        """The end of the trace."""
        chosen = list(self.trace)[max(0, len(self.trace) - lines) :]
        return [f"{now:9.3f} {who:>3} {' '.join(_short(each) for each in what)}" for now, who, what in chosen]

    def fail(self, why: str) -> None:
        """A promise is broken."""
        raise BrokenPromiseError(f"seed {self.seed}, {self.now:.3f} s: {why}")

    def chance(self, probability: float) -> bool:
        """True that often."""
        return probability > 0 and self.rng.random() < probability

    # Wires -------------------------------------------------------------------------------------------------------

    def is_cut(self, one: str, other: str) -> bool:
        """Whether nothing passes between two nodes."""
        return one != other and frozenset((one, other)) in self.cuts

    def _delay(self) -> float:
        if self.chance(self.slow):
            return self.rng.uniform(0.5, 7.0)
        return self.rng.uniform(0.0005, self.delay_seconds)

    def at(self, address: str) -> "Shell | None":
        """Who listens there."""
        return self.shells.get(address.partition(":")[0])

    def publish(self, source: "Shell", publish: Publish) -> None:
        """To every follower, each by its own luck."""
        payload = pack(source.replica.envelope(publish.message))
        for name in sorted(self.follows.get((source.address, publish.topic), ())):
            target = self.shells[name]
            copies = 2 if self.chance(self.repeat) else 1
            for _ in range(copies):
                if not self.chance(self.drop):
                    self.later(self._delay(), lambda target=target: self._hear(source, target, payload))

    def _hear(self, source: "Shell", target: "Shell", payload: bytes) -> None:
        if not self.is_cut(source.name, target.name):
            target.hear(payload)

    def ask(self, source: "Shell", ask: Ask) -> None:
        """Carry a question there; its answer, or none, comes back exactly once."""
        life, payload = source.life, pack(source.replica.envelope(ask.message))
        target = self.at(ask.address)
        self.later(ask.timeout_seconds, lambda: source.replied(life, ask.ask_id, None, "timeout"))
        if target is None or not target.is_alive or self.chance(self.drop / 2):
            self.later(0.01, lambda: source.replied(life, ask.ask_id, None, "nobody there"))
            return

        def answer(message: Message) -> None:
            answered = pack(target.replica.envelope(message))
            if not self.chance(self.drop):
                self.later(self._delay(), lambda: back(answered))

        def back(answered: bytes) -> None:
            if not self.is_cut(source.name, target.name):
                source.replied(life, ask.ask_id, answered, "")

        def arrive() -> None:
            if not self.is_cut(source.name, target.name):
                target.asked(payload, answer)

        self.later(self._delay(), arrive)


def _short(value: object) -> str:
    if not isinstance(value, BaseModel):
        return str(value)
    plain = value.model_dump(mode="json", exclude_none=True)
    name = plain.pop("type", type(value).__name__)
    return f"{name} {json.dumps(plain)}"
