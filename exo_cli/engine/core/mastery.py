"""Mastery: deciding, answering, and looking after the cluster, for the node that is master; redirecting for others.

Commands are decided on the tentative state (everything in the log, durable or not) and answered from the committed
one. Each asker gets exactly one answer: committed, refused, or unknown when its deadline passed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exo_cli.engine.core.decider import decide, unchanged
from exo_cli.engine.core.effects import Answered, Effects, Follow, Note, Now, Publish, Submitted
from exo_cli.engine.core.errors import ExitCode, Refused
from exo_cli.engine.core.events import By, NodeJoined, Record
from exo_cli.engine.core.intents import (
    Command,
    ForgetRunner,
    PlaceInstance,
    ReportDownload,
    ReportNode,
    ReportRunner,
    ReportSilence,
    ReportTask,
    Submission,
)
from exo_cli.engine.core.tasks import GenerationTask
from exo_cli.engine.core.wire import (
    Answer,
    Answers,
    Batch,
    Heartbeat,
    Refusal,
    Submit,
    encode_record,
)

if TYPE_CHECKING:
    from exo_cli.engine.core.replica import Replica

# How long a runner of an instance that is gone may take to report its shutdown before the master does it on its behalf.
SETTLE_SECONDS = 30.0
RECENT_KEPT = 4096
# Less than the follower waits for its answer.
SUBMIT_SECONDS = 4.0
BATCH_BYTES = 512 << 10


@dataclass(slots=True)
class _Waiting:
    """Somebody who waits for answers: a client of this node (one), or another node (all of a Submit)."""

    reply_to: object
    command_ids: tuple[str, ...]
    deadline: float
    is_peer: bool
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])


class Mastery:
    """See the module. It works on its replica's machines."""

    def __init__(self, replica: "Replica") -> None:
        """Nobody waits yet."""
        self._replica = replica
        self._waiting: list[_Waiting] = []
        self._commits: dict[str, int] = {}
        self._unchanged: dict[str, str | None] = {}
        self._recent: dict[str, Answer] = {}
        self._unsettled_since: dict[str, float] = {}
        self._beaten = -1
        self._hashed: tuple[int, str] | None = None

    # Askers ------------------------------------------------------------------------------------------------------

    def submitted(self, given: Submitted, now: Now, effects: Effects) -> None:
        """A client of this node asks."""
        submission = given.submission
        deadline = now.seconds + given.timeout_seconds
        self._waiting.append(_Waiting(given.reply_to, (submission.command_id,), deadline, is_peer=False))
        if self._replica.is_master:
            self.decide(submission, now, effects)
        else:
            self._replica.follower.hand_in(submission, now, effects)

    def submitted_by_node(self, submit: Submit, reply_to: object, now: Now, effects: Effects) -> None:
        """Another node hands in; it is answered once all of it is."""
        ids = tuple(dict.fromkeys(each.command_id for each in submit.submissions))
        self._waiting.append(_Waiting(reply_to, ids, now.seconds + SUBMIT_SECONDS, is_peer=True))
        for submission in submit.submissions:
            self.decide(submission, now, effects)

    def decide(self, submission: Submission, now: Now, effects: Effects) -> None:
        """Decide one command; its answer follows once its records are durable."""
        replica, command_id = self._replica, submission.command_id
        if command_id in self._commits:
            return
        if (answer := self._recent.get(command_id)) is not None:
            self._answer(answer, effects)  # late, or again: deciding it now could undo what came after it
            return
        if (outcome := replica.state.outcomes.get(command_id)) is not None:
            self._answer(self._outcome(command_id, outcome.index, outcome.subject, outcome.changed), effects)
            return
        if not replica.has_begun:
            self._not_written(command_id, "its term has not begun", effects)
            return
        decision = decide(replica.tentative, submission.command, command_id)
        if isinstance(decision, Refused):
            effects.note.append(Note("refused", {"code": decision.code, "reason": decision.reason}))
            self._answer(_refusal(command_id, decision), effects)
        elif not decision:
            # It may rest on what is not durable yet: then so does the answer.
            self._unchanged[command_id] = self._fitting(submission)
            self._commits[command_id] = replica.consensus.last_index
            self._answer_committed(effects)
        else:
            by = submission.by
            if _is_remembered(submission):
                # The last record alone makes the command done: of a batch that is torn the rest is decided again.
                by = by.model_copy(update={"command_id": command_id})
            replica.propose(decision[:-1], submission.by, now, effects)
            records = replica.propose(decision[-1:], by, now, effects)
            self._commits[command_id] = records[-1].index

    def _fitting(self, submission: Submission) -> str | None:
        if not isinstance(submission.command, PlaceInstance):
            return None
        instance = unchanged(self._replica.tentative, submission.command)
        return instance.instance_id if instance else None

    def _outcome(self, command_id: str, index: int, subject: str | None, changed: str) -> Answer:
        return Answer(command_id=command_id, status="committed", index=index, subject=subject, changed=changed)

    def _answer(self, answer: Answer, effects: Effects) -> None:
        self._replica.settled(answer.command_id, answer.index)
        if answer.refusal is None or answer.refusal.code != "read_only":
            self._recent[answer.command_id] = answer
        if len(self._recent) > RECENT_KEPT:
            del self._recent[next(iter(self._recent))]
        for waiting in list(self._waiting):
            if answer.command_id not in waiting.command_ids:
                continue
            waiting.answers[answer.command_id] = answer
            if len(waiting.answers) == len(waiting.command_ids):
                self._waiting.remove(waiting)
                self._give(waiting, effects)

    def _give(self, waiting: _Waiting, effects: Effects) -> None:
        answers = tuple(waiting.answers[command_id] for command_id in waiting.command_ids)
        if waiting.is_peer:
            self._replica.reply(waiting.reply_to, Answers(answers=answers), effects)
        else:
            effects.answer.append(Answered(waiting.reply_to, answers[0]))

    def answered(self, answers: Answers, now: Now, effects: Effects) -> None:
        """The master's answers to what this follower handed in. A report that its disk did not take is kept."""
        follower, done = self._replica.follower, set[str]()
        for answer in answers.answers:
            refusal = answer.refusal if answer.status == "refused" else None
            if refusal is not None:
                effects.note.append(Note("refused", {"code": refusal.code, "reason": refusal.reason}))
            if refusal is not None and refusal.code == "read_only" and self._replica.is_own(answer.command_id):
                follower.pause(now)
            elif answer.status != "unknown":
                done.add(answer.command_id)
        follower.outbox = [each for each in follower.outbox if each.command_id not in done]
        for answer in answers.answers:
            if answer.command_id in done:
                self._answer(answer, effects)

    def expire(self, now: Now, effects: Effects) -> None:
        """Who waited past the deadline gets `unknown`: the command may still happen, asking again is harmless."""
        for waiting in [each for each in self._waiting if now.seconds > each.deadline]:
            self._waiting.remove(waiting)
            for command_id in waiting.command_ids:
                waiting.answers.setdefault(command_id, Answer(command_id=command_id, status="unknown"))
                self._replica.follower.forget(command_id)
            self._give(waiting, effects)

    # Commit ------------------------------------------------------------------------------------------------------

    def committed(self, records: Sequence[Record], effects: Effects) -> None:
        """Records are durable: publish them, then answer."""
        lines: list[str] = []
        size = 0
        for record in records:
            lines.append(encode_record(record).decode().rstrip("\n"))
            size += len(lines[-1])
            if size > BATCH_BYTES:
                effects.send.append(Publish("events", Batch(term=record.term, lines=tuple(lines))))
                lines, size = [], 0
        if lines:
            effects.send.append(Publish("events", Batch(term=records[-1].term, lines=tuple(lines))))
        self._expect(records, effects)
        self._answer_committed(effects)

    def _answer_committed(self, effects: Effects) -> None:
        head = self._replica.state.index
        for command_id in [each for each, index in self._commits.items() if index <= head]:
            index = self._commits.pop(command_id)
            outcome = self._replica.state.outcomes.get(command_id)
            subject, changed = (outcome.subject, outcome.changed) if outcome else (None, "changed")
            if command_id in self._unchanged:
                subject, changed = self._unchanged.pop(command_id), "unchanged"
            self._answer(self._outcome(command_id, index, subject, changed), effects)

    def _expect(self, records: Sequence[Record], effects: Effects) -> None:
        """Hear the pulse of whoever joined, also of those that another node greeted."""
        for record in records:
            event = record.event
            if isinstance(event, NodeJoined) and event.node_id != self._replica.node_id and event.facts.addresses:
                effects.send.append(Follow(event.facts.addresses[0], "gossip"))

    def failed(self, lost: Sequence[Record], error: str, effects: Effects) -> None:
        """Records could not be written: what they were for is refused, and nothing happened."""
        if not lost:
            return
        first = lost[0].index
        for command_id in [each for each, index in self._commits.items() if index >= first]:
            del self._commits[command_id]
            self._unchanged.pop(command_id, None)
            self._not_written(command_id, error, effects)

    def _not_written(self, command_id: str, error: str, effects: Effects) -> None:
        """A report of this node is kept until the log takes it; anybody else is refused."""
        if not self._replica.postpone(command_id):
            refused = Refused("read_only", f"the log cannot be written: {error}", "df -h", ExitCode.FAILED)
            self._answer(_refusal(command_id, refused), effects)

    # Looking after -----------------------------------------------------------------------------------------------

    def tick(self, now: Now, effects: Effects) -> None:
        """Report the silence of lost nodes, and on behalf of others what they should have reported by now."""
        replica = self._replica
        replica.membership.woke(now.seconds)
        replica.membership.expect((each for each in replica.state.nodes if each != replica.node_id), now.seconds)
        for node_id in replica.membership.silent(now.seconds):
            if address := replica.membership.heard[node_id].address:
                effects.send.append(Follow(address, "gossip", on=False))
            replica.membership.forget(node_id)
            if node_id in replica.tentative.nodes and node_id != replica.node_id:
                self._on_behalf(ReportSilence(node_id=node_id), f"silent-{node_id}-{replica.state.index}", now, effects)
        overdue = dict(self._unsettled())
        self._unsettled_since = {each: self._unsettled_since.get(each, now.seconds) for each in overdue}
        for name, since in self._unsettled_since.items():
            if now.seconds - since > SETTLE_SECONDS:
                self._on_behalf(overdue[name], f"settle-{name}-{replica.state.index}", now, effects)

    def heartbeat(self) -> Heartbeat:
        """The head; and the hash of the state there, once the state has stayed what it is for a pulse."""
        state = self._replica.state
        if self._hashed is None or self._hashed[0] != state.index:
            self._hashed = (state.index, state.hash()) if self._beaten == state.index else None
            self._beaten = state.index
        index, state_hash = self._hashed or (None, None)
        return Heartbeat(
            term=self._replica.consensus.term,
            master=self._replica.node_id,
            head=state.index,
            hash_index=index,
            state_hash=state_hash,
        )

    def _unsettled(self) -> Iterator[tuple[str, Command]]:
        """What is left of instances that are gone, each with what its node should report: runners, cancelled tasks."""
        state = self._replica.state
        for runner_id in state.runners:
            if state.instance_of_runner(runner_id) is None:
                yield runner_id, ForgetRunner(runner_id=runner_id)
        for task_id, task in state.tasks.items():
            if task.instance_id not in state.instances and isinstance(task, GenerationTask):
                yield task_id, ReportTask(task=task, begins=False)

    def _on_behalf(self, command: Command, command_id: str, now: Now, effects: Effects) -> None:
        by = By(node=self._replica.node_id)
        self.decide(Submission(command_id=command_id, by=by, command=command), now, effects)


def _is_remembered(submission: Submission) -> bool:
    """Wishes of people and tasks are remembered by their id: a repetition gets the same answer."""
    return not isinstance(submission.command, ReportNode | ReportSilence | ReportRunner | ReportDownload)


def _refusal(command_id: str, refused: Refused) -> Answer:
    refusal = Refusal(
        code=refused.code,
        reason=refused.reason[:2000],
        hint=refused.hint,
        exit_code=int(refused.exit_code),
        details=refused.details,
    )
    return Answer(command_id=command_id, status="refused", refusal=refusal)
