"""What only nng has: ports and their holders, a failed self-test, loopback only, limits, the blocking requester."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
import trio

from exo_cli.engine.core.errors import ConflictError, UsageError
from exo_cli.engine.net.addresses import FIRST_PORTS, first_free_block, join_address, port_holder, split_address
from exo_cli.engine.net.nng import BlockingRequester, Limits
from exo_cli.engine.net.transport import NngTransport
from exo_cli.engine.node import RING_PORTS

# Test runs side by side begin elsewhere.
_FIRST = 20001 + os.getpid() % 3000 * 3
_STARTS = tuple(range(_FIRST, _FIRST + 1200, 3))


async def echo(question: bytes) -> bytes:
    return question


async def fail(question: bytes) -> bytes:
    raise ValueError(question)


@contextmanager
def listener(port: int = 0) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", port)) as opened:
        yield opened


def is_a_holder(text: str | None) -> bool:
    return text == f"pid {os.getpid()} ({psutil.Process().name()})"


def test_addresses_come_apart_and_together() -> None:
    for address, parts in {
        "127.0.0.1:7101": ("127.0.0.1", 7101),
        "[::1]:7101": ("::1", 7101),
        "my-mac.local:1": ("my-mac.local", 1),
    }.items():
        assert split_address(address) == parts
        assert join_address(*parts) == address


@pytest.mark.parametrize("text", ["", "a", ":1", "a:", "a:0", "a:65534", "a:-1", "a:1x", "a:²", "::1:7101", "[x]:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        split_address(text)


@pytest.mark.parametrize("text", ["a b:1", "a\n:1", "[fe80::1%x y]:1", "a/b:1", "-a:1", "tcp://a:1", "a" * 300 + ":1"])
def test_hostile_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        split_address(text)


def test_the_first_free_block_steps_over_taken_ports() -> None:
    assert FIRST_PORTS[:4] == (7101, 7104, 7107, 7130)
    assert FIRST_PORTS[-1] == 7187
    assert not {first + offset for first in FIRST_PORTS for offset in range(3)} & set(RING_PORTS)
    start = first_free_block(starts=_STARTS)
    with listener(start + 2):
        after = first_free_block(starts=tuple(range(start, start + 300, 3)))
        assert after > start
        with pytest.raises(ConflictError, match="no three ports") as caught:
            first_free_block(starts=(start,))
        assert caught.value.hints
    assert first_free_block("::1", starts=_STARTS) in _STARTS


def test_the_holder_of_a_port_is_named() -> None:
    with listener() as opened:
        assert is_a_holder(port_holder(opened.getsockname()[1]))
    assert port_holder(first_free_block(starts=_STARTS)) is None


@pytest.mark.parametrize("offset", [0, 1, 2])
async def test_a_taken_port_is_an_error_that_names_it_and_nothing_stays_open(offset: int) -> None:
    port = first_free_block(starts=_STARTS)
    with listener(port + offset):
        with pytest.raises(ConflictError) as caught:
            await NngTransport.listen("127.0.0.1", port)
        match = re.fullmatch(rf"port {port + offset} is in use by (pid .*)", caught.value.message)
        assert match
        assert is_a_holder(match[1])
        assert caught.value.hints
    await (await NngTransport.listen("127.0.0.1", port)).aclose()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "8.8.8.8", "no such host", "127.0.0.1:7101"])
async def test_without_a_secret_only_loopback_is_bound(host: str) -> None:
    with pytest.raises(UsageError) as caught:
        await NngTransport.listen(host, 7101)
    assert caught.value.hints


@pytest.mark.parametrize("port", [0, -1, 65534])
async def test_ports_without_room_for_three_are_refused(port: int) -> None:
    with pytest.raises(UsageError):
        await NngTransport.listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["::1", "localhost"])
async def test_other_ways_to_name_this_machine(host: str) -> None:
    port = first_free_block("::1", tuple(p for p in _STARTS if p >= first_free_block(starts=_STARTS)))
    node = await NngTransport.listen(host, port)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.serve, echo, echo)
        for address in {node.address, join_address(host, port)}:
            assert await node.request(address, b"x", timeout_seconds=5) == b"x"
            node.follow(address, "events")
            with trio.fail_after(5):
                while True:
                    node.publish("events", b"x")
                    with trio.move_on_after(0.05):
                        assert set(await node.hear()) == {("events", b"x")}
                        break
            node.unfollow(address, "events")
        nursery.cancel_scope.cancel()
    await node.aclose()


async def hears(publisher: NngTransport, follower: NngTransport) -> list[tuple[str, bytes]]:
    heard: list[tuple[str, bytes]] = []
    with trio.fail_after(10):
        while not heard:
            publisher.publish("events", b"1")
            with trio.move_on_after(0.05):
                heard += await follower.hear()
    return heard


async def sleeps_for_ever(descriptor: int) -> None:
    await trio.sleep_forever()


async def is_not_able(descriptor: int) -> None:
    raise OSError("not a socket")


@pytest.mark.parametrize("wait_readable", [sleeps_for_ever, is_not_able])
async def test_where_descriptors_do_not_work_it_hears_all_the_same(
    wait_readable: Callable[[int], object], nursery: trio.Nursery
) -> None:
    node = await NngTransport.listen("127.0.0.1", first_free_block(starts=_STARTS), wait_readable=wait_readable)
    assert node.note
    node.follow(node.address, "events")
    node.follow(node.address, "gossip")
    assert set(await hears(node, node)) == {("events", b"1")}

    heard: list[int] = []

    async def publish() -> None:
        for number in range(300):
            node.publish(("events", "gossip")[number % 2], str(number).encode() + b"!")
            await trio.sleep(0.0002)

    nursery.start_soon(publish)
    with trio.fail_after(10):
        while len(heard) < 300:
            with trio.move_on_after(0.0005):
                heard += [int(payload[:-1]) for _, payload in await node.hear() if payload.endswith(b"!")]
    assert sorted(heard) == list(range(300))

    async def hear() -> None:
        while True:
            await node.hear()

    async def hear_to_the_end() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await hear()

    with trio.fail_after(5):
        async with trio.open_nursery() as inner:
            inner.start_soon(hear_to_the_end)
            await trio.sleep(0.05)
            await node.aclose()


async def test_the_self_test_passes_here_and_is_quick() -> None:
    before = trio.current_time()
    node = await NngTransport.listen("127.0.0.1", first_free_block(starts=_STARTS))
    assert node.note is None
    assert trio.current_time() - before < 1
    await node.aclose()


async def test_what_is_over_the_limit_is_refused_at_home(caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(message_bytes=1000, published_bytes=1000)
    node = await NngTransport.listen("127.0.0.1", first_free_block(starts=_STARTS), limits=limits)

    async def grow(question: bytes) -> bytes:
        return question * 10

    async with trio.open_nursery() as nursery:
        await nursery.start(node.serve, grow, echo)
        with pytest.raises(ValueError, match="limit"):
            await node.request(node.address, bytes(1001), timeout_seconds=5)
        with pytest.raises(trio.BrokenResourceError):
            await node.request(node.address, bytes(900), timeout_seconds=5)
        assert await node.request(node.address, bytes(900), timeout_seconds=5, data=True) == bytes(900)
        assert await node.request(node.address, b"x", timeout_seconds=5) == b"x" * 10
        nursery.cancel_scope.cancel()
    node.follow(node.address, "events")
    await hears(node, node)
    node.publish("events", bytes(1000))
    node.publish("events", bytes(980))
    with trio.fail_after(5):
        while ("events", bytes(980)) not in await node.hear():
            pass
    assert caplog.text.count("over the limit") == 2
    await node.aclose()


def resident_megabytes() -> float:
    return float(psutil.Process().memory_info().rss) / 1e6


async def frozen_node(port: int, *, task_status: trio.TaskStatus[None]) -> None:
    """Shakes hands as a REP socket does, and reads nothing more."""

    async def shake(stream: trio.SocketStream) -> None:
        await stream.send_all(b"\x00SP\x00\x00\x31\x00\x00")
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_tcp, shake, port)
        task_status.started()


async def test_requests_to_a_frozen_node_end_in_time_and_leak_nothing(nursery: trio.Nursery) -> None:
    port = first_free_block(starts=_STARTS)
    await nursery.start(frozen_node, port)
    node = await NngTransport.listen("127.0.0.1", first_free_block(starts=tuple(p for p in _STARTS if p > port)))
    payload = bytes(2_000_000)

    async def ask(timeout_seconds: float) -> None:
        with pytest.raises(trio.TooSlowError):
            await node.request(f"127.0.0.1:{port}", payload, timeout_seconds=timeout_seconds)

    async with trio.open_nursery() as asking:
        for _ in range(10):
            asking.start_soon(ask, 0.2)
    before = resident_megabytes()
    for _ in range(100):
        await ask(0.005)
    assert resident_megabytes() - before < 60  # of 200 that were sent
    await node.aclose()
    nursery.cancel_scope.cancel()


async def test_children_can_be_started_while_sockets_are_open() -> None:
    node = await NngTransport.listen("127.0.0.1", first_free_block(starts=_STARTS))
    async with trio.open_nursery() as nursery:
        await nursery.start(node.serve, echo, echo)
        done = await trio.run_process([sys.executable, "-c", "print('child')"], capture_stdout=True)
        assert done.stdout == b"child\n"
        assert await node.request(node.address, b"x", timeout_seconds=5) == b"x"
        nursery.cancel_scope.cancel()
    await node.aclose()


class Served:
    """A node that serves in its own thread, as another process would."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._ready = threading.Event()
        self._stop: trio.Event
        self._thread = threading.Thread(target=trio.run, args=(self._run,))

    async def _run(self) -> None:
        host, port = split_address(self.address)
        node = await NngTransport.listen(host, port)
        self._stop, self._token = trio.Event(), trio.lowlevel.current_trio_token()

        async def late_or_upper(question: bytes) -> bytes:
            await trio.sleep(5 if question == b"late" else 0)
            return question.upper()

        async def late_or_fail(question: bytes) -> bytes:
            return await (fail(question) if question == b"bad" else late_or_upper(question))

        async with trio.open_nursery() as nursery:
            await nursery.start(node.serve, late_or_fail, echo)
            self._ready.set()
            await self._stop.wait()
            nursery.cancel_scope.cancel()
        await node.aclose()

    def __enter__(self) -> "Served":
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *exception: object) -> None:
        self._token.run_sync_soon(self._stop.set)
        self._thread.join()


