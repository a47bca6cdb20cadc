"""The relay: control methods for a command line on another machine, over the sockets between nodes.

A plain method is answered at once; one that tells events becomes a stream, whose frames are kept until they are taken
with `Next`. A stream that nobody asks for any more is cancelled.
"""

from collections import deque
from dataclasses import dataclass, field

import trio

from exo_cli.engine.control import Method, Params, answer
from exo_cli.engine.core.wire import Control, ControlReply, Message, Refusal
from exo_cli.engine.fresh import fresh_id
from exo_cli.engine.surface import TELLING

LEFT_SECONDS = 15.0
FRAMES_MAX = 1024

Frame = dict[str, object]


@dataclass(slots=True)
class _Open:
    scope: trio.CancelScope
    frames: deque[Frame] = field(default_factory=deque[Frame])
    first: int = 0
    is_over: bool = False
    asked_at: float = field(default_factory=trio.current_time)
    news: trio.Event = field(default_factory=trio.Event)
    room: trio.Event = field(default_factory=trio.Event)

    def wake(self) -> None:
        self.news.set()
        self.news = trio.Event()


class Relay:
    """See the module."""

    def __init__(self, nursery: trio.Nursery, methods: dict[str, Method]) -> None:
        """Streams run in the nursery."""
        self._nursery, self._methods = nursery, methods
        self._open: dict[str, _Open] = {}

    async def answer(self, control: Control) -> Message:
        """Answer a request, or open a stream for it."""
        if control.method == "cancel":
            if (opened := self._open.get(str(control.params.get("stream_id")))) is not None:
                opened.scope.cancel()
            return ControlReply(result={})
        method = self._methods.get(control.method)
        if method is None:
            return Refusal(code="usage", reason=f"this node does not know {control.method!a}", exit_code=2)
        if control.method not in TELLING:
            last = await answer(method, control.params, _tell_nobody)
            return ControlReply(result=_plain(last["result"])) if "result" in last else _refusal(_plain(last["error"]))
        stream_id = fresh_id("s")
        opened = self._open[stream_id] = _Open(trio.CancelScope())
        self._nursery.start_soon(self._run, stream_id, opened, method, control.params)
        return ControlReply(stream_id=stream_id)

    async def _run(self, stream_id: str, opened: _Open, method: Method, params: Params) -> None:
        async def tell(event: Frame) -> None:
            while len(opened.frames) >= FRAMES_MAX:
                opened.room = trio.Event()
                await opened.room.wait()
            opened.frames.append({"event": event})
            opened.wake()

        try:
            with opened.scope:
                opened.frames.append(await answer(method, params, tell))
        finally:
            opened.is_over = True
            opened.wake()
            if opened.scope.cancelled_caught:
                self._open.pop(stream_id, None)

    def knows(self, stream_id: str) -> bool:
        """Whether the stream is kept here."""
        return stream_id in self._open

    async def take(self, stream_id: str, after: int, wait_seconds: float) -> tuple[Frame, ...]:
        """Frames that follow number `after`; waits for news. Everything up to it is let go of."""
        opened = self._open[stream_id]
        opened.asked_at = trio.current_time()
        while opened.frames and opened.first <= after:
            opened.frames.popleft()
            opened.first += 1
        opened.room.set()
        if not opened.frames and not opened.is_over:
            with trio.move_on_after(wait_seconds):
                await opened.news.wait()
        return tuple(opened.frames)

    def drop_left(self) -> None:
        """Cancel streams that nobody has asked for in a while, and forget those that are over."""
        for stream_id, opened in list(self._open.items()):
            if trio.current_time() - opened.asked_at > LEFT_SECONDS:
                opened.scope.cancel()
                if opened.is_over:
                    del self._open[stream_id]


async def _tell_nobody(_event: Frame) -> None:
    await trio.lowlevel.checkpoint()


def _plain(value: object) -> Frame:
    assert isinstance(value, dict), "results and errors are objects"
    return value


def _refusal(error: Frame) -> Refusal:
    hints = error.get("hints")
    hint = str(hints[0]) if isinstance(hints, list) and hints else None
    number = error.get("exit")
    return Refusal(
        code=str(error.get("code"))[:64],
        reason=str(error.get("message"))[:2000],
        hint=hint,
        exit_code=number if isinstance(number, int) else 1,
        details=_plain(error.get("details") or {}),
    )
