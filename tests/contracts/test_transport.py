"""The contract of `ports.Transport`, kept by the network in memory and by nng on loopback alike.

In memory the clock jumps; nng has the real clock, so conditions are polled with deadlines.
"""

import collections
import functools
import itertools
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from exo_cli.engine.net.addresses import first_free_block
from exo_cli.engine.net.memory import MemoryNetwork, MemoryTransport
from exo_cli.engine.net.transport import NngTransport
from exo_cli.engine.ports import Transport

# Far from what nodes take by themselves and from what the system hands out; test runs side by side begin elsewhere.
_FIRST = 10001 + os.getpid() % 2000 * 3
_starts = itertools.cycle(range(_FIRST, _FIRST + 3000, 3))


async def echo(question: bytes) -> bytes:
    return question


async def shout(question: bytes) -> bytes:
    return question.upper()


async def never(question: bytes) -> bytes:
    await trio.sleep_forever()
    raise AssertionError


class Rig:
    """Makes transports, and closes them."""

    def __init__(self) -> None:
        self.open: list[Transport] = []

    def address(self) -> str:
        raise NotImplementedError

    async def listen(self, address: str | None = None) -> Transport:
        transport = await self.make(address or self.address())
        self.open.append(transport)
        return transport

    async def make(self, address: str) -> Transport:
        raise NotImplementedError

    @asynccontextmanager
    async def serving(
        self, handler: Callable[[bytes], Awaitable[bytes]] = echo, data: Callable[[bytes], Awaitable[bytes]] = shout
    ) -> AsyncIterator[Transport]:
        transport = await self.listen()
        async with trio.open_nursery() as nursery:
            await nursery.start(transport.serve, handler, data)
            yield transport
            nursery.cancel_scope.cancel()


class MemoryRig(Rig):
    def __init__(self) -> None:
        super().__init__()
        self.network = MemoryNetwork()
        self.numbers = itertools.count(7101, 3)

    def address(self) -> str:
        return f"memory:{next(self.numbers)}"

    async def make(self, address: str) -> Transport:
        return MemoryTransport(self.network, address)


class NngRig(Rig):
    def address(self) -> str:
        return f"127.0.0.1:{first_free_block(starts=tuple(itertools.islice(_starts, 40)))}"

    async def make(self, address: str) -> Transport:
        host, _, port = address.rpartition(":")
        return await NngTransport.listen(host, int(port))


def jump(function: Callable[..., Awaitable[None]], *args: object, clock: object = None, **kwargs: object) -> None:
    trio.run(function, *args, clock=MockClock(autojump_threshold=0), **kwargs)


@pytest.fixture(
    params=[
        pytest.param(MemoryRig, id="memory", marks=pytest.mark.trio(run=jump)),
        pytest.param(NngRig, id="nng"),
    ]
)
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    made: Rig = request.param()
    yield made
    for transport in made.open:
        await transport.aclose()


