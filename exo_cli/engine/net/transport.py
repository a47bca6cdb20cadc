"""`ports.Transport` over the sockets of nng: what a node of a cluster talks with.

Three sockets listen for each node: requests at PORT, published topics at PORT+1, long requests (data) at PORT+2.
What is published may be lost without a word, in three places; the protocol above counts and asks again.
"""

import contextlib
import itertools
import logging

import trio

from exo_cli.engine.core.errors import UsageError
from exo_cli.engine.net.addresses import BLOCK, CONTROL, DATA, PUBLISHED, is_loopback, join_address
from exo_cli.engine.net.hearing import Ear, WaitReadable
from exo_cli.engine.net.nng import Exchange, Exchanges, Limits, Publisher, Subscriber, replier, requester
from exo_cli.engine.net.rules import CONTROL_WORKERS, DATA_WORKERS, FAILED, NOBODY_SECONDS, answer
from exo_cli.engine.ports import Handler, Heard

_log = logging.getLogger(__name__)

_SELF_TEST_SECONDS = 1.0
_ANSWER_SECONDS = 30.0  # an asker that stops reading holds a worker no longer than this


class _Peer:
    """The requests to one socket of another node."""

    def __init__(self, address: str, which: int, limits: Limits) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._connections: set[int] = set()
        self._waiting = trio.lowlevel.ParkingLot()
        self._sending: set[trio.CancelScope] = set()
        self._asked = 0
        self._closed = False
        self._exchanges = requester(address, which, limits, self._on_change_in_thread)

    @property
    def idle(self) -> bool:
        """Nobody asks and nobody is there: a new one dials at once, this one only after its pause."""
        return not self._asked and not self._connections

    def _on_change_in_thread(self, connection: int, is_there: bool) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._on_change, connection, is_there)

    def _on_change(self, connection: int, is_there: bool) -> None:
        if is_there:
            self._connections.add(connection)
            self._waiting.unpark_all()
        else:
            self._connections.discard(connection)
            for scope in self._sending:
                scope.cancel()

    async def ask(self, payload: bytes, timeout_seconds: float) -> bytes:
        """One exchange within the deadline, once there is a connection."""
        deadline = trio.current_time() + timeout_seconds
        self._asked += 1
        try:
            while True:
                await self._wait_connected(min(deadline, trio.current_time() + NOBODY_SECONDS))
                with trio.fail_at(deadline), self._exchanges.exchange() as exchange:
                    if await self._sent(exchange, payload):
                        return await exchange.receive()
        except trio.BrokenResourceError:
            self._check_open()  # closing a socket resets its connections first
            raise
        finally:
            self._asked -= 1

    async def _sent(self, exchange: Exchange, payload: bytes) -> bool:
        """False when the connection was lost before nng took the message: then nobody has seen it."""
        with trio.CancelScope() as scope:
            self._sending.add(scope)
            try:
                await exchange.send(payload)
            finally:
                self._sending.discard(scope)
        return not scope.cancelled_caught

    async def _wait_connected(self, deadline: float) -> None:
        """Without a connection, sending would wait inside nng, where "nobody there" cannot be told from "busy"."""
        with trio.move_on_at(deadline):
            while not self._connections and not self._closed:
                await self._waiting.park()
        self._check_open()
        if not self._connections:
            raise trio.BrokenResourceError("nobody is there")

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this transport was closed")

    def close(self) -> None:
        self._closed = True
        self._waiting.unpark_all()
        self._exchanges.close()


