"""The sockets of nng, typed and with its traps closed: the only module that knows pynng. No trio at import.

The traps, all measured: a cancelled `asend` leaks its message, so it is freed here; nng sends a request again by
itself, so that is switched off; a peer may claim any message size, so every socket has a limit; nng calls back in its
own threads; a fork after use aborts, so children are started anew, never forked.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pynng

from exo_cli.engine.core.errors import AuthError, ExoError, UsageError
from exo_cli.engine.net.addresses import CONTROL, DATA, PUBLISHED, join_address, port_taken, split_address
from exo_cli.engine.net.rules import FAILED, NOBODY_SECONDS

_RECONNECT = {"reconnect_time_min": 50, "reconnect_time_max": 2000}
_NO_RESEND = -1
_SEND_MILLISECONDS = 100  # then look whether there is still a connection
_SOON_SECONDS = 0.1  # a node that is there is connected by then
_TAKEN_AT_ONCE = 1024  # so that a flood does not keep other tasks from running

# The names in trio. What is not here broke at the other end, or on the way.
_TRIO_ERRORS = {pynng.Closed: "ClosedResourceError", pynng.Timeout: "TooSlowError"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, buffers in messages (nng counts them so). The oldest message goes when a buffer is full."""

    message_bytes: int = 64 << 20
    published_bytes: int = 16 << 20
    publish_buffer: int = 4096
    events_buffer: int = 8192
    gossip_buffer: int = 1024


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except pynng.NNGException as error:
        raise _as_trio(error) from error


def _as_trio(error: pynng.NNGException) -> Exception:
    import trio  # commands that use the blocking requester do without

    kind: type[Exception] = getattr(trio, _TRIO_ERRORS.get(type(error), "BrokenResourceError"))
    return kind(str(error))


class Exchange:
    """One question and one answer on a socket that has many at once."""

    def __init__(self, context: pynng.Context) -> None:
        """Borrow the context."""
        self._context = context

    async def send(self, payload: bytes) -> None:
        """Hand over to the connection; waits while that is busy. Safe to cancel."""
        message = pynng.Message(payload)
        with _translated():
            try:
                await self._context.asend_msg(message)
            except BaseException:
                # pynng takes the message for sent, but nng owns it only once sending succeeded: let it be freed.
                message._mem_freed = False
                raise

    async def receive(self) -> bytes:
        """Wait for a message. Cancelling loses none."""
        with _translated():
            message: bytes = await self._context.arecv()
        return message


class Exchanges:
    """A REP socket that listens, or a REQ socket that dials one node (one that dials two would share them out)."""

    def __init__(self, opened: pynng.Socket) -> None:
        """Take over an open socket."""
        self._socket = opened

    @contextlib.contextmanager
    def exchange(self) -> Iterator[Exchange]:
        """A context that is closed at the end, whatever happens; a late answer to it is dropped by nng."""
        with _translated():
            context = self._socket.new_context()
        try:
            yield Exchange(context)
        finally:
            with contextlib.suppress(pynng.Closed):  # the socket went first and took its contexts along
                context.close()

    def close(self) -> None:
        """Pending exchanges raise ClosedResourceError."""
        self._socket.close()


def replier(host: str, port: int, limits: Limits) -> Exchanges:
    """Answers those who ask at this port."""
    opened = pynng.Rep0(recv_max_size=limits.message_bytes)
    _listen(opened, host, port)
    return Exchanges(opened)


def requester(address: str, which: int, limits: Limits, on_change: Callable[[int, bool], None]) -> Exchanges:
    """Asks one socket of one node. A thread of nng calls `on_change(connection, is_there)`, in order."""
    url = _url(address, which)
    opened = pynng.Req0(recv_max_size=limits.message_bytes, resend_time=_NO_RESEND, **_RECONNECT)
    opened.add_post_pipe_connect_cb(lambda pipe: on_change(pipe.id, True))
    opened.add_post_pipe_remove_cb(lambda pipe: on_change(pipe.id, False))
    with _translated():
        opened.dial(url, block=False)
    return Exchanges(opened)


class Publisher:
    """Sends to whoever follows, and never waits for them."""

    def __init__(self, host: str, port: int, limits: Limits) -> None:
        """Listen."""
        self._socket = pynng.Pub0(send_buffer_size=limits.publish_buffer)
        _listen(self._socket, host, port)

    def send(self, topic: str, payload: bytes) -> None:
        """Leave it in the buffers of the followers."""
        with _translated():
            self._socket.send(b"%b|%b" % (topic.encode(), payload), block=False)

    def close(self) -> None:
        """What still lies in the buffers is lost."""
        self._socket.close()