class Listener:
    """Keeps what a transport hears, by topic."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.heard: dict[str, list[bytes]] = collections.defaultdict(list)

    async def run(self) -> None:
        while True:
            for topic, payload in await self.transport.hear():
                self.heard[topic].append(payload)

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(5):
            while not condition():  # noqa: ASYNC110 - what nng's threads do sets no event
                await trio.sleep(0.002)

    async def follow(self, publisher: Transport, topic: str = "events") -> None:
        """Follow, and publish until it arrives: nng does not say when a follower is there."""
        hello = f"hello {random.random()}".encode()
        self.transport.follow(publisher.address, topic)
        with trio.fail_after(5):
            while hello not in self.heard[topic]:
                publisher.publish(topic, hello)
                await trio.sleep(0.01)

    def numbers(self, topic: str = "events") -> list[int]:
        return [int(payload) for payload in self.heard[topic] if payload.isdigit()]


@asynccontextmanager
async def listening(transport: Transport) -> AsyncIterator[Listener]:
    listener = Listener(transport)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        yield listener
        nursery.cancel_scope.cancel()


async def test_a_request_is_answered_by_the_handler_of_its_socket(rig: Rig) -> None:
    asker = await rig.listen()
    async with rig.serving() as node:
        assert await asker.request(node.address, b"a", timeout_seconds=5) == b"a"
        assert await asker.request(node.address, b"a", timeout_seconds=5, data=True) == b"A"
        assert await node.request(node.address, b"own", timeout_seconds=5) == b"own"


@pytest.mark.parametrize("data", [False, True])
async def test_sixteen_requests_are_handled_at_once(rig: Rig, data: bool) -> None:
    inside = 0
    everybody = trio.Event()

    async def handler(question: bytes) -> bytes:
        nonlocal inside
        inside += 1
        if inside == 16:
            everybody.set()
        await everybody.wait()
        return question

    answers: set[bytes] = set()

    async def ask(asker: Transport, node: Transport, number: int) -> None:
        payload = str(number).encode()
        answer = await asker.request(node.address, payload, timeout_seconds=5, data=data)
        assert answer == payload
        answers.add(answer)

    askers = [await rig.listen() for _ in range(2)]
    async with rig.serving(handler, handler) as node, trio.open_nursery() as nursery:
        for number in range(16):
            nursery.start_soon(ask, askers[number % 2], node, number)
    assert len(answers) == 16


async def test_a_megabyte_goes_both_ways(rig: Rig) -> None:
    asker = await rig.listen()
    payload = random.Random(1).randbytes(1 << 20)
    async with rig.serving() as node:
        assert await asker.request(node.address, payload, timeout_seconds=10) == payload


@pytest.mark.parametrize("timeout_seconds", [0.2, 30])
async def test_nobody_there_breaks_soon(rig: Rig, timeout_seconds: float) -> None:
    asker = await rig.listen()
    before = trio.current_time()
    with pytest.raises(trio.BrokenResourceError):
        await asker.request(rig.address(), b"x", timeout_seconds=timeout_seconds)
    assert trio.current_time() - before < 3


async def test_a_node_that_comes_a_little_late_is_found(rig: Rig) -> None:
    asker, address = await rig.listen(), rig.address()

    async def come_late() -> None:
        await trio.sleep(0.3)
        await (await rig.listen(address)).serve(echo, echo, task_status=trio.TASK_STATUS_IGNORED)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_late)
        assert await asker.request(address, b"x", timeout_seconds=5) == b"x"
        nursery.cancel_scope.cancel()


async def test_a_late_answer_is_too_slow_and_does_not_disturb_the_next(rig: Rig) -> None:
    async def slow_first(question: bytes) -> bytes:
        if question == b"slow":
            await trio.sleep(0.4)
        return question

    asker = await rig.listen()
    async with rig.serving(slow_first) as node:
        before = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            await asker.request(node.address, b"slow", timeout_seconds=0.2)
        assert trio.current_time() - before < 0.39
        for number in range(20):
            payload = str(number).encode()
            assert await asker.request(node.address, payload, timeout_seconds=5) == payload
            await trio.sleep(0.02)  # past the moment when the late answer arrives


async def test_a_handler_that_raises_breaks_its_request_only(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    async def picky(question: bytes) -> bytes:
        if question == b"bad":
            raise ValueError("bad")
        return question

    asker = await rig.listen()
    async with rig.serving(picky) as node:
        for _ in range(40):  # more often than there are workers
            with pytest.raises(trio.BrokenResourceError):
                await asker.request(node.address, b"bad", timeout_seconds=5)
        assert await asker.request(node.address, b"good", timeout_seconds=5) == b"good"
    assert "handler raised" in caplog.text


async def test_cancelled_requests_leave_room_for_others(rig: Rig) -> None:
    asker = await rig.listen()
    async with rig.serving(echo, never) as node:
        for _ in range(100):
            with trio.move_on_after(0.002):
                await asker.request(node.address, b"x", timeout_seconds=5)
        assert await asker.request(node.address, b"x", timeout_seconds=5) == b"x"


async def expect(error: type[Exception], function: Callable[..., Awaitable[object]]) -> None:
    with pytest.raises(error):
        await function()


async def test_closing_ends_all_pending_calls(rig: Rig) -> None:
    asker = await rig.listen()
    async with rig.serving(never) as node:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nobody = rig.address()
                for address in (node.address, nobody):
                    asking = functools.partial(asker.request, address, b"x", timeout_seconds=60)
                    nursery.start_soon(expect, trio.ClosedResourceError, asking)
                nursery.start_soon(expect, trio.ClosedResourceError, asker.hear)
                serving = functools.partial(asker.serve, echo, echo, task_status=trio.TASK_STATUS_IGNORED)
                nursery.start_soon(expect, trio.ClosedResourceError, serving)
                await trio.sleep(0.2)
                await asker.aclose()


async def test_closing_ends_handlers_that_are_at_work(rig: Rig) -> None:
    node, asker = await rig.listen(), await rig.listen()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            serving = functools.partial(node.serve, never, never, task_status=trio.TASK_STATUS_IGNORED)
            nursery.start_soon(expect, trio.ClosedResourceError, serving)
            asking = functools.partial(asker.request, node.address, b"x", timeout_seconds=60)
            nursery.start_soon(expect, trio.BrokenResourceError, asking)
            await trio.sleep(0.2)
            await node.aclose()


async def test_after_closing_all_calls_say_so(rig: Rig) -> None:
    node = await rig.listen()
    await node.aclose()
    await node.aclose()
    for call in (
        functools.partial(node.request, rig.address(), b"x", timeout_seconds=5),
        functools.partial(node.serve, echo, echo, task_status=trio.TASK_STATUS_IGNORED),
        node.hear,
    ):
        with pytest.raises(trio.ClosedResourceError):
            await call()
    with pytest.raises(trio.ClosedResourceError):
        node.publish("events", b"x")
    with pytest.raises(trio.ClosedResourceError):
        node.follow(rig.address(), "events")


async def test_serving_can_stop_at_once_and_begin_again(rig: Rig) -> None:
    node, asker = await rig.listen(), await rig.listen()
    for handler, answer in ((echo, b"a"), (shout, b"A")):
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                await nursery.start(node.serve, handler, never)
                assert await asker.request(node.address, b"a", timeout_seconds=5) == answer
                nursery.cancel_scope.cancel()


async def test_a_follower_hears_in_order_until_it_unfollows(rig: Rig) -> None:
    publisher, follower = await rig.listen(), await rig.listen()
    async with listening(follower) as listener:
        await listener.follow(publisher)
        for number in range(500):
            publisher.publish("events", str(number).encode())
        await listener.until(lambda: len(listener.numbers()) == 500)
        assert listener.numbers() == list(range(500))

        follower.unfollow(publisher.address, "events")
        follower.unfollow(publisher.address, "events")
        await trio.sleep(0.1)
        publisher.publish("events", b"1000")
        await trio.sleep(0.1)
        assert 1000 not in listener.numbers()
        await listener.follow(publisher)


async def test_a_late_follower_hears_what_comes_later(rig: Rig) -> None:
    publisher, follower = await rig.listen(), await rig.listen()
    publisher.publish("events", b"1")
    async with listening(follower) as listener:
        await listener.follow(publisher)
        publisher.publish("events", b"2")
        await listener.until(lambda: bool(listener.numbers()))
        assert listener.numbers() == [2]


async def test_topics_are_apart(rig: Rig) -> None:
    publisher, follower = await rig.listen(), await rig.listen()
    async with listening(follower) as listener:
        await listener.follow(publisher, "gossip")
        publisher.publish("events", b"1")
        publisher.publish("gossip", b"2")
        await listener.until(lambda: bool(listener.numbers("gossip")))
        assert listener.numbers("events") == []
        await listener.follow(publisher, "events")
        publisher.publish("events", b"3")
        publisher.publish("gossip", b"4|events|5")
        await listener.until(lambda: bool(listener.numbers("events")))
        await listener.until(lambda: b"4|events|5" in listener.heard["gossip"])
        assert listener.numbers("events") == [3]


async def test_several_publishers_are_heard_once_each(rig: Rig) -> None:
    publishers = [await rig.listen() for _ in range(3)]
    follower = publishers[0]  # which hears itself, too
    async with listening(follower) as listener:
        for publisher in publishers:
            await listener.follow(publisher, "gossip")
            follower.follow(publisher.address, "gossip")  # twice is once
        for number, publisher in enumerate(publishers * 10):
            publisher.publish("gossip", str(number).encode())
        await listener.until(lambda: len(listener.numbers("gossip")) >= 30)
        assert sorted(listener.numbers("gossip")) == list(range(30))


async def test_cancelling_hear_loses_nothing(rig: Rig) -> None:
    publisher, follower = await rig.listen(), await rig.listen()
    async with listening(follower) as listener:
        await listener.follow(publisher)
        await listener.follow(publisher, "gossip")
    heard: list[int] = []
    cancelled = 0
    dice = random.Random(7)

    async def publish() -> None:
        for number in range(1500):
            publisher.publish(("events", "gossip")[number % 2], str(number).encode())
            await trio.sleep(random.Random(number).random() * 3e-4)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            while len(heard) < 1500:
                with trio.move_on_after(dice.random() * 3e-4) as scope:
                    heard += [int(payload) for _, payload in await follower.hear() if payload.isdigit()]
                cancelled += scope.cancelled_caught
    assert sorted(heard) == list(range(1500))
    assert [number for number in heard if number % 2] == list(range(1, 1500, 2))
    assert cancelled > 20


async def test_hear_takes_what_is_there_even_when_cancelled_before(rig: Rig) -> None:
    publisher, follower = await rig.listen(), await rig.listen()
    async with listening(follower) as listener:
        await listener.follow(publisher)
    publisher.publish("events", b"1")
    with trio.CancelScope() as scope:
        scope.cancel()
        await follower.hear()
    assert scope.cancelled_caught
    with trio.fail_after(5):
        while ("events", b"1") not in await follower.hear():
            pass


async def test_a_node_that_restarts_at_its_address_is_found_again(rig: Rig) -> None:
    asker, address = await rig.listen(), rig.address()
    async with listening(asker) as listener:
        for life in range(3):
            node = await rig.listen(address)
            async with trio.open_nursery() as nursery:
                await nursery.start(node.serve, echo, shout)
                for data in (False, True):
                    with trio.fail_after(5):
                        assert await asker.request(address, b"a", timeout_seconds=4, data=data) == (b"a", b"A")[data]
                await listener.follow(node)
                node.publish("events", str(life).encode())
                await listener.until(lambda life=life: life in listener.numbers())
                nursery.cancel_scope.cancel()
            await node.aclose()


@pytest.fixture
def garbage() -> list[bytes]:
    dice = random.Random(3)
    return [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        dice.randbytes(3000),
        b"\x00SP\x00\x00\x30\x00\x00" + b"\x7f" + b"\xff" * 7,  # a request that claims to be endless
        b"\x00SP\x00\x00\x30\x00\x00" + (3).to_bytes(8, "big") + b"abc",  # too short to have a request id
        b"\x00SP\x00\x00\x30\x00\x00" + (4).to_bytes(8, "big") + b"\x80abc",  # empty
        b"\x00SP\x00\x00\x50\x00\x00",  # another protocol
        b"\x00",
        b"",
    ]


async def test_garbage_from_outside_disturbs_nobody(garbage: list[bytes]) -> None:
    rig = NngRig()
    asker = await rig.listen()
    async with rig.serving() as node, listening(asker) as listener:
        await listener.follow(node)
        port = int(node.address.rpartition(":")[2])
        strangers = []
        for data, offset in itertools.product(garbage, range(3)):
            stranger = socket.create_connection(("127.0.0.1", port + offset), timeout=5)
            stranger.sendall(data)
            strangers.append(stranger)
        assert await asker.request(node.address, b"a", timeout_seconds=5) == b"a"
        assert await asker.request(node.address, b"a", timeout_seconds=5, data=True) == b"A"
        node.publish("events", b"1")
        await listener.until(lambda: listener.numbers() == [1])
        for stranger in strangers:
            stranger.close()
    for transport in rig.open:
        await transport.aclose()


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:0", "127.0.0.1:99999", "[::1", "a b:7101", "x:71 01"])
async def test_at_an_impossible_address_nobody_is_there(rig: Rig, address: str) -> None:
    asker = await rig.listen()
    asker.follow(address, "events")
    asker.unfollow(address, "events")
    with pytest.raises(trio.BrokenResourceError):
        await asker.request(address, b"x", timeout_seconds=0.2)
