"""A network inside one process: for tests, simulation, and a node that is alone. It keeps time by trio's clock only.

Faults are asked for, never by chance: every die is rolled from one seed. As over TCP, what one node publishes arrives
in order or not at all. A cut connection is silence: a request over it runs into its deadline.
"""

import contextlib
import heapq
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import trio

from exo_cli.engine.core.errors import ConflictError
from exo_cli.engine.net.rules import CONTROL_WORKERS, DATA_WORKERS, FAILED, NOBODY_SECONDS, TOPICS, answer
from exo_cli.engine.ports import Handler, Heard

_HEARD_AT_MOST = 8192  # then the oldest goes, as in a real socket


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares from 0 to 1, and the range that each delay (one way) is drawn from."""

    drop: float = 0.0  # of what is published, for each follower
    lose_request: float = 0.0  # the connection breaks before the handler hears of it
    lose_answer: float = 0.0  # it breaks after the handler did its work
    delay_seconds: tuple[float, float] = (0.0, 0.0)


class MemoryNetwork:
    """Who is there, and what lies between them."""

    def __init__(self, *, seed: int = 0, faults: Faults | None = None) -> None:
        """`faults` may be replaced at any time."""
        self.faults = faults or Faults()
        self._dice = random.Random(seed)
        self._transports: dict[str, MemoryTransport] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._arrivals = trio.lowlevel.ParkingLot()

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from one node to another (this way only)."""
        self._cuts.add((source, target))

    def partition(self, *groups: set[str]) -> None:
        """Cut both ways between nodes of different groups."""
        for left, right in itertools.permutations(groups, 2):
            self._cuts.update(itertools.product(left, right))

    def heal(self) -> None:
        """Undo all cuts."""
        self._cuts.clear()

    def attach(self, transport: "MemoryTransport") -> None:
        """Make it reachable at its address."""
        if transport.address in self._transports:
            raise ConflictError(f"address {transport.address} is in use", "take another one", code="port_in_use")
        self._transports[transport.address] = transport
        self._arrivals.unpark_all()

    def detach(self, transport: "MemoryTransport") -> None:
        """Forget it."""
        self._transports.pop(transport.address, None)

    async def find(self, address: str, patience_seconds: float) -> "MemoryTransport":
        """Wait a little for somebody to be there, as a socket that dials does."""
        with trio.move_on_after(patience_seconds):
            while address not in self._transports:
                await self._arrivals.park()
        if address not in self._transports:
            raise trio.BrokenResourceError("nobody is there")
        return self._transports[address]

    def publish(self, source: str, topic: str, payload: bytes) -> None:
        """Put it into the inbox of each follower that it reaches."""
        for transport in self._transports.values():
            if not transport.follows(source, topic) or (source, transport.address) in self._cuts:
                continue
            if not self.rolls(self.faults.drop):
                transport.deliver(source, (topic, payload), self._delay())

    async def cross(self, source: str, target: str) -> None:
        """Take as long as a message takes from one to the other: for ever, if there is a cut."""
        await trio.sleep(self._delay())
        if (source, target) in self._cuts:
            await trio.sleep_forever()

    def rolls(self, share: float) -> bool:
        """Whether a fault of this probability happens now. Never rolls for zero, so a quiet network costs no dice."""
        return share > 0 and self._dice.random() < share

    def _delay(self) -> float:
        low, high = self.faults.delay_seconds
        return self._dice.uniform(low, high) if high > 0 else 0.0


@dataclass(slots=True, eq=False)
class _Question:
    payload: bytes
    said: bytes = FAILED
    done: trio.Event = field(default_factory=trio.Event)

    def settle(self, said: bytes) -> None:
        if not self.done.is_set():
            self.said = said
            self.done.set()


