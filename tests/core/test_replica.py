"""The replica's promises, one door: what goes in, and what must come out. Each was once broken (see the simulation)."""

from exo_cli.engine.core.effects import (
    Appended,
    AppendFailed,
    Ask,
    Asked,
    DownloadChanged,
    Effects,
    Heard,
    Input,
    Now,
    Publish,
    Replied,
    Reply,
    RunnerChanged,
    Submitted,
    Tick,
)
from exo_cli.engine.core.events import By, Record
from exo_cli.engine.core.intents import Command, DeleteInstance, ReportNode, ReportRunner, ReportTask, Submission
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.replica import Replica
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import TaskStatus
from exo_cli.engine.core.wire import (
    Answers,
    Batch,
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
    encode_record,
)
from tests.builders import a_download, a_node, a_status, a_task, a_wish, at


class Node:
    """A replica, its clock, and a disk that takes everything at once unless it is full."""

    def __init__(self, name: str = "a", seeds: tuple[str, ...] = (), state: State | None = None, life: int = 1) -> None:
        self.replica = Replica(name, life, f"{name}:7101", a_node(name), state or State(), "1", seeds)
        self.seconds, self.is_full = 0.0, False
        self.log: list[Record] = []
        self.all = Effects()

    def start(self) -> "Node":
        self._carry_out(self.replica.start(self._now()))
        return self

    def step(self, given: Input) -> Effects:
        """All effects of an input, those of its append included."""
        self.all = Effects()
        self._carry_out(self.replica.step(given, self._now()))
        return self.all

    def tick(self, seconds: float = 0.5) -> Effects:
        self.seconds += seconds
        return self.step(Tick())

    def _now(self) -> Now:
        return Now(self.seconds, at(self.seconds))

    def _carry_out(self, effects: Effects) -> None:
        for name in ("note", "send", "act", "answer", "append"):
            getattr(self.all, name).extend(getattr(effects, name))
        if effects.restart is not None:
            self.all.restart = effects.restart
        if not effects.append:
            return
        if self.is_full:
            self._carry_out(self.replica.step(AppendFailed("full"), self._now()))
            return
        self.log += effects.append
        self._carry_out(self.replica.step(Appended(effects.append[-1].index), self._now()))

    def wish(self, command: Command, command_id: str = "c1", reply_to: object = "me") -> Effects:
        submission = Submission(command_id=command_id, by=By(node="a"), command=command)
        return self.step(Submitted(submission, reply_to))

    def asks(self, effects: Effects | None = None) -> list[Message]:
        return [each.message for each in (effects or self.all).send if isinstance(each, Ask)]

    def answer(self, kind: type[Message], message: Message | None, master: "Node") -> Effects:
        """The answer to the last question of a kind."""
        (ask,) = [each for each in self.all.send if isinstance(each, Ask) and isinstance(each.message, kind)][-1:]
        return self.step(Replied(ask.ask_id, master.replica.envelope(message) if message else None))

    def beat(self, head: int, master: "Node") -> Effects:
        beat = Heartbeat(term=master.replica.consensus.term, master="a", head=head)
        return self.step(Heard(master.replica.envelope(beat)))


def said(effects: Effects) -> list[str]:
    """The answers to clients."""
    return [f"{each.reply_to} {each.answer.status} {each.answer.changed}" for each in effects.answer]


def events(records: list[Record]) -> list[str]:
    return [each.event.type for each in records]


def a_snapshot(master: Node) -> Snapshot:
    state = master.replica.state
    return Snapshot(index=state.index, term=state.term, state=state.dump(), state_hash=state.hash())


def a_tail(master: Node, first: int) -> Tail:
    lines = tuple(encode_record(each).decode().rstrip("\n") for each in master.log if each.index >= first)
    return Tail(lines=lines, head=master.replica.state.index)


def a_pair() -> tuple[Node, Node]:
    """A master and a node that follows it, up to date; its report of joining waits for an answer."""
    master, follower = Node("a").start(), Node("b", ("a:7101",)).start()
    follower.tick()
    welcome = Welcome(cluster_id=master.replica.state.cluster_id, master="a", master_address="a:7101", term=1, head=2)
    follower.answer(Hello, welcome, master)
    follower.answer(GetSnapshot, a_snapshot(master), master)
    follower.answer(GetTail, Tail(head=2), master)
    return master, follower


# Joining and following -----------------------------------------------------------------------------------------------


