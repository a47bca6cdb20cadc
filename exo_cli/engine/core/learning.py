"""Learning: what a node does with what other nodes publish and answer: follow, join, catch up, take a snapshot.

The follower knows where it stands and asks; this brings its answers together with the replica's state and order.
"""

from typing import TYPE_CHECKING

from exo_cli.engine.core.effects import Effects, Note, Now, Replied
from exo_cli.engine.core.events import Record
from exo_cli.engine.core.intents import ReportNode
from exo_cli.engine.core.state import load
from exo_cli.engine.core.wire import Answers, Batch, Envelope, Heartbeat, Pulse, Refusal, Snapshot, Tail, Welcome

if TYPE_CHECKING:
    from exo_cli.engine.core.replica import Replica


class Learning:
    """See the module. It works on its replica's machines."""

    def __init__(self, replica: "Replica") -> None:
        """`_compared`: the index at which this state was last found to be the master's."""
        self._replica = replica
        self._compared = -1

    def heard(self, envelope: Envelope, now: Now, effects: Effects) -> None:
        """A published message: a sign of life, the master's head, or its records."""
        body = envelope.body
        if envelope.cluster != self._replica.cluster_id or envelope.source == self._replica.node_id:
            effects.note.append(Note("dropped", {"why": "other cluster" if envelope.cluster else "no cluster"}))
            return
        if isinstance(body, Pulse):
            sign = self._replica.membership.hear(envelope.source, envelope.incarnation, body.address, now.seconds)
            if sign is not None:
                sign.memory_available_bytes, sign.open_streams = body.memory_available_bytes, body.open_streams
        elif not self._replica.is_master and isinstance(body, Heartbeat) and body.term >= self._replica.consensus.term:
            self._replica.follower.heartbeat(body, self._replica.state.term, now, effects)
            self._compare(body, effects)
            self._join_if_due(now, effects)
        elif not self._replica.is_master and isinstance(body, Batch) and body.term >= self._replica.consensus.term:
            self._replica.follower.link.master_heard = now.seconds
            if self._replica.follower.agrees(body.term, self._replica.state.term, effects):
                self._take(self._replica.follower.lines(body, effects), effects)

    def _compare(self, beat: Heartbeat, effects: Effects) -> None:
        """The same records must give the same state everywhere; if they do not, take the master's."""
        state = self._replica.state
        if self._replica.follower.link.phase != "following" or beat.hash_index != state.index:
            return
        if self._compared != beat.hash_index and state.hash() != beat.state_hash:
            effects.note.append(Note("diverged", {"index": state.index, "why": "the master's state has another hash"}))
            self._replica.follower.want_snapshot(effects)
        self._compared = state.index

    def _take(self, records: list[Record], effects: Effects) -> None:
        if records:
            self._replica.consensus.accept(records)
            effects.append += records

    def replied(self, given: Replied, now: Now, effects: Effects) -> None:
        """An answer to one of this node's questions, or that none came."""
        address = self._replica.follower.asked_of(given.ask_id)
        body = self._replica.follower.replied(given.ask_id, given.envelope, given.why, now, effects)
        match body:
            case Welcome() if self._replica.is_master:
                self._replica.identity.welcomed(body, address, effects)
            case Welcome():
                self._welcomed(body, now, effects)
            case Refusal() if body.code == "duplicate_id":
                self._replica.identity.refused(given, body, address, now, effects)
            case Refusal() if body.code == "no_master":
                self._settle_who_begins(given, body, now, effects)
            case Snapshot():
                self._install(body, effects)
            case Tail():
                self._take(self._replica.follower.lines(body, effects), effects)
                self._join_if_due(now, effects)
            case Answers():
                self._replica.mastery.answered(body, now, effects)
                self._replica.follower.submit(now, effects)
            case _:
                pass

    def _settle_who_begins(self, given: Replied, refusal: Refusal, now: Now, effects: Effects) -> None:
        """Two nodes that only know each other and never had another master: one begins, rather one with a history."""
        seeks_too = refusal.details.get("seeks") is True
        if self._replica.is_master or given.envelope is None or not self._replica.may_begin or not seeks_too:
            return
        mine = (self._replica.state.index < 0, self._replica.node_id)
        if mine < (refusal.details.get("fresh") is True, given.envelope.source):
            self._replica.take_over(now, effects)

    def _welcomed(self, welcome: Welcome, now: Now, effects: Effects) -> None:
        self._replica.identity.accepted()
        if welcome.master == self._replica.node_id:
            self._return_as_master(welcome, now, effects)
            return
        self._replica.follower.welcomed(welcome, now, effects)
        if welcome.cluster_id == self._replica.state.cluster_id:
            # Whether this log can be continued is judged by who answers: the welcome may be older than what came since.
            self._replica.follower.link.phase = "catching"
            self._replica.follower.want_tail(self._replica.state.term, effects)
        else:
            self._replica.follower.want_snapshot(effects)

    def _return_as_master(self, welcome: Welcome, now: Now, effects: Effects) -> None:
        """Others wait for this node to order events again. Without the log that it gave out it must not."""
        state = self._replica.state
        if welcome.cluster_id == state.cluster_id and welcome.head <= state.index:
            self._replica.take_over(now, effects)
            return
        why = f"this node is the master of {welcome.cluster_id}, and its log ends before record {welcome.head}"
        self._replica.follower.link.refused = why
        effects.note.append(Note("cannot return as master", {"why": why}))

    def _install(self, snapshot: Snapshot, effects: Effects) -> None:
        if self._replica.follower.link.phase != "joining":
            return  # it was long on its way, and this log went on meanwhile
        try:
            state = load(snapshot.state)
            fault = "" if state.hash() == snapshot.state_hash else "its state does not have the hash it names"
        except ValueError as error:
            fault = f"it is no state: {str(error).splitlines()[0]}"
        if fault:
            effects.note.append(Note("snapshot refused", {"why": fault}))
            self._replica.follower.link.phase = "seeking"
            return
        mine = self._replica.state
        if mine.cluster_id not in {"", state.cluster_id}:
            ends = f", which ends {', '.join(mine.instances)[:500]}" if mine.instances else ""
            why = f"leaves its cluster {mine.cluster_id} for {state.cluster_id}{ends}"
            effects.note.append(Note("joined another cluster", {"why": why}))
        self._replica.adopt(state, snapshot.term, effects)
        self._replica.follower.link.agreed = True
        self._replica.follower.want_tail(snapshot.term, effects)

    def followed(self, now: Now, effects: Effects) -> None:
        """Records of the master are in this node's log: go on, or join when the head is reached."""
        link, last = self._replica.follower.link, self._replica.state
        if link.phase == "catching":
            if last.index < link.head:
                self._replica.follower.want_tail(last.term, effects)
            else:
                link.phase = "following"
        self._join_if_due(now, effects)

    def _join_if_due(self, now: Now, effects: Effects) -> None:
        waiting = any(isinstance(each.command, ReportNode) for each in self._replica.follower.outbox)
        if self._replica.follower.link.phase == "following" and not self._replica.is_member and not waiting:
            self._replica.report_myself(now, effects)