class _Queue:
    """Questions to one socket of a node, answered by so many workers."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[_Question](math.inf)
        self._open: set[_Question] = set()

    @contextlib.contextmanager
    def asking(self, payload: bytes) -> Iterator[_Question]:
        question = _Question(payload)
        self._open.add(question)
        self._sender.send_nowait(question)
        try:
            yield question
        finally:
            self._open.discard(question)

    async def work(self, handler: Handler) -> None:
        async for question in self._receiver:
            question.settle(await answer(handler, question.payload))

    def close(self) -> None:
        """The askers see a broken connection."""
        for question in self._open:
            question.settle(FAILED)


class MemoryTransport:
    """`ports.Transport` over a MemoryNetwork: reachable from the start, until it is closed."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        """Raises ConflictError when the address is taken."""
        self.address = address
        self.note: str | None = None
        self._network = network
        self._closed = False
        self._calls: set[trio.CancelScope] = set()
        self._control, self._data = _Queue(), _Queue()
        self._followed: set[tuple[str, str]] = set()
        self._inbox: list[tuple[float, int, Heard]] = []
        self._order = itertools.count()
        self._latest: dict[str, float] = {}
        self._news = trio.lowlevel.ParkingLot()
        network.attach(self)

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """Ends with ClosedResourceError when the transport is closed meanwhile."""
        self._check_open()
        with trio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                yield
            finally:
                self._calls.discard(scope)
        if scope.cancelled_caught:
            self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this transport was closed")

    async def serve(
        self,
        handler: Handler,
        data_handler: Handler,
        *,
        task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer requests until cancelled; see the port."""
        with self._call():
            async with trio.open_nursery() as nursery:
                for _ in range(CONTROL_WORKERS):
                    nursery.start_soon(self._control.work, handler)
                for _ in range(DATA_WORKERS):
                    nursery.start_soon(self._data.work, data_handler)
                task_status.started()

    async def request(self, address: str, payload: bytes, *, timeout_seconds: float, data: bool = False) -> bytes:
        """Ask once; see the port."""
        with self._call():
            deadline = trio.current_time() + timeout_seconds
            other = await self._network.find(address, min(timeout_seconds, NOBODY_SECONDS))
            with trio.fail_at(deadline):
                return await self._ask(other, payload, data)

    async def _ask(self, other: "MemoryTransport", payload: bytes, data: bool) -> bytes:
        network, faults = self._network, self._network.faults
        await network.cross(self.address, other.address)
        if other._closed or network.rolls(faults.lose_request):
            raise trio.BrokenResourceError("the connection was lost before the request arrived")
        with (other._data if data else other._control).asking(payload) as question:
            await question.done.wait()
        await network.cross(other.address, self.address)
        if question.said == FAILED or network.rolls(faults.lose_answer):
            raise trio.BrokenResourceError(f"{other.address} could not answer, or the connection was lost")
        return question.said

    def publish(self, topic: str, payload: bytes) -> None:
        """Send to the followers; see the port."""
        self._check_open()
        assert topic in TOPICS, f"no topic {topic}"
        self._network.publish(self.address, topic, payload)

    def follow(self, address: str, topic: str) -> None:
        """Begin to hear; see the port."""
        self._check_open()
        self._followed.add((address, topic))

    def unfollow(self, address: str, topic: str) -> None:
        """Stop hearing; see the port."""
        self._check_open()
        self._followed.discard((address, topic))

    def follows(self, address: str, topic: str) -> bool:
        """For the network."""
        return (address, topic) in self._followed

    def deliver(self, source: str, heard: Heard, delay_seconds: float) -> None:
        """For the network: a message that is heard after its delay, and after all that its source sent before."""
        due = max(trio.current_time() + delay_seconds, self._latest.get(source, -math.inf))
        self._latest[source] = due
        heapq.heappush(self._inbox, (due, next(self._order), heard))
        if len(self._inbox) > _HEARD_AT_MOST:
            heapq.heappop(self._inbox)
        self._news.unpark_all()

    async def hear(self) -> list[Heard]:
        """All that is due, once something is; see the port."""
        with self._call():
            await trio.lowlevel.checkpoint_if_cancelled()
            while not self._inbox or self._inbox[0][0] > trio.current_time():
                with trio.move_on_at(self._inbox[0][0] if self._inbox else math.inf):
                    await self._news.park()
            await trio.lowlevel.cancel_shielded_checkpoint()  # a plain one could lose what is taken below
            heard: list[Heard] = []
            while self._inbox and self._inbox[0][0] <= trio.current_time():
                heard.append(heapq.heappop(self._inbox)[2])
            return heard

    async def aclose(self) -> None:
        """Let go of the address; see the port."""
        self._closed = True
        self._network.detach(self)
        for scope in self._calls:
            scope.cancel()
        self._control.close()
        self._data.close()
        await trio.lowlevel.checkpoint()