def test_a_newcomer_asks_for_a_snapshot_in_the_name_of_the_cluster_that_welcomed_it():
    master, follower = Node("a").start(), Node("b", ("a:7101",)).start()
    follower.tick()
    cluster = master.replica.state.cluster_id
    follower.answer(Hello, Welcome(cluster_id=cluster, master="a", master_address="a:7101", term=1, head=2), master)
    assert follower.replica.envelope(GetSnapshot()).cluster == cluster
    reply = master.step(Asked(follower.replica.envelope(GetSnapshot()), "q"))
    assert [type(each.message) for each in reply.send if isinstance(each, Reply)] == [Snapshot]


def test_a_follower_joins_by_its_own_report():
    _, follower = a_pair()
    (submit,) = follower.asks()
    assert isinstance(submit, Submit)
    assert isinstance(submit.submissions[0].command, ReportNode)


def test_a_gap_is_asked_for_once():
    master, follower = a_pair()
    master.wish(a_wish())
    assert follower.asks(follower.beat(3, master)) == [GetTail(first_index=3, previous_term=1)]
    assert follower.asks(follower.beat(3, master)) == []
    follower.beat(3, master)
    assert follower.replica.follower.link.phase == "following"


def test_a_snapshot_that_comes_while_a_tail_is_asked_for_does_not_leave_it_joining():
    """Sim seed 4212: reports were never handed in again."""
    master, follower = a_pair()
    master.wish(a_wish())
    follower.beat(3, master)
    tail_asked = follower.all
    follower.replica.follower.want_snapshot(effects := Effects())
    (ask,) = [each for each in effects.send if isinstance(each, Ask)]
    follower.step(Replied(ask.ask_id, master.replica.envelope(a_snapshot(master))))
    (tail_ask,) = [each for each in tail_asked.send if isinstance(each, Ask)]
    follower.step(Replied(tail_ask.ask_id, master.replica.envelope(a_tail(master, 3))))
    follower.beat(3, master)
    assert follower.replica.follower.link.phase == "following"
    assert follower.replica.state.index == 3


def test_a_snapshot_older_than_the_log_is_left_alone():
    master, follower = a_pair()
    old = a_snapshot(master)
    master.wish(a_wish())
    follower.beat(3, master)
    follower.answer(GetTail, a_tail(master, 3), master)
    follower.replica.follower.want_snapshot(effects := Effects())
    (ask,) = [each for each in effects.send if isinstance(each, Ask)]
    follower.replica.follower.link.phase = "following"  # a welcome let it go on by a tail meanwhile
    assert follower.step(Replied(ask.ask_id, master.replica.envelope(old))).restart is None
    assert follower.replica.state.index == 3


def test_what_a_master_that_lost_the_end_of_its_log_publishes_is_not_put_behind_another_history():
    """Its indexes fit, its events do not: the follower asks before it takes anything, and takes the state."""
    master, follower = a_pair()
    master.wish(a_wish(), "c1")
    follower.step(Heard(master.replica.envelope(Batch(term=1, lines=a_tail(master, 3).lines))))
    assert follower.replica.state.index == 3
    effects = follower.step(Heard(master.replica.envelope(Batch(term=2, lines=("not looked at",)))))
    assert effects.append == []
    assert follower.asks(effects) == [GetTail(first_index=4, previous_term=1)]
    assert follower.replica.follower.link.phase == "catching"


def test_a_snapshot_with_another_hash_is_refused():
    master, follower = Node("a").start(), Node("b", ("a:7101",)).start()
    follower.tick()
    cluster = master.replica.state.cluster_id
    follower.answer(Hello, Welcome(cluster_id=cluster, master="a", master_address="a:7101", term=1, head=2), master)
    forged = a_snapshot(master).model_copy(update={"state_hash": "0" * 64})
    effects = follower.answer(GetSnapshot, forged, master)
    assert effects.restart is None
    assert follower.replica.state.index == -1
    assert follower.replica.follower.link.phase == "seeking"


def test_published_records_come_once_and_in_order():
    master, follower = a_pair()
    master.wish(a_wish(), "c1")
    master.wish(a_wish(new=True), "c2")
    lines = [encode_record(each).decode().rstrip("\n") for each in master.log[3:]]
    for order in ([1], [1, 0], [0]):
        batch = Batch(term=1, lines=tuple(lines[each] for each in order))
        follower.step(Heard(master.replica.envelope(batch)))
    assert [each.index for each in follower.log] == [3, 4]
    assert follower.replica.state.hash() == master.replica.state.hash()


