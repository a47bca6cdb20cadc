"""The replica: the one door into the core. `step(input, now)` takes everything that a node hears and gives Effects.

It holds the machines of a node together: consensus (the order), follower and sequencer (catching up), membership (who
lives), tending (this machine's runners and chats), and the state. Effects are carried out in the order note, restart,
append, send, act, answer, leave: nobody hears of an event that is not in the log. Nothing of an append is applied, sent
or answered before `Appended` comes back; the master decides on its tentative state and answers from the committed one.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from exo_cli.engine.core.consensus import Consensus
from exo_cli.engine.core.effects import (
    Appended,
    AppendFailed,
    Asked,
    ChatAdmitted,
    ChatCancelled,
    ChatEnded,
    DownloadChanged,
    Effects,
    FactsChanged,
    Follow,
    Heard,
    Input,
    Note,
    Now,
    Publish,
    Replied,
    Reply,
    RunnerChanged,
    Submitted,
    Tick,
)
from exo_cli.engine.core.events import By, Event, Record, TermStarted, VotersChanged
from exo_cli.engine.core.follower import Follower, Reports
from exo_cli.engine.core.identity import Identity
from exo_cli.engine.core.ids import derived
from exo_cli.engine.core.intents import Command, ReportDownload, ReportNode, ReportRunner
from exo_cli.engine.core.learning import Learning
from exo_cli.engine.core.mastery import Mastery
from exo_cli.engine.core.membership import PULSE_SECONDS, Membership
from exo_cli.engine.core.reception import Reception
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tending import Tending, failures_in
from exo_cli.engine.core.topology import NodeFacts, changed_enough
from exo_cli.engine.core.wire import (
    Envelope,
    Header,
    Message,
    Pulse,
)

RETRY_SECONDS = 1.0


class Replica:
    """One node's part of the cluster, without any IO. Construct it from what the log holds, then feed it."""

    def __init__(
        self,
        node_id: str,
        incarnation: int,
        address: str,
        facts: NodeFacts,
        state: State,
        version: str,
        seeds: Sequence[str] = (),
    ) -> None:
        """`incarnation` grows with every start of this node; `seeds` are addresses of nodes that may know a master."""
        self.node_id, self.incarnation, self.version = node_id, incarnation, version
        self.address, self.facts = address, facts
        self.state = state
        self.tentative = state.copy()
        self.consensus = Consensus(node_id, state.term, state.index)
        self.membership = Membership()
        known = [node.facts.addresses[0] for node in state.nodes.values() if node.facts.addresses]
        mine = state.nodes[node_id].facts.addresses if node_id in state.nodes else ()
        former = next((each for each in mine[:1] if each not in seeds), "")
        self.follower = Follower(address, facts, [*seeds, *known], state.index + 1, former)
        self._is_sent = bool(seeds)
        self.tending = Tending(node_id)
        self.mastery = Mastery(self)
        self.reception = Reception(self)
        self.identity = Identity(self)
        self.learning = Learning(self)
        self.open_streams = 0
        self._told = facts
        self._reports = Reports(f"r-{node_id}-{incarnation}")
        self._next_pulse = float("-inf")
        self._next_try = float("-inf")

    @property
    def is_master(self) -> bool:
        """Whether this node orders events."""
        return self.consensus.is_master

    @property
    def cluster_id(self) -> str:
        """The cluster that this node belongs to, or is joining."""
        joining = "" if self.is_master else self.follower.link.cluster_id
        return joining or self.state.cluster_id

    @property
    def has_begun(self) -> bool:
        """Whether the term of this master is in its log (or on its way there)."""
        return self.is_master and self.tentative.term == self.consensus.term

    @property
    def may_begin(self) -> bool:
        """Whether this node may begin a term: nobody else was ever its master."""
        return self.state.master in {"", self.node_id}

    @property
    def is_member(self) -> bool:
        """Whether the log knows this incarnation of the node; before that it plans nothing."""
        known = self.state.nodes.get(self.node_id)
        return known is not None and known.incarnation == self.incarnation

    def start(self, now: Now) -> Effects:
        """The first step: the master of the log it has begins a term, and so does a new node that nobody sent
        elsewhere; the others seek a master. A node that was master of itself alone goes where its seeds send it.
        """
        effects = Effects()
        self.identity.started = now.seconds
        was_master = self.state.master == self.node_id
        if (was_master and len(self.state.nodes) > 1) or (not self._is_sent and self.may_begin):
            self.take_over(now, effects)
        return effects

    def take_over(self, now: Now, effects: Effects) -> None:
        """Begin the next term as its master."""
        self.consensus.take_over()
        self.tentative = self.state.copy()
        others = {node_id: node for node_id, node in self.state.nodes.items() if node_id != self.node_id}
        self.membership.expect(others, now.seconds)
        effects.send += [Follow(node.facts.addresses[0], "gossip") for node in others.values() if node.facts.addresses]
        self._begin_term(now, effects)

    def _begin_term(self, now: Now, effects: Effects) -> None:
        cluster_id = self.state.cluster_id or derived("c", self.node_id, str(self.incarnation), now.at.isoformat())
        by = By(node=self.node_id)
        self.propose([TermStarted(master=self.node_id, cluster_id=cluster_id)], by, now, effects)
        if self.tentative.voters != (self.node_id,):
            self.propose([VotersChanged(voters=(self.node_id,))], by, now, effects)
        self.report_myself(now, effects)

    def report_myself(self, now: Now, effects: Effects) -> None:
        """Say who this node is: to join, or because its facts changed."""
        self._told = self.facts
        self._report(ReportNode(node_id=self.node_id, incarnation=self.incarnation, facts=self.facts), now, effects)

    def adopt(self, state: State, term: int, effects: Effects) -> None:
        """Go on from another history's state: the log begins anew with it."""
        left = {"index": self.state.index, "term": self.state.term}
        self.state, self.tentative = state, state.copy()
        self.consensus.adopt(term, state.index)
        self.follower.sequencer.reset(state.index + 1)
        effects.restart = self.header(left)

    def step(self, given: Input, now: Now) -> Effects:
        """Everything that happens to a node goes through here. See the module for the order of the effects."""
        effects = Effects()
        match given:
            case Tick():
                self._tick(now, effects)
            case Appended():
                self._committed(self.consensus.appended(given.upto), now, effects)
            case AppendFailed():
                self._append_failed(given.error, now, effects)
            case Submitted():
                self.mastery.submitted(given, now, effects)
            case Heard():
                self.learning.heard(given.envelope, now, effects)
            case Asked():
                self.reception.asked(given, now, effects)
            case Replied():
                self.learning.replied(given, now, effects)
            case RunnerChanged():
                reports = self.tending.runner_changed(given.runner_id, given.attempt, given.status, now.seconds)
                self._report_all(reports, now, effects)
            case DownloadChanged():
                self._report_all(self.tending.download_changed(given.progress, now.seconds), now, effects)
            case FactsChanged():
                self.facts = self.follower.facts = given.facts
                if self.is_member and changed_enough(self._told, given.facts):
                    self.report_myself(now, effects)
            case ChatAdmitted():
                self.tending.admit(given.task, given.is_mine, now.seconds)
            case ChatCancelled():
                effects.act += self.tending.cancel(given.task_id)
            case ChatEnded():
                self._report_all(self.tending.end(given.task), now, effects)
            case _:
                assert_never(given)
        self._act(now, effects)
        return effects

    def _act(self, now: Now, effects: Effects) -> None:
        effects.act += self.tending.stranded(self.state)
        if self.is_member:
            effects.act += self.tending.actions(self.state, now.seconds)

    # Time --------------------------------------------------------------------------------------------------------

    def _tick(self, now: Now, effects: Effects) -> None:
        self._report_all(self.tending.tick(now.seconds), now, effects)
        if self.is_master:
            self._try_again(now, effects)
            self.mastery.tick(now, effects)
            self.follower.call_roll(now, effects)
        else:
            self.follower.tick(now, effects)
        self.mastery.expire(now, effects)
        if now.seconds >= self._next_pulse:
            self._next_pulse = now.seconds + PULSE_SECONDS
            self._pulse(effects)

    def _try_again(self, now: Now, effects: Effects) -> None:
        """What the disk did not take a while ago: the beginning of the term, then this node's own reports in order."""
        if now.seconds < self._next_try:
            return
        if not self.has_begun:
            self._begin_term(now, effects)
        for submission in self._reports.take_postponed():
            self.mastery.decide(submission, now, effects)

    def _pulse(self, effects: Effects) -> None:
        if self.is_master and self.state.term == self.consensus.term:
            effects.send.append(Publish("events", self.mastery.heartbeat()))
        pulse = Pulse(
            address=self.address,
            term=self.state.term,
            head=self.state.index,
            memory_available_bytes=self.facts.memory_available_bytes,
            open_streams=self.open_streams,
        )
        effects.send.append(Publish("gossip", pulse))

    # Reports of this node ----------------------------------------------------------------------------------------

    def _report_all(self, commands: Iterable[Command], now: Now, effects: Effects) -> None:
        for command in commands:
            self._report(command, now, effects)

    def _report(self, command: Command, now: Now, effects: Effects) -> None:
        effects.note += failures_in(command, self.state)
        submission = self._reports.add(command, By(node=self.node_id))
        if self._reports.postponed:
            self._reports.postpone(submission.command_id)
        elif self.is_master:
            self.mastery.decide(submission, now, effects)
        else:
            self.follower.hand_in(submission, now, effects)

    def settled(self, command_id: str, index: int | None) -> None:
        """A report of this node was answered. It counts once this node's own state holds what came of it."""
        self._reports.answered(command_id, -1 if index is None else index)
        self._settle()

    def _settle(self) -> None:
        for command in self._reports.take_settled(self.state.index):
            if isinstance(command, ReportRunner | ReportDownload):
                self.tending.settled(command)

    def is_own(self, command_id: str) -> bool:
        """Whether it is a report of this node that was not answered yet."""
        return self._reports.knows(command_id)

    def postpone(self, command_id: str) -> bool:
        """Keep a report of this node, which the log could not take, for another try; False when it is none."""
        return self._reports.postpone(command_id)

    # Order -------------------------------------------------------------------------------------------------------

    def propose(self, events: Iterable[Event], by: By, now: Now, effects: Effects) -> list[Record]:
        """Give events their places in the log; they count once they are durable."""
        records = self.consensus.propose(events, by, now.at)
        for record in records:
            apply(self.tentative, record)
        effects.append += records
        return records

    def _committed(self, records: list[Record], now: Now, effects: Effects) -> None:
        for record in records:
            apply(self.state, record)
        if self.is_master:
            self.mastery.committed(records, effects)
        else:
            self._settle()
            self.learning.followed(now, effects)

    def _append_failed(self, error: str, now: Now, effects: Effects) -> None:
        lost = self.consensus.drop_tail()
        if self.is_master:
            self.tentative = self.state.copy()
            self._next_try = now.seconds + RETRY_SECONDS
            self.mastery.failed(lost, error, effects)
        else:
            self.follower.sequencer.reset(self.consensus.last_index + 1)
            if self.follower.link.phase != "seeking":
                self.follower.link.phase = "catching"
        effects.note.append(Note("append failed", {"error": error, "records": len(lost)}))

    # Messages ----------------------------------------------------------------------------------------------------

    def header(self, adopted_from: dict[str, int] | None = None) -> Header:
        """The head of a log that begins at the committed state, which may have been adopted in place of another."""
        return Header(
            version=self.version,
            cluster_id=self.state.cluster_id or "c-none",
            node_id=self.node_id,
            base_index=self.state.index,
            base_term=self.state.term,
            state_hash=self.state.hash(),
            state=self.state.dump(),
            adopted_from=adopted_from,
        )

    def envelope(self, body: Message) -> Envelope:
        """A message of this node."""
        return Envelope(
            cluster=self.cluster_id,
            source=self.node_id,
            incarnation=self.incarnation,
            version=self.version,
            body=body,
        )

    def reply(self, reply_to: object, message: Message, effects: Effects) -> None:
        """Answer another node."""
        effects.send.append(Reply(reply_to, message))
