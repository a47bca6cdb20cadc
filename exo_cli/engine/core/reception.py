"""Reception: what other nodes ask of this one. Greeting newcomers, turning copies away, handing out the state.

Only the master takes submissions and gives out its log; any node tells a newcomer who the master is.
"""

from typing import TYPE_CHECKING

from exo_cli.engine.core.effects import Asked, Effects, Follow, Note, Now
from exo_cli.engine.core.wire import GetSnapshot, GetTail, Hello, Refusal, Snapshot, Submit, Tail, Welcome

if TYPE_CHECKING:
    from exo_cli.engine.core.replica import Replica


class Reception:
    """See the module. It works on its replica's machines."""

    def __init__(self, replica: "Replica") -> None:
        """Nothing is kept here."""
        self._replica = replica

    def asked(self, given: Asked, now: Now, effects: Effects) -> None:
        """A request of another node."""
        replica, body = self._replica, given.envelope.body
        if isinstance(body, Hello):
            replica.reply(given.reply_to, self._greet(given, body, now, effects), effects)
        elif (refusal := self._not_for_us(given)) is not None:
            effects.note.append(Note("refused", {"code": refusal.code, "reason": refusal.reason}))
            replica.reply(given.reply_to, refusal, effects)
        else:
            self._serve(given, now, effects)

    def _not_for_us(self, given: Asked) -> Refusal | None:
        replica = self._replica
        if given.envelope.cluster != replica.state.cluster_id:
            return Refusal(code="other_cluster", reason=f"this node belongs to cluster {replica.state.cluster_id}")
        if not replica.is_master:
            master = replica.follower.link.master or "nobody"
            return Refusal(code="not_master", reason=f"this node is not the master ({master} is)")
        return None

    def _serve(self, given: Asked, now: Now, effects: Effects) -> None:
        replica, body = self._replica, given.envelope.body
        match body:
            case Submit():
                replica.mastery.submitted_by_node(body, given.reply_to, now, effects)
            case GetSnapshot():
                replica.reply(given.reply_to, self._snapshot(), effects)
            case GetTail():
                # The shell fills the lines in from the log: this names how far they may go.
                replica.reply(given.reply_to, Tail(head=replica.state.index), effects)
            case _:
                refusal = Refusal(code="unexpected", reason=f"{body.type} is not a request")
                replica.reply(given.reply_to, refusal, effects)

    def _snapshot(self) -> Snapshot:
        state = self._replica.state
        return Snapshot(index=state.index, term=state.term, state=state.dump(), state_hash=state.hash())

    def _greet(self, given: Asked, hello: Hello, now: Now, effects: Effects) -> Welcome | Refusal:
        replica, source = self._replica, given.envelope.source
        link = replica.follower.link
        if fault := replica.identity.imposter(given, hello, now):
            effects.note.append(Note("hello refused", {"address": hello.address, "why": fault.reason}))
            return fault
        knows_none = not replica.is_master and (not link.master_address or link.phase == "seeking")
        if knows_none or (replica.is_master and replica.state.term != replica.consensus.term):
            seeks: dict[str, object] = {"seeks": knows_none and replica.may_begin, "fresh": replica.state.index < 0}
            return Refusal(code="no_master", reason="this node knows no master yet", details=seeks)
        effects.send.append(Follow(hello.address, "gossip"))
        peers = {
            node_id: node.facts.addresses[0]
            for node_id, node in replica.state.nodes.items()
            if node.facts.addresses and node_id != source
        }
        if replica.is_master:
            replica.membership.hear(source, given.envelope.incarnation, hello.address, now.seconds)
        return Welcome(
            cluster_id=replica.state.cluster_id,
            master=replica.node_id if replica.is_master else link.master,
            master_address=replica.address if replica.is_master else link.master_address,
            term=replica.consensus.term,
            head=replica.state.index,
            peers=peers,
        )
