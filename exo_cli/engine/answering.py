"""Answering: what comes in over the sockets between nodes, and who says what to it.

Control requests of command lines go to the relay, questions of nodes to the replica, chats to the data plane. What is
not ours (another protocol, another cluster) is refused and counted, and nothing of it is used.
"""

from collections.abc import Awaitable, Callable

from exo_cli.engine.chats import Chats
from exo_cli.engine.core.wire import (
    Control,
    Envelope,
    ForeignMessageError,
    Frames,
    Message,
    Next,
    Refusal,
    pack,
    unpack,
)
from exo_cli.engine.pump import Pump
from exo_cli.engine.relay import Relay


class Answering:
    """The handlers of a node's two request sockets."""

    def __init__(self, pump: Pump, relay: Relay, chats: Chats) -> None:
        """They share the node's parts."""
        self._pump, self._relay, self._chats = pump, relay, chats

    async def rpc(self, payload: bytes) -> bytes:
        """A request on the control socket."""
        return await self._answer(payload, self._answer_control)

    async def data(self, payload: bytes) -> bytes:
        """A request on the data socket."""
        return await self._answer(payload, self._answer_chat)

    async def _answer(self, payload: bytes, answer: Callable[[Envelope], Awaitable[Message]]) -> bytes:
        try:
            said = await answer(unpack(payload))
        except ForeignMessageError as error:
            said = self._refuse(error.reason, str(error)[:2000])
        return pack(self._pump.replica.envelope(said))

    def _refuse(self, reason: str, text: str) -> Refusal:
        self._pump.notes.drop(reason)
        return Refusal(code=reason, reason=text)

    async def _answer_control(self, envelope: Envelope) -> Message:
        if isinstance(envelope.body, Control):
            return await self._relay.answer(envelope.body)
        return await self._pump.answer_node(envelope)

    async def _answer_chat(self, envelope: Envelope) -> Message:
        body, cluster_id = envelope.body, self._pump.replica.state.cluster_id
        if isinstance(body, Next) and len(body.after) == 1 and self._relay.knows(stream_id := next(iter(body.after))):
            frames = await self._relay.take(stream_id, body.after[stream_id], body.wait_seconds)
            return Frames(control={stream_id: frames})
        if isinstance(body, Next) and envelope.cluster == "":
            return Frames(unknown=tuple(body.after))
        if envelope.cluster != cluster_id:
            return self._refuse("other_cluster", f"this node belongs to cluster {cluster_id}")
        return await self._chats.answer(body)
