"""How many BLAS threads decoding gets, by measurement.

The threads of OpenBLAS wait for one another in a loop. On a quiet machine all of them decode a little faster than half
of them; as soon as something else wants a core they decode ten times slower, because the one that others wait for is
not running. So both are tried, the faster one is kept for a while, and both are tried again: earlier when it gets
slow, later each time that nothing has changed. For single tokens the bits of the result do not depend on the number.

It knows times and numbers of threads. The prompt is always read with all threads: there the bits do depend on it.
"""

from collections import deque
from collections.abc import Callable

_TRIAL_TOKENS = 3
_SHORTEST_REST_TOKENS, _LONGEST_REST_TOKENS = 64, 1024
_SLOW = 2.0
"""So many times slower than when it was chosen: try again at once."""


class Pace:
    """A choice between all threads and half of them, kept over requests."""

    def __init__(self, threads: int, apply: Callable[[int], None]) -> None:
        """`apply` sets the number; nothing may be at work when it is called."""
        self._apply = apply
        self._all = threads
        self._counts = (threads,) if threads < 2 else (threads, max(1, threads // 2))
        self._seconds: dict[int, float] = {}
        self._chosen: int | None = None
        self._before: int | None = None
        self._rest_tokens = _SHORTEST_REST_TOKENS
        self._applied = self._wanted = threads
        self._took: deque[float] = deque(maxlen=_TRIAL_TOKENS)
        self._left = _TRIAL_TOKENS
        self._mixed = True

    @property
    def due(self) -> bool:
        """Whether decoding wants another number than is applied now."""
        return self._wanted != self._applied

    def read(self) -> None:
        """A prompt is read next."""
        self._change_to(self._all)

    def decode(self) -> None:
        """Single tokens come next, with the number that is wanted."""
        self._change_to(self._wanted)

    def took(self, seconds: float) -> None:
        """A token took so long, with the number that is applied."""
        if self._mixed:
            # Part of its work was done before the change, or in the time of the prompt.
            self._mixed = False
            return
        if len(self._counts) == 1:
            return
        self._took.append(seconds)
        self._left -= 1
        if self._left > 0 and not self._slowed():
            return
        self._seconds[self._wanted] = sorted(self._took)[len(self._took) // 2]
        self._choose()

    def _slowed(self) -> bool:
        if self._chosen is None or len(self._took) < _TRIAL_TOKENS:
            return False
        return min(self._took) > _SLOW * self._seconds[self._chosen]

    def _choose(self) -> None:
        if self._chosen is not None:
            # A rest is over: what the others can do now is not known any more.
            self._seconds = {self._wanted: self._seconds[self._wanted]}
            self._before, self._chosen = self._chosen, None
        untried = [count for count in self._counts if count not in self._seconds]
        if untried:
            self._wanted, self._left = untried[0], _TRIAL_TOKENS
        else:
            best = min(self._counts, key=lambda count: self._seconds[count])
            longer = min(2 * self._rest_tokens, _LONGEST_REST_TOKENS)
            self._rest_tokens = longer if best == self._before else _SHORTEST_REST_TOKENS
            self._chosen = self._wanted = best
            self._left = self._rest_tokens
        self._took.clear()

    def _change_to(self, count: int) -> None:
        self._mixed = True
        if count != self._applied:
            self._apply(count)
            self._applied = count