class NngTransport:
    """Make one with `listen`. One task may `hear`; any number may `request`."""

    def __init__(self, host: str, port: int, limits: Limits, wait_readable: WaitReadable) -> None:
        """Take the three ports, or none."""
        self.address = join_address(host, port)
        self.note: str | None = None
        self._limits = limits
        self._closed = False
        self._peers: dict[tuple[str, int], _Peer] = {}
        with contextlib.ExitStack() as parts:
            self._control = parts.enter_context(contextlib.closing(replier(host, port + CONTROL, limits)))
            self._publisher = parts.enter_context(contextlib.closing(Publisher(host, port + PUBLISHED, limits)))
            self._data = parts.enter_context(contextlib.closing(replier(host, port + DATA, limits)))
            self._subscribers = {
                topic: parts.enter_context(contextlib.closing(Subscriber(topic, buffer, limits)))
                for topic, buffer in (("events", limits.events_buffer), ("gossip", limits.gossip_buffer))
            }
            self._ear = parts.enter_context(contextlib.closing(Ear(tuple(self._subscribers.values()), wait_readable)))
            self._parts = parts.pop_all()  # closes in the opposite order: the ear before the descriptors it waits for

    @classmethod
    async def listen(
        cls,
        host: str,
        port: int,
        *,
        limits: Limits | None = None,
        wait_readable: WaitReadable = trio.lowlevel.wait_readable,
    ) -> "NngTransport":
        """Take PORT, PORT+1 and PORT+2, and try once whether published messages arrive; `note` says if not.

        Raises:
            UsageError: not an address of this machine, or reachable from others (which needs a secret).
            ConflictError: a port is in use; the message names the holder where the system tells.
        """
        transport = cls(await _loopback(host, port), port, limits or Limits(), wait_readable)
        with contextlib.ExitStack() as undo:
            undo.callback(transport._close)
            if not await transport._hears_itself(wait_readable):
                transport.note = "waiting for descriptors does not work here: messages are received one by one"
                transport._ear.hear_one_by_one()
            undo.pop_all()
        return transport

    async def _hears_itself(self, wait_readable: WaitReadable) -> bool:
        """Whether waiting for a descriptor, which is unproven on some systems, ends when something is published."""
        subscriber = Subscriber("self-test", 16, self._limits)
        ear = Ear((subscriber,), wait_readable)
        with contextlib.closing(subscriber), contextlib.closing(ear):
            subscriber.follow(self.address)
            async with trio.open_nursery() as nursery:
                # Nothing is published before the wait begins: what is ready is taken without waiting.
                nursery.start_soon(self._publish_self_test)
                with trio.move_on_after(_SELF_TEST_SECONDS), contextlib.suppress(OSError):
                    await ear.hear()
                    nursery.cancel_scope.cancel()
                    return True
                nursery.cancel_scope.cancel()
        return False

    async def _publish_self_test(self) -> None:
        while True:
            await trio.sleep(0.005)
            self._publisher.send("self-test", b"")  # lost for as long as the follower is not there yet

    async def serve(
        self,
        handler: Handler,
        data_handler: Handler,
        *,
        task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer requests until cancelled; see the port."""
        workers = itertools.chain(
            itertools.repeat((self._control, handler), CONTROL_WORKERS),
            itertools.repeat((self._data, data_handler), DATA_WORKERS),
        )
        async with trio.open_nursery() as nursery:
            for exchanges, handle in workers:
                nursery.start_soon(self._work, exchanges, handle, nursery.cancel_scope)
            task_status.started()
        self._check_open()

    async def _work(self, exchanges: Exchanges, handler: Handler, all_workers: trio.CancelScope) -> None:
        while not self._closed:
            try:
                with exchanges.exchange() as exchange:
                    said = await answer(handler, await exchange.receive())
                    with trio.move_on_after(_ANSWER_SECONDS):
                        await exchange.send(self._sendable(said))
            except trio.BrokenResourceError as error:
                _log.warning("an answer was lost: %s", error)
                await trio.sleep(0.1)  # whatever it is, it must not keep a core busy
            except trio.ClosedResourceError:
                break
        all_workers.cancel()

    def _sendable(self, said: bytes) -> bytes:
        if len(said) <= self._limits.message_bytes:
            return said
        _log.error("an answer of %d bytes is over the limit and was not sent", len(said))
        return FAILED

    async def request(self, address: str, payload: bytes, *, timeout_seconds: float, data: bool = False) -> bytes:
        """Ask once; see the port."""
        if len(payload) > self._limits.message_bytes:
            raise ValueError(f"a request of {len(payload)} bytes is over the limit of {self._limits.message_bytes}")
        key = (address, DATA if data else CONTROL)
        try:
            said = await self._peer(key).ask(payload, timeout_seconds)
        finally:
            self._hang_up_if_idle(key)
        if said == FAILED:
            raise trio.BrokenResourceError(f"{address} could not answer")
        return said

    def _peer(self, key: tuple[str, int]) -> _Peer:
        self._check_open()
        self._hang_up_if_idle(key)
        if key not in self._peers:
            try:
                self._peers[key] = _Peer(*key, self._limits)
            except ValueError as error:  # it came from another machine, so it is not our bug
                raise trio.BrokenResourceError(str(error)) from error
        return self._peers[key]

    def _hang_up_if_idle(self, key: tuple[str, int]) -> None:
        peer = self._peers.get(key)
        if peer is not None and peer.idle:
            self._peers.pop(key).close()

    def publish(self, topic: str, payload: bytes) -> None:
        """Send to the followers; see the port."""
        assert topic in self._subscribers, f"no topic {topic}"
        if len(payload) >= self._limits.published_bytes - len(topic):
            # A follower would drop the connection, and with it what was queued behind this.
            _log.error("%d bytes on topic %s are over the limit and were not published", len(payload), topic)
            return
        self._publisher.send(topic, payload)

    def follow(self, address: str, topic: str) -> None:
        """Begin to hear; see the port."""
        self._check_open()
        try:
            self._subscribers[topic].follow(address)
        except (ValueError, trio.BrokenResourceError) as error:  # it came from another machine
            _log.warning("cannot follow %r: %s", address, error)

    def unfollow(self, address: str, topic: str) -> None:
        """Stop hearing; see the port."""
        self._check_open()
        self._subscribers[topic].unfollow(address)

    async def hear(self) -> list[Heard]:
        """All that is ready, once something is; see the port."""
        return await self._ear.hear()

    async def aclose(self) -> None:
        """Let go of everything at once; see the port."""
        self._close()
        await trio.lowlevel.checkpoint()

    def _close(self) -> None:
        self._closed = True
        self._parts.close()
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this transport was closed")


async def _loopback(host: str, port: int) -> str:
    """The IP address to bind. Without a secret, whoever reaches a port can use the node."""
    if not 0 < port <= 65536 - BLOCK:
        raise UsageError(f"not a port for three in a row: {port}", "exo node start")
    try:
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}: {error.strerror or error}", "exo node start") from error
    literal = str(found[0][4][0])
    if not is_loopback(literal):
        raise UsageError(
            f"without a secret a node listens on loopback only, and {host} can be reached from other machines",
            f"exo node start --listen 127.0.0.1:{port}",
        )
    return literal
