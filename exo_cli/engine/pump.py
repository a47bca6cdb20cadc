"""The pump: inputs into the replica, one at a time, and its effects out to log, network, machine and clients.

The order is note, restart, append, send, act, answer, leave. An append is durable before `Appended` goes back in, and
nothing else is stepped meanwhile: so nobody hears of an event that is not in the log.
"""

import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from time import time_ns

import trio

from exo_cli.engine.core.actions import Action
from exo_cli.engine.core.effects import (
    Answered,
    Appended,
    AppendFailed,
    Ask,
    Asked,
    Effects,
    EndTask,
    Follow,
    Heard,
    Input,
    Leave,
    Note,
    Now,
    Publish,
    Replied,
    Reply,
)
from exo_cli.engine.core.errors import BadDataError
from exo_cli.engine.core.replica import Replica
from exo_cli.engine.core.wire import (
    Answer,
    Envelope,
    ForeignMessageError,
    GetTail,
    Header,
    Message,
    Refusal,
    Tail,
    encode_record,
    pack,
    unpack,
)
from exo_cli.engine.notes import Notes
from exo_cli.engine.ports import EventLog, Transport
from exo_cli.engine.recorder import Recorder

TAIL_BYTES = 1 << 20
ANSWER_SECONDS = 10.0
_LOG = logging.getLogger(__name__)


class Waiter:
    """Somebody who waits for exactly one answer: a client of this node, or the handler of another node's request."""

    def __init__(self, envelope: Envelope | None = None) -> None:
        """`envelope` is the request, when there is one."""
        self.envelope = envelope
        self.answer: Answer | Message | None = None
        self.is_answered = trio.Event()

    def give(self, answer: Answer | Message) -> None:
        """The answer."""
        self.answer = answer
        self.is_answered.set()


