"""Hearing: one reader over several subscriber sockets, woken by their descriptors. It knows neither nng nor topics.

Reading until nothing is ready and then waiting for the descriptor takes whole batches and costs a fraction of an
asynchronous receive for each message. Where waiting on the descriptor does not work, `hear_one_by_one` is the way out.
Invariant: what was taken from a socket lies in `_heard` until it is returned, so cancelling loses nothing.
"""

import selectors
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from exo_cli.engine.ports import Heard

WaitReadable = Callable[[int], Awaitable[None]]


class Source(Protocol):
    """A subscriber socket: a descriptor that is readable when something is ready, and two ways to take it."""

    descriptor: int

    def take(self) -> list[Heard]:
        """What is ready. Raises ClosedResourceError."""
        ...

    async def take_one(self) -> Heard:
        """Wait for one message. Raises ClosedResourceError; loses nothing when cancelled."""
        ...


class Ear:
    """Hears all sources; one task at a time."""

    def __init__(self, sources: Sequence[Source], wait_readable: WaitReadable) -> None:
        """Put the descriptors into one selector, which is a descriptor itself: one wait instead of one a source."""
        self._sources = sources
        self._heard: list[Heard] = []
        self._wait_readable = wait_readable
        self._selector = selectors.DefaultSelector()
        for source in sources:
            self._selector.register(source.descriptor, selectors.EVENT_READ)
        self._descriptor = _descriptor_of(self._selector)

    def hear_one_by_one(self) -> None:
        """Do without the descriptors from now on."""
        self._descriptor = None

    async def hear(self) -> list[Heard]:
        """Wait until there is something, and take all of it."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            for source in self._sources:
                self._heard += source.take()
            if self._heard:
                break
            await self._wait()
        # A plain checkpoint here could be cancelled, and what was taken would be lost to the caller for now.
        await trio.lowlevel.cancel_shielded_checkpoint()
        heard, self._heard = self._heard, []
        return heard

    async def _wait(self) -> None:
        if self._descriptor is not None:
            await self._wait_readable(self._descriptor)
            self._selector.select(0)  # a kqueue in a kqueue stays readable until it is asked
            return
        async with trio.open_nursery() as nursery:
            for source in self._sources:
                nursery.start_soon(self._take_one, source, nursery.cancel_scope)

    async def _take_one(self, source: Source, others: trio.CancelScope) -> None:
        try:
            self._heard.append(await source.take_one())
        except trio.ClosedResourceError:
            pass  # the next take() says so, outside of an exception group
        finally:
            others.cancel()

    def close(self) -> None:
        """Wake who waits (it sees ClosedResourceError). Call it before the sources close: they own the descriptors."""
        if self._descriptor is not None:
            trio.lowlevel.notify_closing(self._descriptor)
            self._descriptor = None
        self._selector.close()


def _descriptor_of(selector: selectors.BaseSelector) -> int | None:
    """Descriptor of an epoll or kqueue; the other selectors have none."""
    number = getattr(selector, "fileno", None)
    return None if number is None else int(number())