@pytest.fixture
def asker() -> Iterator[BlockingRequester]:
    made = BlockingRequester(f"127.0.0.1:{first_free_block(starts=_STARTS)}")
    yield made
    made.close()


def test_the_blocking_requester_asks_and_survives_a_restart(asker: BlockingRequester) -> None:
    for _ in range(2):
        with Served(asker.address):
            assert asker.request(b"a", 5) == b"A"
            assert asker.request(b"a", 5, data=True) == b"a"
            with pytest.raises(ConnectionError, match="could not answer"):
                asker.request(b"bad", 5)
            before = time.monotonic()
            with pytest.raises(TimeoutError):
                asker.request(b"late", 0.2)
            assert 0.15 < time.monotonic() - before < 2
            assert asker.request(bytes(1_000_000), 5) == bytes(1_000_000)
        with pytest.raises(ConnectionError):
            asker.request(b"a", 5)


def test_the_blocking_requester_knows_at_once_that_nobody_is_there(asker: BlockingRequester) -> None:
    before = time.monotonic()
    with pytest.raises(ConnectionError):
        asker.request(b"a", 30)
    assert time.monotonic() - before < 1
    asker.close()
    asker.close()


def test_the_blocking_requester_tells_a_stranger_from_a_node() -> None:
    with listener() as stranger:
        asker = BlockingRequester(join_address("127.0.0.1", stranger.getsockname()[1]))
        with pytest.raises(ConnectionError, match="not a node"):
            asker.request(b"a", 0.3)
        asker.close()


def test_the_blocking_requester_needs_no_event_loop() -> None:
    program = "import sys, exo_cli.engine.net.nng; sys.exit('trio' in sys.modules or 'psutil' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
