"""The way to a node at HOST:PORT: the route between nodes, asked from a program without an event loop.

A question is a `Control` message; its answer is the result, or a stream whose frames are fetched with `Next` over the
data socket. Imports pynng and pydantic, so it is itself imported only when an endpoint asks for it.
"""

import os
import time
from contextlib import suppress
from typing import cast

from exo_cli import __version__
from exo_cli.engine.client.endpoint import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    CONTROL,
    SILENCE_SECONDS,
    Answering,
    Endpoint,
    Message,
    error_of,
    unavailable,
)
from exo_cli.engine.core import wire
from exo_cli.engine.core.errors import ExoError, UnavailableError, UsageError, error_for
from exo_cli.engine.net.addresses import BLOCK, join_address, split_address
from exo_cli.engine.net.nng import BlockingRequester

NEXT_SECONDS = 2.0
_WHO = wire.Control(method="node")


class RemoteLink:
    """Questions and streams over two nng sockets."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Ask the node who it is, in place of a greeting."""
        self._endpoint = endpoint
        try:
            self._requester = BlockingRequester(endpoint.address)
        except ValueError as error:
            raise UsageError(f"{error} (from {endpoint.source})", "exo node list") from None
        try:
            reply = self._request(_WHO, CONNECT_SECONDS)
        except ExoError as error:
            self.close()
            # Something is there that does not speak as a node does: it may be another socket of one.
            is_there = not isinstance(error, UnavailableError) or type(error.__context__) is ConnectionError
            if is_there and (address := _node_of(self._requester.address)):
                hint = f"exo node show --endpoint {address}"
                raise UnavailableError(f"the node answers at {address}, not at {endpoint}", hint) from None
            raise
        if not isinstance(reply, wire.ControlReply):
            raise unavailable(endpoint, "something that is not an exo node answers", "foreign")
        item = cast("Message", (reply.result or {}).get("item") or {})
        known = {key: item.get(key) for key in ("node_id", "name", "version", "pid")}
        self.hello: Message = {**known, "control": CONTROL, "solo": False}

    def ask(self, method: str, params: Message, deadline_seconds: float | None) -> Answering:
        """Ask over the control socket, follow over the data socket."""
        end = None if deadline_seconds is None else time.monotonic() + deadline_seconds
        reply = self._request(wire.Control(method=method, params=params), deadline_seconds or ANSWER_SECONDS)
        if not isinstance(reply, wire.ControlReply):
            raise unavailable(self._endpoint, "something that is not an exo node answers", "foreign")
        if reply.stream_id is None:
            return reply.result or {}
        return (yield from self._follow(reply.stream_id, end))

    def close(self) -> None:
        """Close the sockets."""
        self._requester.close()

    def _follow(self, stream_id: str, end: float | None) -> Answering:
        received, over = 0, False
        try:
            while True:
                if end is not None and time.monotonic() > end:
                    raise unavailable(self._endpoint, "the node does not answer", "hung")
                asked = wire.Next(after={stream_id: received - 1}, wait_seconds=NEXT_SECONDS)
                reply = self._request(asked, NEXT_SECONDS + SILENCE_SECONDS, data=True)
                if not isinstance(reply, wire.Frames) or stream_id in reply.unknown:
                    raise unavailable(self._endpoint, "the node lost the stream", "lost")
                for frame in reply.control.get(stream_id, ()):
                    received += 1
                    if "event" in frame:
                        yield cast("Message", frame["event"])
                        continue
                    over = True
                    if "error" in frame:
                        raise error_of(cast("Message", frame["error"]))
                    return cast("Message", frame.get("result") or {})
        finally:
            if not over:
                with suppress(ExoError):
                    self._request(wire.Control(method="cancel", params={"stream_id": stream_id}), CONNECT_SECONDS)

    def _request(self, body: wire.Message, timeout_seconds: float, *, data: bool = False) -> wire.Message:
        try:
            payload = self._requester.request(_packed(body), max(0.001, timeout_seconds), data)
            answer = wire.unpack(payload).body
        except TimeoutError:
            raise unavailable(self._endpoint, "the node does not answer", "hung") from None
        except OSError as error:
            raise self._absent(error) from None
        except wire.ForeignMessageError as error:
            raise unavailable(self._endpoint, f"something else answers ({error})", "foreign") from None
        if isinstance(answer, wire.Refusal):
            raise error_for(answer)
        return answer

    def _absent(self, error: OSError) -> UnavailableError:
        return unavailable(self._endpoint, f"no node can be reached ({error})", "absent")


def _packed(body: wire.Message) -> bytes:
    return wire.pack(wire.Envelope(source=f"command-{os.getpid()}", version=__version__, body=body))


def _node_of(address: str) -> str | None:
    """The address of the node to which a port belongs that is not the first of its three."""
    host, port = split_address(address)
    for first in range(max(1, port - BLOCK + 1), port):
        requester = BlockingRequester(join_address(host, first))
        try:
            if isinstance(wire.unpack(requester.request(_packed(_WHO), CONNECT_SECONDS)).body, wire.ControlReply):
                return requester.address
        except (OSError, wire.ForeignMessageError):
            continue
        finally:
            requester.close()
    return None
