"""Ports: what the node needs of the outside, as Protocols. Each has one contract suite, run on the real and the fake.

The two meanings of trio hold everywhere: `trio.ClosedResourceError` is "we closed it", `trio.BrokenResourceError` is
"they did" (or the other end is not there). Foreign exceptions are mapped once, inside the adapter.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import trio

    from exo_cli.engine.core.cards import ModelCard
    from exo_cli.engine.core.events import Record
    from exo_cli.engine.core.wire import Closing, Header
    from exo_cli.engine.runner.frames import Assign, Order, Report

Handler = Callable[[bytes], Awaitable[bytes]]
Heard = tuple[str, bytes]


class Transport(Protocol):
    """Messages between nodes: a lossy fan-out and a request that is answered once, fails, or runs into its deadline.

    An address is `host:port` (the PORT of the other node; the transport knows which sockets lie at PORT, +1, +2).
    """

    address: str

    async def serve(self, handler: Handler, data_handler: Handler, *, task_status: "trio.TaskStatus[None]") -> None:
        """Answer requests until cancelled, at least 16 at a time; `data_handler` those of the data socket.

        A handler that raises closes nothing: the asker sees BrokenResourceError.
        """
        ...

    async def request(self, address: str, payload: bytes, *, timeout_seconds: float, data: bool = False) -> bytes:
        """Ask the node at `address` once (no hidden resend) and wait for its answer.

        Raises:
            trio.BrokenResourceError: nobody there, or the connection was lost before the answer.
            trio.TooSlowError: no answer within `timeout_seconds`.
            trio.ClosedResourceError: this transport was closed.
        """
        ...

    def publish(self, topic: str, payload: bytes) -> None:
        """Send to whoever follows this node's `topic` (`events` or `gossip`). Never blocks; may be lost."""
        ...

    def follow(self, address: str, topic: str) -> None:
        """Begin to hear a topic of the node at `address`, for ever (it may come later, go and come back)."""
        ...

    def unfollow(self, address: str, topic: str) -> None:
        """Stop hearing it."""
        ...

    async def hear(self) -> list[Heard]:
        """Wait for published messages: all that are ready, as (topic, payload). Safe to cancel: nothing is lost."""
        ...

    async def aclose(self) -> None:
        """Let go of sockets and ports; pending calls raise ClosedResourceError."""
        ...


class EventLog(Protocol):
    """The event log of one node: records in order, on disk or in memory. One writer."""

    @property
    def last_index(self) -> int:
        """Index of the last record, or the header's base index when there is none (-1 in a new log)."""
        ...

    @property
    def first_index(self) -> int:
        """How far `read` can go back: the index of the oldest record here, or of the first one to come."""
        ...

    def append(self, records: "Sequence[Record]") -> None:
        """Write a batch and make it durable (one fdatasync) before it returns. All of it or nothing.

        Raises:
            OSError: the disk is full or failing; the file is cut back to what it was.
        """
        ...

    def read(self, first_index: int, *, limit_bytes: int = 1 << 20) -> "list[Record]":
        """Records from `first_index` on, at least one if there is one, about `limit_bytes` at most.

        Raises:
            ExoError: NotFoundError when the log begins later, BadDataError for what was damaged since it was opened.
        """
        ...

    @property
    def is_full(self) -> bool:
        """Whether the newest segment is long enough to be closed."""
        ...

    def rotate(self, header: "Header") -> None:
        """Go on in a new segment, which begins with the state at the last record; the oldest ones may go.

        Raises:
            OSError: there is no new one, and the old one goes on.
        """
        ...

    def restart(self, header: "Header") -> None:
        """Begin anew from a snapshot (a joiner, or another history): what was there moves to `abandoned/`."""
        ...

    def close(self, closing: "Closing | None" = None) -> None:
        """Write the closing (what the state hash is) if one is given, and let go of the file and its lock."""
        ...


class RunnerHandle(Protocol):
    """A running runner process, as the node sees it."""

    pid: int

    async def send(self, order: "Order") -> None:
        """Give an order. Raises BrokenResourceError when the process is gone."""
        ...

    async def stop(self) -> None:
        """The ladder: ask (Stop), SIGTERM, SIGKILL, each with a deadline; returns when it is reaped."""
        ...


class RunnerHost(Protocol):
    """Starts runner processes and hears them."""

    async def run(
        self,
        assign: "Assign",
        on_start: "Callable[[RunnerHandle], None]",
        on_report: "Callable[[Report], Awaitable[None]]",
    ) -> None:
        """Start a process and hand on each of its reports in order, until it is reaped.

        The last report is always a StatusReport: RunnerShutdown after an asked-for end, else RunnerFailed with the
        signal or the last lines. Cancelling kills the process and waits for it.
        """
        ...


class Store(Protocol):
    """Model files on this machine."""

    async def resolve(self, name: str) -> "ModelCard":
        """The card of a model name, folder or GGUF file, before any weight is fetched.

        Raises:
            ExoError: NotFoundError, AuthError, UsageError, UnavailableError (offline), each one line and a hint.
        """
        ...

    def find(self, card: "ModelCard") -> Path | None:
        """Where the complete files of a card lie, or None."""
        ...

    async def fetch(self, card: "ModelCard", on_progress: Callable[[int, int], None]) -> Path:
        """Bring the files; `on_progress(downloaded_bytes, total_bytes)` never decreases. Cancelling stops it.

        Raises:
            ExoError: as for resolve; `details["permanent"]` says whether another try can help.
        """
        ...