def test_a_foreign_message_is_dropped():
    master, follower = a_pair()
    other = Node("x").start()
    effects = follower.step(Heard(other.replica.envelope(Heartbeat(term=9, master="x", head=99))))
    assert effects.send == []
    assert effects.note[0].kind == "dropped"
    assert master.step(Asked(other.replica.envelope(GetSnapshot()), "q")).send[0].message.code == "other_cluster"  # type: ignore[union-attr]


def test_a_copied_folder_is_refused():
    master, _ = a_pair()
    for address, source in (("z:1", Node("b")), ("z:2", Node("b"))):
        hello = Hello(address=address, facts=a_node("b"))
        effects = master.step(Asked(source.replica.envelope(hello), "q"))
        last = next(each.message for each in effects.send if isinstance(each, Reply))
    assert isinstance(last, Refusal)
    assert last.code == "duplicate_id"
    assert last.hint


# Who begins ----------------------------------------------------------------------------------------------------------


def refused(node: Node, *, seeks: bool, fresh: bool, other: Node) -> bool:
    """Whether a node begins when the other says that it knows no master."""
    node.tick(20.0)
    details: dict[str, object] = {"seeks": seeks, "fresh": fresh}
    node.answer(Hello, Refusal(code="no_master", reason="none", details=details), other)
    return node.replica.is_master


def test_of_two_new_nodes_the_smaller_id_begins():
    a, b = Node("a", ("b:7101",)).start(), Node("b", ("a:7101",)).start()
    assert refused(a, seeks=True, fresh=True, other=b)
    assert not refused(b, seeks=True, fresh=True, other=a)


def test_a_follower_of_a_master_that_is_away_does_not_begin():
    """Sim seed 5: two of them met, and one took the cluster over."""
    _, b = a_pair()
    a_new_life = Node("b", ("c:7101",), b.replica.state, life=2).start()
    assert not refused(a_new_life, seeks=True, fresh=False, other=Node("c"))
    assert not refused(Node("a", ("b:7101",)).start(), seeks=False, fresh=False, other=b)


def test_a_node_with_a_history_begins_before_a_new_one():
    alone = Node("z").start()
    again = Node("z", ("a:7101",), alone.replica.state, life=2).start()
    assert not again.replica.is_master
    assert refused(again, seeks=True, fresh=True, other=Node("a"))
    assert not refused(Node("a", ("z:7101",)).start(), seeks=True, fresh=False, other=again)


# Disk ----------------------------------------------------------------------------------------------------------------


def test_a_term_that_could_not_be_written_begins_later():
    node = Node("a")
    node.is_full = True
    node.start()
    assert said(node.wish(a_wish())) == ["me refused unchanged"]
    hello = Hello(address="b:7101", facts=a_node("b"))
    greeted = node.step(Asked(Node("b").replica.envelope(hello), "q"))
    assert [each.message.code for each in greeted.send if isinstance(each, Reply)] == ["no_master"]  # type: ignore[union-attr]
    assert [each for each in node.tick(2.0).send if isinstance(each, Publish) and each.topic == "events"] == []
    node.is_full = False
    node.tick(2.0)
    assert events(node.log) == ["TermStarted", "VotersChanged", "NodeJoined"]
    assert node.replica.is_member


def test_reports_wait_in_order_until_the_disk_takes_them():
    node = Node("a").start()
    node.wish(a_wish())
    (runner_id,) = node.replica.tending.local.runners
    node.is_full = True
    for status in ("Idle", "Loading", "Loaded"):
        node.step(RunnerChanged(runner_id, 3, a_status(status)))
    assert said(node.wish(a_wish(new=True), "c2")) == ["me refused unchanged"]
    node.is_full = False
    node.tick(0.1)
    assert len(node.log) == 4, "it is tried again after a while"
    node.tick(2.0)
    assert [each.event.runner_status.type for each in node.log[4:]] == ["RunnerIdle", "RunnerLoading", "RunnerLoaded"]  # type: ignore[union-attr]


def test_unchanged_is_answered_once_what_it_rests_on_is_durable():
    """Sim seed 392: two wishes came in one message, the first was not written."""
    master, follower = a_pair()
    wishes = [Submission(command_id=f"c{each}", by=By(node="b"), command=a_wish()) for each in (1, 2)]
    master.is_full = True
    effects = master.step(Asked(follower.replica.envelope(Submit(submissions=tuple(wishes))), "q"))
    (answers,) = [each.message for each in effects.send if isinstance(each, Reply)]
    assert isinstance(answers, Answers)
    assert [each.status for each in answers.answers] == ["refused", "refused"]
    master.is_full = False
    effects = master.step(Asked(follower.replica.envelope(Submit(submissions=tuple(wishes))), "q"))
    (answers,) = [each.message for each in effects.send if isinstance(each, Reply)]
    assert isinstance(answers, Answers)
    assert [each.changed for each in answers.answers] == ["created", "unchanged"]
    assert answers.answers[0].subject == answers.answers[1].subject


