"""Downloads: bringing the files of a model to this node, and saying how far it is, at most once a second.

Whatever goes wrong in one ends that download, never the node.
"""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from exo_cli.engine.core.effects import DownloadChanged, Input
from exo_cli.engine.core.errors import ExoError
from exo_cli.engine.core.events import DownloadKind, DownloadProgress
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.ports import Store

PROGRESS_SECONDS = 1.0
_LOG = logging.getLogger(__name__)


class Downloads:
    """The files of models on this node."""

    def __init__(self, store: Store, node_id: str, feed: Callable[[Input], Awaitable[None]]) -> None:
        """What happens comes back through `feed`."""
        self._store, self._node_id, self._feed = store, node_id, feed

    async def find(self, instance: Instance) -> Path | None:
        """Where the complete files of an instance's model lie (of a scripted one: its script)."""
        if instance.engine.startswith("scripted:"):
            return Path(instance.engine.removeprefix("scripted:"))
        return await trio.to_thread.run_sync(self._store.find, instance.model_card)

    async def bring(self, instance: Instance) -> None:
        """Have the files here, or say why not."""
        told = Teller(self._node_id, instance.model_card.model_id)
        try:
            if await self.find(instance) is None:
                await self._fetch(instance, told)
            await self._feed(DownloadChanged(told.completed()))
        except ExoError as error:
            permanent = error.details.get("permanent") is True
            await self._feed(DownloadChanged(told.failed(error.message, permanent=permanent)))
        except OSError as error:
            await self._feed(DownloadChanged(told.failed(str(error), permanent=False)))
        except Exception as error:
            _LOG.exception("the download of %a failed in a way that nobody foresaw", instance.model_card.model_id)
            what = f"{type(error).__name__}: {error}"
            await self._feed(DownloadChanged(told.failed(what, permanent=False)))

    async def _fetch(self, instance: Instance, told: "Teller") -> None:
        """Fetch, and say how far it is at most once a second."""
        fault: Exception | None = None
        async with trio.open_nursery() as nursery:

            async def tell() -> None:
                while True:
                    if (progress := told.news()) is not None:
                        await self._feed(DownloadChanged(progress))
                    await trio.sleep(PROGRESS_SECONDS)

            nursery.start_soon(tell)
            try:
                await self._store.fetch(instance.model_card, told.moved)
            except Exception as error:
                # Raised below: what leaves a nursery is a group, which nobody above looks into.
                fault = error
            nursery.cancel_scope.cancel()
        if fault is not None:
            raise fault


class Teller:
    """The progress of one download, as it is reported."""

    def __init__(self, node_id: str, model_id: str) -> None:
        """Nothing is known yet."""
        self._node_id, self._model_id = node_id, model_id
        self._downloaded, self._total = 0, 0
        self._told = (-1, -1)

    def moved(self, downloaded_bytes: int, total_bytes: int) -> None:
        """The store says how far it is. May be called from a thread."""
        self._downloaded, self._total = max(self._downloaded, downloaded_bytes), total_bytes

    def news(self) -> DownloadProgress | None:
        """The progress, if it changed since it was told."""
        now = (self._downloaded, self._total)
        if now == self._told:
            return None
        self._told = now
        return self._progress(DownloadKind.ONGOING)

    def completed(self) -> DownloadProgress:
        """All files are here."""
        self._downloaded = self._total
        return self._progress(DownloadKind.COMPLETED)

    def failed(self, error: str, *, permanent: bool) -> DownloadProgress:
        """It did not work."""
        return self._progress(DownloadKind.FAILED).model_copy(
            update={"error_message": error[:500], "permanent": permanent}
        )

    def _progress(self, kind: DownloadKind) -> DownloadProgress:
        return DownloadProgress(
            node_id=self._node_id,
            model_id=self._model_id,
            kind=kind,
            downloaded_bytes=self._downloaded,
            total_bytes=self._total,
        )