class Pump:
    """See the module."""

    def __init__(
        self,
        replica: Replica,
        log: EventLog,
        notes: Notes,
        transport: Transport,
        nursery: trio.Nursery,
        act: Callable[[Action | EndTask], None],
        leave: Callable[[Leave], None],
        *,
        writes_to_disk: bool,
        recorder: Recorder | None = None,
    ) -> None:
        """`act` carries out what the planner asks for, without waiting; `leave` begins the end of the node; a recorder
        of this replica stands in front of it.
        """
        self._door = recorder or replica
        self.replica, self.log, self.notes, self.transport = replica, log, notes, transport
        self.read_only = ""
        self._restart: Header | None = None
        self._nursery, self._act, self._leave, self._writes_to_disk = nursery, act, leave, writes_to_disk
        self._send_input, self._inputs = trio.open_memory_channel[Input](4096)
        self._changed = trio.Event()

    def now(self) -> Now:
        """The time, from the only two clocks of the node."""
        return Now(trio.current_time(), datetime.fromtimestamp(time_ns() / 1e9, UTC))

    async def feed(self, given: Input) -> None:
        """Put an input in the line."""
        await self._send_input.send(given)

    async def start(self) -> None:
        """The replica's first step."""
        await self._carry_out(self._door.start(self.now()))

    async def run(self) -> None:
        """Step, until cancelled."""
        async for given in self._inputs:
            await self._carry_out(self._door.step(given, self.now()))

    async def wait_changed(self, seconds: float) -> None:
        """Wait until the state has changed, or some time has passed."""
        with trio.move_on_after(seconds):
            await self._changed.wait()

    async def _carry_out(self, first: Effects) -> None:
        todo = deque([first])
        while todo:
            effects = todo.popleft()
            for note in effects.note:
                self.notes.take(note)
            if effects.restart is not None:
                self._restart = effects.restart
                await self._written(self._begin_anew)
            if effects.append:
                todo.append(self._door.step(await self._append(effects), self.now()))
            for message in effects.send:
                self._send(message)
            for action in effects.act:
                self._act(action)
            for answered in effects.answer:
                _give(answered)
            if effects.leave is not None:
                self._leave(effects.leave)
        if self.log.is_full and self.replica.state.index == self.log.last_index:
            await self._rotate()

    async def _append(self, effects: Effects) -> Appended | AppendFailed:
        def write() -> None:
            self._begin_anew()
            self.log.append(effects.append)

        if await self._written(write):
            return Appended(effects.append[-1].index)
        return AppendFailed(self.read_only)

    async def _rotate(self) -> None:
        """A new segment begins with the state; when the disk does not take it, the old one goes on."""
        header = self.replica.header()
        try:
            await self._on_disk(partial(self.log.rotate, header))
        except OSError as error:
            _LOG.warning("the log goes on in its old segment: %s", error)

    def _begin_anew(self) -> None:
        """Restart the log if that is due; a disk that was full then may have room now."""
        if self._restart is not None:
            self.log.restart(self._restart)
            self._restart = None

    async def _written(self, work: Callable[[], None]) -> bool:
        """Whether the disk took it. If not, this node is read-only until it does."""
        try:
            await self._on_disk(work)
        except OSError as error:
            if not self.read_only:
                _LOG.error("the log cannot be written, this node is read-only: %s", error)
            self.read_only = str(error)
            return False
        if self.read_only:
            _LOG.warning("the log can be written again")
            self.read_only = ""
        self._wake()
        return True

    async def _on_disk(self, work: Callable[[], None]) -> None:
        if self._writes_to_disk:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(work)
        else:
            work()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # Network -----------------------------------------------------------------------------------------------------

    def _send(self, message: Publish | Ask | Reply | Follow) -> None:
        match message:
            case Publish():
                self.transport.publish(message.topic, pack(self.replica.envelope(message.message)))
            case Ask():
                self._nursery.start_soon(self._ask, message)
            case Reply():
                assert isinstance(message.reply_to, Waiter), "replies go to who asked"
                message.reply_to.give(self._filled(message))
            case Follow():
                self._follow(message)

    def _follow(self, message: Follow) -> None:
        try:
            if message.on:
                self.transport.follow(message.address, message.topic)
            else:
                self.transport.unfollow(message.address, message.topic)
        except ValueError as error:
            self.notes.take(Note("address refused", {"address": message.address, "why": str(error)}))

    async def _ask(self, ask: Ask) -> None:
        try:
            envelope = await self.request(ask.address, ask.message, ask.timeout_seconds)
        except (trio.BrokenResourceError, trio.TooSlowError, ForeignMessageError) as error:
            await self.feed(Replied(ask.ask_id, None, str(error) or type(error).__name__))
        else:
            await self.feed(Replied(ask.ask_id, envelope))

    async def request(self, address: str, message: Message, seconds: float, *, data: bool = False) -> Envelope:
        """Ask another node.

        Raises:
            trio.BrokenResourceError, trio.TooSlowError: see `ports.Transport`.
            ForeignMessageError: what answers is no node of ours.
        """
        payload = pack(self.replica.envelope(message))
        return unpack(await self.transport.request(address, payload, timeout_seconds=seconds, data=data))

    def _filled(self, reply: Reply) -> Message:
        """A tail gets its lines here, from the log."""
        assert isinstance(reply.reply_to, Waiter), "replies go to who asked"
        asked = reply.reply_to.envelope.body if reply.reply_to.envelope else None
        if not isinstance(reply.message, Tail) or not isinstance(asked, GetTail):
            return reply.message
        try:
            return self._tail(asked, reply.message.head)
        except (BadDataError, OSError) as error:
            _LOG.error("the log cannot be read, a follower gets the state instead: %s", error)
            return Tail(head=reply.message.head, snapshot_needed=True)

    def _tail(self, asked: GetTail, head: int) -> Tail:
        first = asked.first_index
        if first < self.log.first_index or first > self.log.last_index + 1:
            return Tail(head=head, snapshot_needed=True)
        before = self.log.read(first - 1, limit_bytes=1)[:1] if first > self.log.first_index else []
        if before and before[0].term != asked.previous_term:
            return Tail(head=head, snapshot_needed=True)
        records = self.log.read(first, limit_bytes=TAIL_BYTES) if first <= self.log.last_index else []
        lines = tuple(encode_record(record).decode().rstrip("\n") for record in records)
        return Tail(lines=lines, head=head)

    async def listen(self) -> None:
        """Hear what is published, until cancelled."""
        while True:
            for _topic, payload in await self.transport.hear():
                try:
                    envelope = unpack(payload)
                except ForeignMessageError as error:
                    self.notes.drop(error.reason)
                else:
                    await self.feed(Heard(envelope))

    async def answer_node(self, envelope: Envelope) -> Message:
        """Put another node's request to the replica, and wait for its one reply."""
        waiter = Waiter(envelope)
        await self.feed(Asked(envelope, waiter))
        with trio.move_on_after(ANSWER_SECONDS):
            await waiter.is_answered.wait()
        if isinstance(waiter.answer, Answer) or waiter.answer is None:
            return Refusal(code="timeout", reason="no answer in time")
        return waiter.answer


def _give(answered: Answered) -> None:
    assert isinstance(answered.reply_to, Waiter), "answers go to who asked"
    answered.reply_to.give(answered.answer)