def test_a_batch_that_is_torn_is_not_taken_for_done():
    """A power cut may keep the first records of a command alone; asked again, the rest follows."""
    node = Node("a").start()
    node.wish(a_wish())
    instance_id = next(iter(node.replica.state.instances))
    before = len(node.log)
    node.step(Submitted(Submission(command_id="t1", by=By(node="a"), command=_begun(instance_id)), "me"))
    node.wish(DeleteInstance(instance_id=instance_id), "delete")
    torn = State()
    for record in node.log[: before + 2]:
        apply(torn, record)
    assert events(node.log)[before : before + 3] == ["TaskCreated", "TaskStatusUpdated", "InstanceDeleted"]
    again = Node("a", (), torn, life=2).start()
    assert said(again.wish(DeleteInstance(instance_id=instance_id), "delete")) == ["me committed deleted"]
    assert instance_id not in again.replica.state.instances


def _begun(instance_id: str) -> Command:
    return ReportTask(task=a_task("t", instance_id, TaskStatus.RUNNING), ends=False)


# Answers -------------------------------------------------------------------------------------------------------------


def test_the_same_command_again_has_the_same_answer():
    node = Node("a").start()
    first, again = node.wish(a_wish()), node.wish(a_wish(), reply_to="again")
    assert said(first) == ["me committed created"]
    assert said(again) == ["again committed created"]
    assert first.answer[0].answer == again.answer[0].answer
    assert again.append == []


def test_a_follower_hands_a_command_in_once_however_often_it_is_asked():
    _, follower = a_pair()
    follower.wish(a_wish())
    follower.wish(a_wish(), reply_to="again")
    assert [each.command_id for each in follower.replica.follower.outbox].count("c1") == 1


def test_nobody_waits_past_the_deadline():
    _, follower = a_pair()
    follower.wish(a_wish())
    assert said(follower.tick(9.9)) == []
    assert said(follower.tick(0.2)) == ["me unknown unchanged"]


def test_a_report_that_comes_again_late_does_not_undo_what_came_after_it():
    """Sim seed 1013: Running, Ready, and then the first message once more."""
    master, follower = a_pair()
    master.wish(a_wish())
    (instance,) = master.replica.state.instances.values()
    runner_id = instance.runner_ids[0]

    def submit(*statuses: str) -> None:
        reports = [
            Submission(
                command_id=f"r-{each}",
                by=By(node="a"),
                command=ReportRunner(node_id="a", runner_id=runner_id, attempt=9, status=a_status(each)),
            )
            for each in statuses
        ]
        master.step(Asked(follower.replica.envelope(Submit(submissions=tuple(reports))), "q"))

    submit("Running", "Ready")
    submit("Running")
    assert master.replica.state.runners[runner_id].status.type == "RunnerReady"


def test_an_answer_counts_once_the_own_state_holds_it():
    """Sim seed 82: a follower shut its runner down before it knew that the failure was the last one."""
    master, follower = a_pair()
    answers = master.step(Asked(follower.replica.envelope(follower.asks()[0]), "q"))
    (reply,) = [each.message for each in answers.send if isinstance(each, Reply)]
    follower.answer(Submit, reply, master)
    follower.replica.tending.local.downloading.add("tiny")
    follower.step(DownloadChanged(a_download("b")))
    answers = master.step(Asked(follower.replica.envelope(follower.asks()[0]), "q"))
    (reply,) = [each.message for each in answers.send if isinstance(each, Reply)]
    follower.answer(Submit, reply, master)
    assert follower.replica.tending.local.downloading == {"tiny"}
    follower.beat(4, master)
    follower.answer(GetTail, a_tail(master, 3), master)
    assert follower.replica.tending.local.downloading == set()


# Looking after -------------------------------------------------------------------------------------------------------


def test_a_member_that_was_never_heard_is_found_silent():
    master, follower = a_pair()
    master.step(Asked(follower.replica.envelope(follower.asks()[0]), "q"))
    assert "b" in master.replica.state.nodes
    for _ in range(30):
        master.tick()
    assert "b" not in master.replica.state.nodes


def test_a_master_that_slept_loses_nobody():
    master, follower = a_pair()
    master.step(Asked(follower.replica.envelope(follower.asks()[0]), "q"))
    master.tick()
    master.tick(120.0)
    assert "b" in master.replica.state.nodes
