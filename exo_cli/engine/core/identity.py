"""Identity: two nodes with one id, a node that greets itself, and peers that belong elsewhere.

A copied folder makes a second node of the same id, which would order events of the same cluster again. Whoever is asked
by its own id, or by one that lives at another address, refuses; of the two the one that started later leaves.
"""

from typing import TYPE_CHECKING

from exo_cli.engine.core.effects import Asked, Effects, Leave, Now, Replied
from exo_cli.engine.core.membership import SUSPECT_SECONDS
from exo_cli.engine.core.wire import Hello, Refusal, Welcome

if TYPE_CHECKING:
    from exo_cli.engine.core.replica import Replica

# A node that comes back at another address is taken for its own copy until its silence there is noticed.
DOUBLED_SECONDS = SUSPECT_SECONDS + 2.0
STARTING_SECONDS = 60.0
TOGETHER_SECONDS = 1.0
_HINT = "EXO_HOME=~/another-node exo node start"


class Identity:
    """See the module. It works on its replica's machines."""

    def __init__(self, replica: "Replica") -> None:
        """`started`: when the node did; `_refused`: since when others take it for a copy.

        `_turned_away`: the address of the last one that came with this node's id.
        """
        self.started = 0.0
        self._turned_away = ""
        self._replica = replica
        self._refused: float | None = None

    def imposter(self, given: Asked, hello: Hello, now: Now) -> Refusal | None:
        """What to say to a node whose id another one has."""
        replica, source = self._replica, given.envelope.source
        hint = "give the copy a fresh EXO_HOME, or delete its node-id file"
        if source == replica.node_id:
            self._turned_away = hello.address
            own: dict[str, object] = {"address": replica.address, "uptime_seconds": now.seconds - self.started}
            reason = f"node id {source} is in use at {replica.address}"
            return Refusal(code="duplicate_id", reason=reason, hint=hint, details=own)
        known = replica.membership.heard.get(source)
        alive = known is not None and not replica.membership.is_suspect(source, now.seconds)
        if alive and known and known.address not in {"", hello.address}:
            reason = f"node id {source} is in use at {known.address}"
            return Refusal(code="duplicate_id", reason=reason, hint=hint, details={"address": known.address})
        return None

    def refused(self, given: Replied, refusal: Refusal, address: str, now: Now, effects: Effects) -> None:
        """A peer says that this node's id is taken: by itself, or by a third. Who runs for long only says so."""
        replica, taken_at = self._replica, str(refusal.details.get("address"))
        if taken_at == replica.address:
            replica.follower.link.met.add(address)
            replica.follower.fail_with(address, "it is the address of this node itself", effects)
            return
        replica.follower.fail_with(address, refusal.reason, effects)
        self._refused = now.seconds if self._refused is None else self._refused
        is_direct = given.envelope is not None and given.envelope.source == replica.node_id
        uptime = now.seconds - self.started
        is_late = self._is_later(refusal, uptime) if is_direct else now.seconds - self._refused > DOUBLED_SECONDS
        if is_late and uptime < STARTING_SECONDS:
            effects.leave = Leave(f"{refusal.reason}: these folders are a copy of that node's", _HINT)

    def _is_later(self, refusal: Refusal, uptime: float) -> bool:
        """Whether this one of the two began later. Of two that began together the one that asks is; when both ask, the
        one with the greater address.
        """
        theirs, taken_at = refusal.details.get("uptime_seconds"), refusal.details.get("address")
        if not isinstance(theirs, int | float):
            return False
        if abs(theirs - uptime) <= TOGETHER_SECONDS and taken_at == self._turned_away:
            return self._replica.address > str(taken_at)
        return uptime < theirs + TOGETHER_SECONDS

    def accepted(self) -> None:
        """Somebody took this node for what it is."""
        self._refused = None

    def welcomed(self, welcome: Welcome, address: str, effects: Effects) -> None:
        """This master greeted whom it was told of: one of its own nodes, or somebody of another cluster."""
        self.accepted()
        replica, link = self._replica, self._replica.follower.link
        link.met.add(address)
        if welcome.cluster_id == replica.cluster_id and welcome.master == replica.node_id:
            link.tried.pop(address, None)
            return
        why = (
            f"it follows node {welcome.master} in cluster {welcome.cluster_id}, and this node is the master of its own"
        )
        replica.follower.fail_with(address, why, effects)
