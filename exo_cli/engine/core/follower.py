"""The follower's side: find a master, get a snapshot or a tail, follow, and hand reports in.

What is published may be lost; an index, the head in every heartbeat and a tail on request are the whole protocol.
Requests come back as `replied`; nothing here waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from exo_cli.engine.core.effects import Ask, Effects, Follow, Note, Now
from exo_cli.engine.core.events import By, Record
from exo_cli.engine.core.intents import Command, Submission
from exo_cli.engine.core.sequencer import Sequencer
from exo_cli.engine.core.topology import NodeFacts
from exo_cli.engine.core.wire import (
    Answers,
    BadLineError,
    Batch,
    Envelope,
    GetSnapshot,
    GetTail,
    Heartbeat,
    Hello,
    Message,
    Refusal,
    Snapshot,
    Submit,
    Tail,
    Welcome,
    decode_line,
)

ASK_SECONDS = 5.0
HELLO_SECONDS = 1.0
HELLO_MAX_SECONDS = 10.0
MASTER_SILENT_SECONDS = 3.0
SUBMIT_AT_ONCE = 64
PAUSE_SECONDS = 0.5


@dataclass(slots=True)
class Following:
    """Where a follower stands. `phase`: seeking, joining (snapshot), catching (tail), following.

    `agreed`: whether this log is known to be a beginning of the master's in `term`. Indexes that fit prove nothing: a
    master that lost the end of its log gives the same ones again, to other events. `tried`: the peers that were greeted
    and are of no use, and why; `met`: those that a master need not greet again.
    """

    seeds: tuple[str, ...]
    phase: str = "seeking"
    cluster_id: str = ""
    master: str = ""
    master_address: str = ""
    master_heard: float = float("-inf")
    head: int = -1
    term: int = -1
    agreed: bool = False
    peers: dict[str, str] = field(default_factory=dict[str, str])
    refused: str = ""
    tried: dict[str, str] = field(default_factory=dict[str, str])
    met: set[str] = field(default_factory=set[str])


class Reports:
    """This node's own reports, each until it counts: answered, and what came of it in this node's own state."""

    def __init__(self, prefix: str) -> None:
        """Their ids are `prefix-1`, `prefix-2`, ..."""
        self.postponed: list[Submission] = []
        self._prefix, self._count = prefix, 0
        self._open: dict[str, Submission] = {}
        self._answered: dict[str, int] = {}

    def add(self, command: Command, by: By) -> Submission:
        """A new report."""
        self._count += 1
        submission = Submission(command_id=f"{self._prefix}-{self._count}", by=by, command=command)
        self._open[submission.command_id] = submission
        return submission

    def knows(self, command_id: str) -> bool:
        """Whether it is a report that was not answered yet."""
        return command_id in self._open and command_id not in self._answered

    def answered(self, command_id: str, index: int) -> None:
        """It is in the log up to `index` (-1: nowhere)."""
        if command_id in self._open:
            self._answered[command_id] = index

    def take_settled(self, state_index: int) -> list[Command]:
        """The answered ones of which this node's state holds everything."""
        due = [command_id for command_id, index in self._answered.items() if index <= state_index]
        for command_id in due:
            del self._answered[command_id]
        return [self._open.pop(command_id).command for command_id in due]

    def postpone(self, command_id: str) -> bool:
        """Keep one that the log could not take for another try, in order; False when it is none of them."""
        if command_id in self._open:
            self.postponed.append(self._open[command_id])
        return command_id in self._open

    def take_postponed(self) -> list[Submission]:
        """Those to try again."""
        waiting, self.postponed = self.postponed, []
        return waiting