class Subscriber:
    """One topic of all the nodes that are followed. Each topic has its own queue, so gossip cannot push out events."""

    def __init__(self, topic: str, buffer: int, limits: Limits) -> None:
        """Follow nobody yet."""
        self._topic = topic
        self._dialers: dict[str, pynng.Dialer] = {}
        self._socket = pynng.Sub0(recv_max_size=limits.published_bytes, recv_buffer_size=buffer, **_RECONNECT)
        self._socket.subscribe(f"{topic}|".encode())
        self.descriptor: int = self._socket.recv_fd

    def follow(self, address: str) -> None:
        """Connect, and connect again whenever it is lost."""
        if address not in self._dialers:
            with _translated():
                self._dialers[address] = self._socket.dial(_url(address, PUBLISHED), block=False)

    def unfollow(self, address: str) -> None:
        """Hang up."""
        dialer = self._dialers.pop(address, None)
        if dialer is not None:
            dialer.close()

    def take(self) -> list[tuple[str, bytes]]:
        """All that is ready, up to a bound."""
        taken: list[tuple[str, bytes]] = []
        with _translated(), contextlib.suppress(pynng.TryAgain):
            while len(taken) < _TAKEN_AT_ONCE:
                taken.append(self._heard(self._socket.recv(block=False)))
        return taken

    async def take_one(self) -> tuple[str, bytes]:
        """Wait for one. Cancelling loses none."""
        with _translated():
            return self._heard(await self._socket.arecv())

    def _heard(self, message: bytes) -> tuple[str, bytes]:
        return self._topic, message[len(self._topic) + 1 :]

    def close(self) -> None:
        """Hang up on all."""
        self._socket.close()


class BlockingRequester:
    """Asks one node from a program without an event loop, such as a command. One thread at a time."""

    def __init__(self, address: str, limits: Limits | None = None) -> None:
        """Connect at the first request. Raises ValueError for what is no address."""
        self.address = address
        self._host, self._port = split_address(address)
        self._limits = limits or Limits()
        self._sockets: dict[int, pynng.Socket] = {}

    def request(self, payload: bytes, timeout_seconds: float, data: bool = False) -> bytes:
        """Ask once and wait for the answer.

        Raises:
            ConnectionError: nobody there, or it did not answer.
            TimeoutError: no answer in time.
            OSError: the name is unknown, or the network is down.
        """
        deadline = time.monotonic() + timeout_seconds
        try:
            asking = self._sent(payload, DATA if data else CONTROL, deadline)
            asking.recv_timeout = _milliseconds_until(deadline)
            said: bytes = asking.recv_msg().bytes  # recv() cannot take an empty message
        except pynng.Timeout as error:
            raise TimeoutError(f"no answer from {self.address} within {timeout_seconds:g} s") from error
        except pynng.NNGException as error:
            raise ConnectionError(f"lost the connection to {self.address}: {error}") from error
        if said == FAILED:
            raise ConnectionError(f"{self.address} could not answer")
        return said

    def _sent(self, payload: bytes, which: int, deadline: float) -> pynng.Socket:
        while True:
            asking = self._connected(which, deadline)
            asking.send_timeout = min(_SEND_MILLISECONDS, _milliseconds_until(deadline))
            try:
                asking.send(payload)
            except pynng.Timeout:  # nobody has seen it: the other side is busy, or gone since we looked
                if time.monotonic() >= deadline:
                    raise
            else:
                return asking

    def _connected(self, which: int, deadline: float) -> pynng.Socket:
        asking = self._sockets.pop(which, None)
        if asking is None or not asking.pipes:
            if asking is not None:
                asking.close()
            asking = self._dialled(which, deadline)
        self._sockets[which] = asking
        return asking

    def _dialled(self, which: int, deadline: float) -> pynng.Socket:
        patience = max(0.001, min(NOBODY_SECONDS, deadline - time.monotonic()))
        arrived = threading.Event()
        asking = pynng.Req0(recv_max_size=self._limits.message_bytes, resend_time=_NO_RESEND, **_RECONNECT)
        asking.add_post_pipe_connect_cb(lambda _pipe: arrived.set())
        try:
            asking.dial(_url(self.address, which), block=False)
            if not arrived.wait(min(_SOON_SECONDS, patience)):
                # Nng tries on in silence; the system says in its own words why nobody can be reached. Not earlier:
                # nng's listener makes everybody wait for 100 ms after a caller that hangs up without a word.
                socket.create_connection((self._host, self._port + which), timeout=patience).close()
                if not arrived.wait(patience):
                    raise ConnectionError(f"what listens at {self.address} is not a node")
        except BaseException:
            asking.close()
            raise
        return asking

    def close(self) -> None:
        """Hang up."""
        for asking in self._sockets.values():
            asking.close()
        self._sockets.clear()


def _milliseconds_until(deadline: float) -> int:
    return max(1, int((deadline - time.monotonic()) * 1000))


def _url(address: str, which: int) -> str:
    host, port = split_address(address)
    return f"tcp://{join_address(host, port + which)}"


def _listen(opened: pynng.Socket, host: str, port: int) -> None:
    try:
        opened.listen(f"tcp://{join_address(host, port)}")
    except pynng.NNGException as error:
        opened.close()
        raise _listen_error(error, host, port) from error


def _listen_error(error: pynng.NNGException, host: str, port: int) -> ExoError:
    where = join_address(host, port)
    if isinstance(error, pynng.AddressInUse):
        return port_taken(host, port)
    if isinstance(error, pynng.PermissionDenied):
        return AuthError(f"this user may not listen on {where}", "exo node start")
    return UsageError(f"cannot listen on {where}: {error}", "exo node start")
