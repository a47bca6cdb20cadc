"""Reads: the committed state of a node, in the shapes that scripts rely on, at once or whenever it changes."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import trio

from exo_cli.engine.control import Params, Tell
from exo_cli.engine.core.errors import UsageError
from exo_cli.engine.core.items import Item, instance_items, instance_status, runner_items
from exo_cli.engine.surface.asked import chosen, text
from exo_cli.engine.surface.of_nodes import link_item, node_items, own_item

if TYPE_CHECKING:
    from collections.abc import Callable

    from exo_cli.engine.node import Node


class Reads:
    """Methods that change nothing."""

    def __init__(self, node: "Node") -> None:
        """Everything is asked of the node and its state."""
        self._node = node

    def _listed(self, items: list[Item]) -> Item:
        return {"revision": self._node.state.index, "items": items}

    def _single(self, item: Item) -> Item:
        return {"revision": self._node.state.index, "item": item}

    async def status(self, _params: Params, _tell: Tell) -> Item:
        state = self._node.state
        return self._single(
            {
                "cluster_id": state.cluster_id,
                "master": state.master,
                "term": state.term,
                "index": state.index,
                "voters": list(state.voters),
                "nodes": len(state.nodes),
                "instances": len(state.instances),
                "open_streams": self._node.open_streams,
                "dropped": dict(self._node.dropped),
                **link_item(self._node),
            }
        )

    async def nodes(self, _params: Params, _tell: Tell) -> Item:
        return self._listed(node_items(self._node))

    async def node_item(self, params: Params, _tell: Tell) -> Item:
        wanted = text(params, "node_id")
        items = node_items(self._node)
        if wanted is None:
            return self._single(own_item(self._node))
        item = chosen(wanted, items, ("node_id", "name"), "node", "exo node list")
        return self._single(own_item(self._node) if item["node_id"] == self._node.node_id else item)

    def _runner_list(self) -> list[Item]:
        own = self._node.node_id
        folder = self._node.runner_log_dir
        return [
            {**item, "log_path": str(folder / f"{item['runner_id']}.log") if item["node_id"] == own else None}
            for item in runner_items(self._node.state)
        ]

    async def runners(self, _params: Params, _tell: Tell) -> Item:
        # A runner is gone from the state when its process is: what never started is part of its instance.
        return self._listed(self._runner_list())

    async def instances(self, _params: Params, _tell: Tell) -> Item:
        return self._listed(instance_items(self._node.state))

    async def watch(self, params: Params, tell: Tell) -> Item:
        sources: dict[str, Callable[[], list[Item]]] = {
            "runners": self._runner_list,
            "nodes": lambda: node_items(self._node),
            "instances": lambda: instance_items(self._node.state),
        }
        source = sources.get(str(params.get("what")))
        if source is None:
            raise UsageError(f"cannot watch {params.get('what')!a}", "exo runners --watch")
        told: list[Item] | None = None
        while True:
            items = source()
            if items != told:
                told = items
                await tell({"type": "changed", "revision": self._node.state.index, "items": items})
            await self._node.wait_changed(1.0)

    async def complete(self, params: Params, _tell: Tell) -> Item:
        state = self._node.state
        lines: dict[str, Callable[[], list[str]]] = {
            "instance": lambda: [
                f"{each.instance_id}\t{each.model_card.model_id} {instance_status(state, each)[0]}"
                for each in state.instances.values()
            ],
            "node": lambda: [f"{node_id}\t{node.facts.name}" for node_id, node in state.nodes.items()],
            "runner": lambda: [
                f"{item['runner_id']}\t{item['model']} {item['status']}" for item in self._runner_list()
            ],
            "model": lambda: sorted({each.model_card.model_id for each in state.instances.values()} | {"smollm2"}),
        }
        return {"lines": lines.get(str(params.get("kind")), list)()[:200]}

    async def runner_logs(self, params: Params, tell: Tell) -> Item:
        path = self._log_of(text(params, "runner_id") or "")
        lines = await trio.to_thread.run_sync(_last_lines, path, int(cast("int", params.get("lines", 50))))
        for line in lines:
            await tell({"type": "line", "text": line})
        offset = path.stat().st_size if path.exists() else 0
        while params.get("follow"):
            await trio.sleep(0.25)
            size = path.stat().st_size if path.exists() else 0
            if size < offset:
                offset = 0  # rotated: what is there now is new
            if size > offset:
                fresh = await trio.to_thread.run_sync(_bytes_from, path, offset)
                offset += len(fresh)
                for line in fresh.decode(errors="replace").splitlines():
                    await tell({"type": "line", "text": line})
        return {}

    def _log_of(self, wanted: str) -> Path:
        folder = self._node.runner_log_dir
        items = self._runner_list()
        kept: list[Item] = [
            {"runner_id": path.stem, "node_id": self._node.node_id} for path in sorted(folder.glob("*.log"))
        ]
        known = {str(item["runner_id"]): item for item in [*kept, *items]}
        item = chosen(wanted, list(known.values()), ("runner_id",), "runner", "exo runners")
        if item["node_id"] != self._node.node_id:
            raise UsageError(f"runner {item['runner_id']} is on node {item['node_id']}: ask there", "exo node list")
        return folder / f"{item['runner_id']}.log"


def _last_lines(path: Path, count: int) -> list[str]:
    if not path.exists():
        return []
    return path.read_bytes()[-1_000_000:].decode(errors="replace").splitlines()[-max(0, count) :]


def _bytes_from(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(1_000_000)