class Follower:
    """See the module. `outbox` holds what the master has not answered yet, in order."""

    def __init__(self, address: str, facts: NodeFacts, seeds: Sequence[str], next_index: int, former: str = "") -> None:
        """Begin to seek at the seeds. `former`: the address that this node had when it was here before."""
        self.former = former
        self.address = address
        self.facts = facts
        self.link = Following(tuple(seeds))
        self.sequencer = Sequencer(next_index)
        self.outbox: list[Submission] = []
        self._asked: dict[int, Ask] = {}
        self._tail_term = -1
        self._last_ask = 0
        self._next_hello = float("-inf")
        self._hellos = 0
        self._submitting = False
        self._next_submit = float("-inf")

    def tick(self, now: Now, effects: Effects) -> None:
        """Ask for a master when there is none, and repeat what got no answer."""
        silent = now.seconds - self.link.master_heard > MASTER_SILENT_SECONDS
        if (self.link.phase == "seeking" or silent) and now.seconds >= self._next_hello:
            self._hello(now, effects)
        self.submit(now, effects)

    def call_roll(self, now: Now, effects: Effects) -> None:
        """For a master: greet whom it was told of until each has answered. A copy of its folders finds out so."""
        if now.seconds >= self._next_hello:
            self._greet([each for each in self.link.seeds if each not in self.link.met], now, effects)

    def _hello(self, now: Now, effects: Effects) -> None:
        self._greet([*self.link.seeds, *self.link.peers.values(), self.link.master_address], now, effects)

    def _greet(self, candidates: list[str], now: Now, effects: Effects) -> None:
        places = [each for each in dict.fromkeys(candidates) if each and each != self.address]
        if not places or self._is_asking(Hello):
            return
        address = places[self._hellos % len(places)]
        self._hellos += 1
        wait = min(HELLO_MAX_SECONDS, HELLO_SECONDS * 2 ** min(8, self._hellos // max(1, 3 * len(places))))
        self._next_hello = now.seconds + wait
        self._ask(address, Hello(address=self.address, facts=self.facts), effects)

    def _ask(self, address: str, message: Message, effects: Effects) -> None:
        self._last_ask += 1
        ask = self._asked[self._last_ask] = Ask(self._last_ask, address, message, ASK_SECONDS)
        effects.send.append(ask)

    def asked_of(self, ask_id: int) -> str:
        """The address that a question which is still open was put to."""
        return ask.address if (ask := self._asked.get(ask_id)) is not None else ""

    def replied(self, ask_id: int, envelope: Envelope | None, why: str, now: Now, effects: Effects) -> Message | None:
        """An answer came (or none). Gives out what the replica itself must act on: a Welcome, Snapshot or Answers."""
        ask = self._asked.pop(ask_id, None)
        asked = ask.message if ask else None
        if isinstance(asked, Submit):
            self._submitting = False
        body = envelope.body if envelope else None
        if ask and isinstance(asked, Hello) and not isinstance(body, Welcome):
            self.link.refused = body.reason if isinstance(body, Refusal) else ""
            if not isinstance(body, Refusal) or body.code != "duplicate_id":
                self.fail_with(ask.address, self.link.refused or why, effects)
            return body
        if body is None or isinstance(body, Refusal):
            self.pause(now)
            if asked is not None and self.link.phase in {"joining", "catching"}:
                self.link.phase = "seeking"
            return None
        self.link.master_heard = now.seconds if not isinstance(body, Welcome) else self.link.master_heard
        if isinstance(body, Tail):
            return self._tail(body, effects)
        return body if isinstance(body, Welcome | Snapshot | Answers) else None

    def _tail(self, tail: Tail, effects: Effects) -> Tail | None:
        self.link.head = max(self.link.head, tail.head)
        if self._tail_term != self.link.term or self.link.phase in {"seeking", "joining"}:
            return None  # of another reign: a heartbeat has it asked again
        if tail.snapshot_needed:
            self.want_snapshot(effects)
            return None
        self.link.agreed = True
        if self.link.phase == "catching" and not tail.lines:
            self.link.phase = "following"
        return tail

    def fail_with(self, address: str, why: str, effects: Effects) -> None:
        """A peer is of no use just now. Said when it is news: it is tried for ever.

        Where this node was before, another one is no fault: it is asked once, since it may be this one's original.
        """
        if address == self.former:
            self.link.met.add(address)
        elif self.link.tried.get(address) != why:
            self.link.tried[address] = why
            effects.note.append(Note("peer failed", {"address": address, "why": why}))

    def welcomed(self, welcome: Welcome, now: Now, effects: Effects) -> None:
        """A master is known: hear its events and everybody's gossip."""
        link = self.link
        if link.master_address and link.master_address != welcome.master_address:
            effects.send.append(Follow(link.master_address, "events", on=False))
        effects.send.append(Follow(welcome.master_address, "events"))
        known = dict.fromkeys((welcome.master_address, *welcome.peers.values()))
        effects.send += [Follow(address, "gossip") for address in known if address != self.address]
        if link.cluster_id != welcome.cluster_id or link.term < welcome.term:
            link.cluster_id, link.term, link.agreed = welcome.cluster_id, welcome.term, False
        link.master, link.master_address, link.head = welcome.master, welcome.master_address, welcome.head
        link.peers = {node_id: each for node_id, each in welcome.peers.items() if each != self.address}
        link.refused, link.master_heard, self._hellos = "", now.seconds, 0
        link.tried = {}

    def want_snapshot(self, effects: Effects) -> None:
        """This log cannot be continued: ask for the state itself."""
        self.link.phase = "joining"
        self._ask(self.link.master_address, GetSnapshot(), effects)

    def _is_asking(self, kind: type[Message]) -> bool:
        return any(isinstance(ask.message, kind) for ask in self._asked.values())

    def want_tail(self, last_term: int, effects: Effects) -> None:
        """Ask for what is missing, one request at a time."""
        if self._is_asking(GetSnapshot):
            return
        if self.link.phase != "following":
            self.link.phase = "catching"
        if self._is_asking(GetTail):
            return
        self._tail_term = self.link.term
        message = GetTail(first_index=self.sequencer.next_index, previous_term=last_term)
        self._ask(self.link.master_address, message, effects)

    def heartbeat(self, beat: Heartbeat, last_term: int, now: Now, effects: Effects) -> None:
        """The master lives; ask for what its head says is missing."""
        self.link.master_heard, self.link.head = now.seconds, max(self.link.head, beat.head)
        if self.link.phase not in {"catching", "following"} or not self.agrees(beat.term, last_term, effects):
            return
        if self.sequencer.missing(beat.head) is not None:
            self.want_tail(last_term, effects)
        elif not self._is_asking(GetTail):
            self.link.phase = "following"  # what was missing came by other ways

    def agrees(self, term: int, last_term: int, effects: Effects) -> bool:
        """Whether what the master of `term` publishes may be put behind this log; if not known, find out."""
        if term > self.link.term:
            self.link.term, self.link.agreed = term, False
        if not self.link.agreed and self.link.phase in {"catching", "following"}:
            self.link.phase = "catching"
            self.want_tail(last_term, effects)
        return self.link.agreed and term == self.link.term and self.link.phase in {"catching", "following"}

    def forget(self, command_id: str) -> None:
        """A wish whose asker was told that its end is unknown is not handed in any more."""
        self.outbox = [each for each in self.outbox if each.command_id != command_id]

    def lines(self, message: Batch | Tail, effects: Effects) -> list[Record]:
        """Records of a batch or a tail that now follow without a gap."""
        records: list[Record] = []
        for line in message.lines:
            try:
                record = decode_line(line.encode())
            except BadLineError as error:
                effects.note.append(Note("bad line from the master", {"why": str(error)}))
                break
            if isinstance(record, Record):
                records.append(record)
        return self.sequencer.offer(records)

    def hand_in(self, submission: Submission, now: Now, effects: Effects) -> None:
        """Something for the master, once however often it is asked."""
        if all(each.command_id != submission.command_id for each in self.outbox):
            self.outbox.append(submission)
        self.submit(now, effects)

    def pause(self, now: Now) -> None:
        """The master cannot write just now."""
        self._next_submit = now.seconds + PAUSE_SECONDS

    def submit(self, now: Now, effects: Effects) -> None:
        """Hand in what waits, in order, one request at a time."""
        if self._submitting or not self.outbox or self.link.phase != "following" or now.seconds < self._next_submit:
            return
        self._submitting = True
        self._ask(self.link.master_address, Submit(submissions=tuple(self.outbox[:SUBMIT_AT_ONCE])), effects)
