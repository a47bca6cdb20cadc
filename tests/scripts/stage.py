"""The stage of the transcripts: a few replicas, no chance, and every effect told in words.

A command a line (see `Stage.do`). What nodes send each other arrives at once and in order, unless one of the two is
cut off; a disk writes at once, unless it is full. Ids are told as i1, i2, ... in the order in which they appear.
"""

from collections import deque
from dataclasses import dataclass, field

from exo_cli.engine.core.effects import (
    Appended,
    AppendFailed,
    Ask,
    Asked,
    ChatAdmitted,
    ChatEnded,
    DownloadChanged,
    Effects,
    EndTask,
    Follow,
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
from exo_cli.engine.core.intents import (
    Command,
    DeleteInstance,
    ForgetRunner,
    ReportRunner,
    RestartInstance,
    Submission,
)
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.replica import Replica
from exo_cli.engine.core.state import State, load
from exo_cli.engine.core.tasks import TaskStatus
from exo_cli.engine.core.wire import Batch, GetTail, Header, Tail, encode_record
from tests.builders import MIB, a_card, a_download, a_node, a_status, a_task, a_wish, at
from tests.scripts.words import Words

TICK_SECONDS = 0.5
CARDS = {"tiny": 10, "big": 400}


@dataclass
class Actor:
    """A node on stage: its log outlives its process."""

    name: str
    seeds: tuple[str, ...]
    header: Header | None = None
    records: list[Record] = field(default_factory=list)
    incarnation: int = 0
    replica: Replica | None = None
    is_full: bool = False
    node_id: str = ""

    @property
    def base_index(self) -> int:
        return self.header.base_index if self.header else -1

    def fold(self) -> State:
        """The state that its log holds."""
        state = load(self.header.state) if self.header else State()
        for record in self.records:
            apply(state, record)
        return state


class Stage:
    """Do a command, get the lines that follow from it."""

    def __init__(self) -> None:
        self.actors: dict[str, Actor] = {}
        self.now = 0.0
        self.lines: list[str] = []
        self.words = Words()
        self._cut: set[str] = set()
        self._follows: dict[tuple[str, str], list[str]] = {}
        self._mail: deque[tuple[str, str, Input]] = deque()
        self._commands = 0

    def do(self, line: str) -> list[str]:
        """One line of a script: a verb and its words."""
        verb, *words = line.split()
        self.lines = []
        getattr(self, f"do_{verb}")(*words)
        self._deliver()
        return self.lines

    # Nodes -------------------------------------------------------------------------------------------------------

    def do_start(self, name: str, *seeds: str) -> None:
        """start NODE [SEED...]: a process begins on what its disk holds."""
        actor = self.actors.setdefault(name, Actor(name, tuple(f"{each}:7101" for each in seeds)))
        actor.incarnation += 1
        facts = a_node(name, memory_bytes=2048 * MIB)
        actor.replica = Replica(
            actor.node_id or name, actor.incarnation, f"{name}:7101", facts, actor.fold(), "1", actor.seeds
        )
        self._carry_out(actor, actor.replica.start(self._time()))

    def do_copy(self, name: str, copy: str, *seeds: str) -> None:
        """copy NODE COPY [SEED...]: the folders of a node, with its id, begin a second one at another address."""
        actor = self.actors[name]
        places = tuple(f"{each}:7101" for each in seeds)
        self.actors[copy] = Actor(copy, places, actor.header, list(actor.records), actor.incarnation, node_id=name)
        self.do_start(copy)

    def do_kill(self, name: str) -> None:
        """kill NODE: kill -9."""
        self.actors[name].replica = None
        for followers in self._follows.values():
            if name in followers:
                followers.remove(name)

    def do_cut(self, name: str) -> None:
        """cut NODE: nothing from it or to it arrives."""
        self._cut.add(name)

    def do_heal(self, name: str) -> None:
        """heal NODE."""
        self._cut.discard(name)

    def do_full(self, name: str) -> None:
        """full NODE: its disk takes nothing more."""
        self.actors[name].is_full = True

    def do_space(self, name: str) -> None:
        """space NODE: it does again."""
        self.actors[name].is_full = False

    def do_tick(self, seconds: str) -> None:
        """tick SECONDS: time passes, on every node in turn."""
        until = self.now + float(seconds)
        while self.now < until:
            self.now += TICK_SECONDS
            for actor in self.actors.values():
                self._step(actor, Tick())
            self._deliver()

    # Wishes ------------------------------------------------------------------------------------------------------

    def do_place(self, name: str, model: str, min_nodes: str = "1") -> None:
        """place NODE MODEL [MIN_NODES]: somebody asks at a node."""
        card = a_card(model, layer_bytes=CARDS.get(model, 10) * MIB)
        self._wish(name, a_wish(card, min_nodes=int(min_nodes), new=True))

    def do_delete(self, name: str, instance: str) -> None:
        """delete NODE INSTANCE."""
        self._wish(name, DeleteInstance(instance_id=self.words.meant(instance)))

    def do_restart(self, name: str, instance: str) -> None:
        """restart NODE INSTANCE."""
        self._wish(name, RestartInstance(instance_id=self.words.meant(instance)))

    def do_forget(self, name: str, runner: str) -> None:
        """forget NODE RUNNER."""
        self._wish(name, ForgetRunner(runner_id=self.words.meant(runner)))

    def do_late(self, name: str, runner: str, attempt: str, status: str) -> None:
        """late NODE RUNNER ATTEMPT STATUS: a report that was long on its way reaches the master."""
        report = ReportRunner(
            node_id=name, runner_id=self.words.meant(runner), attempt=int(attempt), status=a_status(status)
        )
        self._wish(name, report)

    def do_again(self, name: str) -> None:
        """again NODE: the last wish once more, with the same id."""
        self._step(self.actors[name], Submitted(self._last, f"c{self._commands}"))

    def _wish(self, name: str, command: Command) -> None:
        self._commands += 1
        command_id = f"c{self._commands}"
        self._last = Submission(command_id=command_id, by=By(node=name, client="script"), command=command)
        self._step(self.actors[name], Submitted(self._last, command_id))

    # Machines ----------------------------------------------------------------------------------------------------

    def do_runner(self, runner: str, *statuses: str) -> None:
        """runner RUNNER STATUS...: its process says so, one after the other."""
        runner_id = self.words.meant(runner)
        actor = next(each for each in self.actors.values() if each.replica and runner_id in _local(each))
        for status in statuses:
            fields = {"error_message": "boom", "phase": "RunnerLoading"} if status == "Failed" else {}
            if status == "Idle":
                fields = {"ring_endpoint": f"{actor.name}:9000"}
            attempt = _local(actor)[runner_id].attempt
            self._step(actor, RunnerChanged(runner_id, attempt, a_status(status, **fields)))

    def do_download(self, name: str, model: str, kind: str) -> None:
        """download NODE MODEL KIND."""
        error = "no route to host" if kind == "Failed" else None
        self._step(self.actors[name], DownloadChanged(a_download(name, model, kind, error_message=error)))

    def do_chat(self, name: str, task: str, instance: str) -> None:
        """chat NODE TASK INSTANCE: the node of rank 0 admits it."""
        admitted = a_task(task, self.words.meant(instance))
        self._step(self.actors[name], ChatAdmitted(admitted, is_mine=True))

    def do_done(self, name: str, task: str, status: str) -> None:
        """done NODE TASK STATUS: its stream has ended."""
        replica = self.actors[name].replica
        assert replica is not None
        ended = replica.tending.admitted[task].task.model_copy(update={"task_status": TaskStatus(status), "tokens": 3})
        self._step(self.actors[name], ChatEnded(ended))

    def do_state(self, name: str) -> None:
        """state NODE: what it holds true."""
        replica = self.actors[name].replica
        assert replica is not None
        self.lines += self.words.state(replica.state)

    # The shell ---------------------------------------------------------------------------------------------------

    def _time(self) -> Now:
        return Now(self.now, at(self.now))

    def _step(self, actor: Actor, given: Input) -> None:
        if actor.replica is not None:
            self._carry_out(actor, actor.replica.step(given, self._time()))

    def _carry_out(self, actor: Actor, first: Effects) -> None:
        todo = deque([first])
        while todo:
            effects = todo.popleft()
            self.lines += self.words.effects(actor.name, effects)
            if effects.restart is not None:
                actor.header, actor.records = effects.restart, []
            if effects.append and actor.replica is not None:
                todo.append(actor.replica.step(self._append(actor, effects.append), self._time()))
            for send in effects.send:
                self._send(actor, send)
            for action in effects.act:
                if isinstance(action, EndTask):
                    self.do_done(actor.name, action.task_id, "Failed")

    def _append(self, actor: Actor, records: list[Record]) -> Appended | AppendFailed:
        if actor.is_full:
            return AppendFailed("no space left on device")
        actor.records += records
        return Appended(records[-1].index)

    def _send(self, actor: Actor, send: Publish | Ask | Reply | Follow) -> None:
        assert actor.replica is not None
        match send:
            case Follow():
                followers = self._follows.setdefault((send.address.partition(":")[0], send.topic), [])
                if send.on and actor.name not in followers:
                    followers.append(actor.name)
                if not send.on and actor.name in followers:
                    followers.remove(actor.name)
            case Publish():
                envelope = actor.replica.envelope(send.message)
                for name in self._follows.get((actor.name, send.topic), []):
                    self._post(actor.name, name, Heard(envelope))
            case Ask():
                name = send.address.partition(":")[0]
                asked = Asked(actor.replica.envelope(send.message), (actor.name, send.ask_id, send.message))
                if not self._post(actor.name, name, asked):
                    self._mail.append((actor.name, actor.name, Replied(send.ask_id, None, "nobody there")))
            case Reply():
                name, ask_id, asked_for = send.reply_to  # type: ignore[misc]
                message = send.message
                if isinstance(message, Tail) and isinstance(asked_for, GetTail):
                    message = self._tail(actor, asked_for, message)
                self._post(actor.name, name, Replied(ask_id, actor.replica.envelope(message)))

    def _tail(self, actor: Actor, asked: GetTail, tail: Tail) -> Tail:
        if asked.first_index <= actor.base_index:
            return tail.model_copy(update={"snapshot_needed": True})
        lines = [encode_record(each).decode().rstrip("\n") for each in actor.records if each.index >= asked.first_index]
        return tail.model_copy(update={"lines": tuple(lines)})

    def _post(self, source: str, target: str, given: Input) -> bool:
        there = target in self.actors and self.actors[target].replica is not None
        if not there or source in self._cut or target in self._cut:
            if isinstance(given, Heard) and isinstance(given.envelope.body, Batch):
                self.lines.append(f"{target} does not hear {source}")
            return False
        self._mail.append((source, target, given))
        return True

    def _deliver(self) -> None:
        while self._mail:
            _, target, given = self._mail.popleft()
            self._step(self.actors[target], given)


def _local(actor: Actor) -> dict[str, object]:
    assert actor.replica is not None
    return actor.replica.tending.local.runners  # type: ignore[return-value]
