"""The simulated shell of a node: it carries out Effects as the real one does, on the world's queue, without trio."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from exo_cli.engine.core.effects import (
    Ask,
    Asked,
    ChatAdmitted,
    ChatCancelled,
    ChatEnded,
    Effects,
    EndTask,
    Follow,
    Heard,
    Input,
    Now,
    Publish,
    Replied,
    Reply,
    Submitted,
    Tick,
)
from exo_cli.engine.core.intents import Submission
from exo_cli.engine.core.replica import Replica
from exo_cli.engine.core.tasks import GenerationTask, TaskStatus
from exo_cli.engine.core.wire import Answer, GetTail, Message, Tail, unpack
from tests.builders import MIB, a_node, at
from tests.sim.disk import Disk
from tests.sim.hands import Hands

if TYPE_CHECKING:
    from tests.sim.world import World

TICK_SECONDS = 0.2
HASH_EVERY = 5


@dataclass(frozen=True, eq=False)
class Question:
    """Where the answer to another node goes, and what was asked."""

    answer: Callable[[Message], None]
    body: Message


@dataclass(frozen=True, eq=False)
class Client:
    """Where the answer to a client goes."""

    told: Callable[[Answer], None]


class Shell:
    """A machine: its disk and model files last, its process comes and goes."""

    def __init__(self, world: "World", name: str, seeds: tuple[str, ...]) -> None:
        self.world, self.name, self.seeds = world, name, seeds
        self.address = f"{name}:7101"
        self.facts = a_node(name, memory_bytes=world.rng.choice([2048, 2048, 4096]) * MIB)
        self.files: set[str] = set()
        self.life, self.is_alive, self.is_frozen = 0, False, False
        self.disk = Disk(self)
        self.links: dict[str, list[tuple[int, Input]]] = {}
        self._skew = self.thawed = 0.0
        self._inbox: deque[Input] = deque()
        self._todo: deque[Effects] = deque()
        self._is_busy = False
        self._pending: set[int] = set()

    # Life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A process begins on what the disk holds."""
        self.life, self.is_alive = self.life + 1, True
        self._skew = self.world.rng.uniform(0, 1000)
        self._pending, self.links = set(), {}
        self._inbox, self._todo, self._is_busy, self.is_frozen = deque(), deque(), False, False
        state = self.disk.fold()
        self.hands = Hands(self)
        self.replica = Replica(self.name, self.life, self.address, self.facts, state, "1", self.seeds)
        self.world.note(self.name, f"starts, life {self.life}, log up to {state.index}")
        self.door = self.world.door(self)
        self._todo.append(self.door.start(self.now()))
        self._go_on()
        self._tick(self.life)

    def kill(self) -> None:
        """kill -9."""
        self.world.note(self.name, "is killed")
        self.is_alive = False
        self.disk.crash()
        for followers in self.world.follows.values():
            followers.discard(self.name)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP for a while: it hears nothing, says nothing, and then goes on as if no time had passed."""
        self.world.note(self.name, "is frozen for", seconds)
        self.is_frozen = True
        life = self.life

        def thaw() -> None:
            if life == self.life and self.is_alive:
                self.is_frozen, self.thawed = False, self.world.now
                self._go_on()

        self.world.later(seconds, thaw)

    def now(self) -> Now:
        return Now(self.world.now + self._skew, at(self.world.now))

    def _tick(self, life: int) -> None:
        if self.is_alive and life == self.life:
            if not self.is_frozen:
                self.deliver(Tick())
            self.world.later(TICK_SECONDS, lambda: self._tick(life))

    # The door ----------------------------------------------------------------------------------------------------

    def deliver(self, given: Input) -> None:
        """Put an input in the line."""
        if self.is_alive:
            self._inbox.append(given)
            self._go_on()

    def _go_on(self) -> None:
        """Carry out what is due, then step the next input, one at a time; a write holds everything up."""
        while not self._is_busy and not self.is_frozen and (self._todo or self._inbox):
            effects = self._todo.popleft() if self._todo else self._step(self._inbox.popleft())
            self._begin(effects)

    def _step(self, given: Input) -> Effects:
        self.world.steps += 1
        before = self.replica.state.index
        effects = self.door.step(given, self.now())
        index = self.replica.state.index
        if index != before:
            if index > self.disk.last_index and effects.restart is None:
                self.world.fail(f"{self.name} applied {index}, its disk holds {self.disk.last_index}")
            if index % HASH_EVERY == 0:
                found = self.replica.state.hash()
                if self.world.hashes.setdefault(index, found) != found:
                    self.world.fail(f"state of {self.name} at {index} differs from what it was elsewhere")
        return effects

    def _begin(self, effects: Effects) -> None:
        """Note, restart, append; then the rest."""
        for note in effects.note:
            self.world.note(self.name, "note", note.kind, note.fields)
        if effects.restart is not None:
            self.world.note(self.name, f"begins anew at {effects.restart.base_index}")
        for record in effects.append:
            self.world.note(self.name, "append", record.index, record.event)
        self._is_busy = True
        if effects.restart is not None or effects.append:
            self.disk.write(effects.restart, effects.append, lambda result: self._written(effects, result))
        else:
            self._finish(effects)

    def _written(self, effects: Effects, result: Input | None) -> None:
        if result is not None:
            self._todo.append(self._step(result))
        self._finish(effects)
        self._go_on()

    def _finish(self, effects: Effects) -> None:
        """Send, act, answer."""
        for send in effects.send:
            self._send(send)
        for action in effects.act:
            if isinstance(action, EndTask):
                self.world.note(self.name, f"end {action.task_id}: {action.error}")
                self.end_chat(action.task_id, TaskStatus.CANCELLED if action.code == "cancelled" else TaskStatus.FAILED)
            else:
                self.world.note(self.name, "act", action)
                self.hands.do(action)
        for answered in effects.answer:
            assert isinstance(answered.reply_to, Client)
            self.world.later(0.0, partial(answered.reply_to.told, answered.answer))
        if effects.leave is not None:
            self.world.fail(f"{self.name} leaves: {effects.leave.reason}")
        self._is_busy = False

    def _send(self, send: "Publish | Ask | Reply | Follow") -> None:
        match send:
            case Publish():
                self.world.publish(self, send)
            case Ask():
                self._pending.add(send.ask_id)
                self.world.ask(self, send)
            case Follow():
                followers = self.world.follows.setdefault((send.address, send.topic), set())
                (followers.add if send.on else followers.discard)(self.name)
            case Reply():
                question, message = send.reply_to, send.message
                assert isinstance(question, Question)
                if isinstance(message, Tail):
                    assert isinstance(question.body, GetTail)
                    message = self.disk.tail(question.body, message)
                question.answer(message)

    # What comes in -----------------------------------------------------------------------------------------------

    def hear(self, payload: bytes) -> None:
        self.deliver(Heard(unpack(payload)))

    def asked(self, payload: bytes, answer: Callable[[Message], None]) -> None:
        envelope = unpack(payload)
        self.deliver(Asked(envelope, Question(answer, envelope.body)))

    def replied(self, life: int, ask_id: int, payload: bytes | None, why: str) -> None:
        if self.is_alive and life == self.life and ask_id in self._pending:
            self._pending.discard(ask_id)
            self.deliver(Replied(ask_id, unpack(payload) if payload else None, why))

    def submit(self, submission: Submission, told: Callable[[Answer], None], timeout_seconds: float = 10.0) -> None:
        self.deliver(Submitted(submission, Client(told), timeout_seconds))

    # Chats -------------------------------------------------------------------------------------------------------

    def open_chat(self, task: GenerationTask) -> None:
        """A client's chat, on the node of rank 0: admit it, and tell the other ranks' nodes in one order."""
        instance = self.replica.state.instances.get(task.instance_id)
        if not self.is_alive or instance is None or instance.shards[0].node_id != self.name:
            return
        self.deliver(ChatAdmitted(task, is_mine=True))
        for shard in instance.shards[1:]:
            self.tell(shard.node_id, ChatAdmitted(task, is_mine=False))

    def cancel_chat(self) -> None:
        """A client goes away: its chat, if this node has one, is wanted no longer."""
        for task_id, each in self.replica.tending.admitted.items():
            if each.is_mine:
                self.world.note(self.name, "chat", task_id, "is cancelled")
                self.deliver(ChatCancelled(task_id))
                return

    def end_chat(self, task_id: str, status: TaskStatus) -> None:
        """The stream gets its last frame; rank 0's node writes history and lets the others stop."""
        each = self.replica.tending.admitted.get(task_id)
        self.hands.drop(task_id)
        if each is None:
            return
        ended = each.task.model_copy(update={"task_status": status, "tokens": 3})
        self.deliver(ChatEnded(ended))
        if each.is_mine and status != TaskStatus.COMPLETE:
            for name in self.world.shells:
                if name != self.name:
                    self.tell(name, ChatCancelled(task_id))

    def tell(self, name: str, given: Input) -> None:
        """Over the data socket: in order, again and again until it arrives or the other process is another one."""
        queue = self.links.setdefault(name, [])
        queue.append((self.world.shells[name].life, given))
        if len(queue) == 1:
            life = self.life
            self.world.later(0.01, lambda: self._pass_on(name, life))

    def _pass_on(self, name: str, life: int) -> None:
        if life != self.life or not self.is_alive:
            return
        target, queue = self.world.shells[name], self.links[name]
        if target.life == queue[0][0] and (self.world.is_cut(self.name, name) or not target.is_alive):
            self.world.later(0.5, lambda: self._pass_on(name, life))
            return
        life_there, given = queue.pop(0)
        if target.is_alive and target.life == life_there:
            target.deliver(given)
        if queue:
            self.world.later(0.01, lambda: self._pass_on(name, life))
