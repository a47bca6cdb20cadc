"""Streams: what a task said, kept until whoever asked for it has taken it. One terminal frame each, whatever happens.

Frames are numbered within the task. Taking what follows n lets go of everything up to n, which is the back-pressure
and, between nodes, the repair of losses. What nobody takes is merged, so that memory is bounded by the text.
"""

from collections import deque
from dataclasses import dataclass, field

import trio

from exo_cli.engine.core.tasks import Finish, FinishReason, Frame, TokenChunk, Usage

LIMIT_CHARACTERS = 8 << 20
MERGE_BEYOND = 64
# A stream that another node no longer asks for has no reader any more.
LEFT_SECONDS = 15.0
# A finished stream that nobody comes back for is forgotten after this long.
KEPT_SECONDS = 60.0


@dataclass(slots=True)
class Stream:
    """The frames of one task, on the node that produces them.

    `asked_at`: when another node last asked for more (None: its reader is on this node).
    """

    task_id: str
    instance_id: str
    finished_at: float | None = None
    asked_at: float | None = None
    _frames: deque[Frame] = field(default_factory=deque[Frame])
    _sequence: int = 0
    _given: int = -1
    _characters: int = 0
    _news: trio.Event = field(default_factory=trio.Event)

    @property
    def is_open(self) -> bool:
        """Whether its terminal frame has not come yet."""
        return self.finished_at is None

    @property
    def is_overfull(self) -> bool:
        """Whether its reader is so far behind that the task should end."""
        return self._characters > LIMIT_CHARACTERS

    def put_text(self, text: str) -> None:
        """Add what the task said."""
        if not self.is_open or not text:
            return
        self._characters += len(text)
        last = self._frames[-1] if self._frames else None
        if len(self._frames) > MERGE_BEYOND and isinstance(last, TokenChunk) and last.sequence > self._given:
            self._frames[-1] = last.model_copy(update={"text": last.text + text})
        else:
            self._put(TokenChunk(task_id=self.task_id, sequence=self._sequence, text=text))
        self._wake()

    def finish(
        self,
        now: float,
        reason: FinishReason,
        *,
        error: str | None = None,
        code: str | None = None,
        usage: Usage | None = None,
        seed: int | None = None,
    ) -> bool:
        """Add the terminal frame; False when there was one already."""
        if not self.is_open:
            return False
        self.finished_at = now
        self._put(
            Finish(
                task_id=self.task_id,
                sequence=self._sequence,
                reason=reason,
                error=error,
                code=code,
                usage=usage or Usage(),
                seed=seed,
            )
        )
        self._wake()
        return True

    def _put(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._sequence += 1

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def ready(self, after: int) -> tuple[Frame, ...]:
        """The frames that follow `after`, now; everything up to it is let go of."""
        while self._frames and self._frames[0].sequence <= after:
            gone = self._frames.popleft()
            self._characters -= len(gone.text) if isinstance(gone, TokenChunk) else 0
        if self._frames:
            self._given = self._frames[-1].sequence
        return tuple(self._frames)

    async def take(self, after: int) -> tuple[Frame, ...]:
        """Wait for frames that follow `after`."""
        while not (frames := self.ready(after)):
            await self._news.wait()
        return frames


class Streams:
    """The streams of a node, by task."""

    def __init__(self) -> None:
        """None yet."""
        self._streams: dict[str, Stream] = {}

    def open(self, task_id: str, instance_id: str) -> Stream:
        """Begin one. The id must be new."""
        assert task_id not in self._streams, f"task {task_id} has a stream already"
        stream = Stream(task_id, instance_id)
        self._streams[task_id] = stream
        return stream

    def find(self, task_id: str) -> Stream | None:
        """The stream of a task, while it is kept."""
        return self._streams.get(task_id)

    def close(self, task_id: str) -> None:
        """Whoever asked has all of it, or is gone."""
        self._streams.pop(task_id, None)

    @property
    def open_count(self) -> int:
        """How many have not seen their terminal frame."""
        return sum(stream.is_open for stream in self._streams.values())

    def open_ids(self) -> list[str]:
        """The tasks whose streams are open."""
        return [task_id for task_id, stream in self._streams.items() if stream.is_open]

    def left_ids(self, now: float) -> list[str]:
        """Open streams of other nodes that nobody asks for any more."""
        return [
            task_id
            for task_id, stream in self._streams.items()
            if stream.is_open and stream.asked_at is not None and now - stream.asked_at > LEFT_SECONDS
        ]

    def forget_old(self, now: float) -> None:
        """Drop finished streams that nobody came back for."""
        for task_id, stream in list(self._streams.items()):
            if stream.finished_at is not None and now - stream.finished_at > KEPT_SECONDS:
                del self._streams[task_id]
