"""What only the network in memory has: faults that are asked for, and can be asked for again."""

import pytest
import trio
from trio.testing import MockClock

from exo_cli.engine.core.errors import ConflictError
from exo_cli.engine.net.memory import Faults, MemoryNetwork, MemoryTransport


class Nodes:
    """Some transports on one network, all of which serve and count what they were asked."""

    def __init__(self, network: MemoryNetwork, nursery: trio.Nursery) -> None:
        self.network, self.nursery = network, nursery
        self.asked: list[bytes] = []

    async def add(self, address: str) -> MemoryTransport:
        async def handler(question: bytes) -> bytes:
            self.asked.append(question)
            return question

        transport = MemoryTransport(self.network, address)
        await self.nursery.start(transport.serve, handler, handler)
        return transport


@pytest.fixture
def nodes(nursery: trio.Nursery) -> Nodes:
    return Nodes(MemoryNetwork(seed=5), nursery)


async def heard(transport: MemoryTransport) -> list[int]:
    numbers: list[int] = []
    with trio.move_on_after(60):
        while True:
            numbers += [int(payload) for _, payload in await transport.hear()]
    return numbers


async def lossy(seed: int) -> list[int]:
    network = MemoryNetwork(seed=seed, faults=Faults(drop=0.3))
    a, b = MemoryTransport(network, "a"), MemoryTransport(network, "b")
    b.follow("a", "events")
    for number in range(1000):
        a.publish("events", b"%d" % number)
    return await heard(b)


async def test_drops_are_rolled_from_the_seed(autojump_clock: MockClock) -> None:
    once = await lossy(1)
    assert 600 < len(once) < 800
    assert once == sorted(once)
    assert once == await lossy(1)
    assert once != await lossy(2)


async def test_delays_take_the_time_they_take_and_keep_the_order(nodes: Nodes, autojump_clock: MockClock) -> None:
    a, b = await nodes.add("a"), await nodes.add("b")
    nodes.network.faults = Faults(delay_seconds=(1.0, 3.0))
    b.follow("a", "events")
    for number in range(50):
        a.publish("events", b"%d" % number)
    before = trio.current_time()
    first = await b.hear()
    assert 1 <= trio.current_time() - before <= 3
    assert [int(payload) for _, payload in first] + await heard(b) == list(range(50))

    before = trio.current_time()
    assert await b.request("a", b"x", timeout_seconds=10) == b"x"
    assert 2 <= trio.current_time() - before <= 6
    with pytest.raises(trio.TooSlowError):
        await b.request("a", b"x", timeout_seconds=1.5)


async def test_a_partition_is_silence_until_it_heals(nodes: Nodes, autojump_clock: MockClock) -> None:
    a, b, c = await nodes.add("a"), await nodes.add("b"), await nodes.add("c")
    for follower in (b, c):
        follower.follow("a", "gossip")
    nodes.network.partition({"a", "b"}, {"c"})
    a.publish("gossip", b"1")
    assert await heard(b) == [1]
    assert await heard(c) == []
    assert await a.request("b", b"x", timeout_seconds=5) == b"x"
    for one, other in ((a, "c"), (c, "b")):
        with pytest.raises(trio.TooSlowError):
            await one.request(other, b"y", timeout_seconds=5)
    assert nodes.asked == [b"x"]

    nodes.network.heal()
    a.publish("gossip", b"2")
    assert await heard(c) == [2]
    assert await c.request("b", b"z", timeout_seconds=5) == b"z"


async def test_a_cut_goes_one_way(nodes: Nodes, autojump_clock: MockClock) -> None:
    a, b = await nodes.add("a"), await nodes.add("b")
    a.follow("b", "events")
    b.follow("a", "events")
    nodes.network.cut("a", "b")
    a.publish("events", b"1")
    b.publish("events", b"2")
    assert await heard(a) == [2]
    assert await heard(b) == []
    with pytest.raises(trio.TooSlowError):
        await b.request("a", b"heard, but not answered", timeout_seconds=5)
    with pytest.raises(trio.TooSlowError):
        await a.request("b", b"not heard", timeout_seconds=5)
    assert nodes.asked == [b"heard, but not answered"]


async def test_a_lost_answer_is_not_a_lost_request(nodes: Nodes, autojump_clock: MockClock) -> None:
    a = await nodes.add("a")
    await nodes.add("b")
    nodes.network.faults = Faults(lose_request=1.0)
    with pytest.raises(trio.BrokenResourceError):
        await a.request("b", b"1", timeout_seconds=5)
    nodes.network.faults = Faults(lose_answer=1.0)
    with pytest.raises(trio.BrokenResourceError):
        await a.request("b", b"2", timeout_seconds=5)
    assert nodes.asked == [b"2"]


async def test_a_full_inbox_loses_the_oldest(nodes: Nodes, autojump_clock: MockClock) -> None:
    a, b = await nodes.add("a"), await nodes.add("b")
    b.follow("a", "events")
    for number in range(9000):
        a.publish("events", b"%d" % number)
    assert await heard(b) == list(range(9000 - 8192, 9000))


async def test_an_address_is_taken_once() -> None:
    network = MemoryNetwork()
    first = MemoryTransport(network, "a")
    with pytest.raises(ConflictError):
        MemoryTransport(network, "a")
    await first.aclose()
    await MemoryTransport(network, "a").aclose()
