"""A keyed back-off: how long to leave a thing alone after it failed. Takes the time as an argument."""

from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True)
class KeyedBackoff:
    """After the n-th failure in a row a key waits `base_seconds` * 2^(n-1), at most `cap_seconds`.

    0.5, 1, 2, 4, 8, 10, 10 ... with the defaults. Success resets a key; `forbid` leaves it alone until then.
    """

    base_seconds: float = 0.5
    cap_seconds: float = 10.0
    _failed: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])

    def record_failure(self, key: str, now: float) -> None:
        """Count a failure at `now` (monotonic seconds)."""
        count = self.attempts(key) + 1
        self._failed[key] = (count, now + min(self.cap_seconds, self.base_seconds * 2.0 ** min(count - 1, 60)))

    def forbid(self, key: str) -> None:
        """No further try can help."""
        self._failed[key] = (self.attempts(key) + 1, inf)

    def may_proceed(self, key: str, now: float) -> bool:
        """Whether the key may be tried at `now`."""
        return now >= self.until(key)

    def until(self, key: str) -> float:
        """The time from which on the key may be tried (-inf when it never failed)."""
        return self._failed[key][1] if key in self._failed else -inf

    def attempts(self, key: str) -> int:
        """How often it failed in a row."""
        return self._failed[key][0] if key in self._failed else 0

    def reset(self, key: str) -> None:
        """Forget its failures."""
        self._failed.pop(key, None)

    def keys(self) -> set[str]:
        """What failed and was not reset."""
        return set(self._failed)

    def next_time(self, now: float) -> float:
        """When the next key becomes free again (inf: none waits)."""
        return min((until for _, until in self._failed.values() if until > now), default=inf)
