"""Membership: who was heard when, and who is silent past the deadline. Opinions about life, never about order."""

from collections.abc import Iterable
from dataclasses import dataclass

PULSE_SECONDS = 0.5
SUSPECT_SECONDS = 3 * PULSE_SECONDS
LOST_SECONDS = 10.0


@dataclass(slots=True)
class Heard:
    """The last sign of a node: its incarnation, address, monotonic time, and the live figures it sent."""

    incarnation: int
    address: str
    at: float
    memory_available_bytes: int = 0
    open_streams: int = 0


class Membership:
    """The signs of life of other nodes, as seen from this one."""

    def __init__(self) -> None:
        """Nobody has been heard yet."""
        self.heard: dict[str, Heard] = {}
        self._looked = float("-inf")

    def hear(self, node_id: str, incarnation: int, address: str, now: float) -> Heard | None:
        """Note a sign of life; None when it comes from an incarnation that was already replaced."""
        known = self.heard.get(node_id)
        if known is not None and known.incarnation > incarnation:
            return None
        sign = Heard(incarnation, address, now)
        if known is not None and known.incarnation == incarnation:
            sign.memory_available_bytes, sign.open_streams = known.memory_available_bytes, known.open_streams
        self.heard[node_id] = sign
        return sign

    def expect(self, node_ids: Iterable[str], now: float) -> None:
        """Begin to wait, in this order, for members that were not heard yet (a master that just started)."""
        for node_id in node_ids:
            if node_id not in self.heard:
                self.heard[node_id] = Heard(0, "", now)

    def silent(self, now: float, seconds: float = LOST_SECONDS) -> list[str]:
        """Nodes whose last sign is older than `seconds`."""
        return [node_id for node_id, sign in self.heard.items() if now - sign.at > seconds]

    def woke(self, now: float) -> None:
        """To be called often. A node that was asleep itself holds the silence of that while against nobody."""
        if now - self._looked > SUSPECT_SECONDS:
            for sign in self.heard.values():
                sign.at = max(sign.at, min(now, sign.at + now - self._looked))
        self._looked = now

    def is_suspect(self, node_id: str, now: float) -> bool:
        """Whether a node missed three pulses."""
        sign = self.heard.get(node_id)
        return sign is not None and now - sign.at > SUSPECT_SECONDS

    def forget(self, node_id: str) -> None:
        """The node is gone."""
        self.heard.pop(node_id, None)
