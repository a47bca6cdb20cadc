"""Reads: the committed state of a node, in the shapes that scripts rely on, at once or whenever it changes."""

import codecs
from pathlib import Path
from typing import TYPE_CHECKING, cast

import trio

from exo_cli.engine.control import Params, Tell
from exo_cli.engine.core.errors import NotFoundError, UsageError
from exo_cli.engine.core.items import Item, instance_items, instance_status, runner_items
from exo_cli.engine.core.reasons import reason_items
from exo_cli.engine.runner.supervisor import log_path
from exo_cli.engine.surface.asked import chosen, text
from exo_cli.engine.surface.of_nodes import link_item, node_items, own_item

if TYPE_CHECKING:
    from collections.abc import Callable

    from exo_cli.engine.node import Node

_READ_BYTES = 1_000_000
_LINE_CHARACTERS = 1 << 16


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
        """Nothing asked for; the result's item is the cluster as this node sees it, in numbers."""
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
        """Nothing asked for; the result's items are the nodes of the cluster."""
        return self._listed(node_items(self._node))

    async def node_item(self, params: Params, _tell: Tell) -> Item:
        """`node_id` (or a name; else this node's); the result's item is that node, with most about this one."""
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
            {**item, "log_path": str(log_path(folder, str(item["runner_id"]))) if item["node_id"] == own else None}
            for item in runner_items(self._node.state)
        ]

    async def runners(self, _params: Params, _tell: Tell) -> Item:
        """Nothing asked for; the result's items are the runners, placed or left over."""
        # A runner is gone from the state when its process is: what never started is part of its instance.
        return self._listed(self._runner_list())

    async def instances(self, _params: Params, _tell: Tell) -> Item:
        """Nothing asked for; the result's items are the placed models."""
        return self._listed(instance_items(self._node.state))

    async def why(self, params: Params, _tell: Tell) -> Item:
        """`id` of a runner, an instance or a node (else all): items with the verdict of each of the planner's rules."""
        wanted = text(params, "id") or ""
        items = reason_items(self._node.state, wanted, self._node.pump.now().at)
        if wanted and not items:
            raise NotFoundError(f"nothing that is placed is called {wanted!a}", "exo runners")
        return self._listed(items)

    async def watch(self, params: Params, tell: Tell) -> Item:
        """`what` (runners, nodes, instances); tells `changed` with all items now and at each change; has no result."""
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
        """`kind` (instance, node, runner, model); the result's lines are values, a tab, what they are."""
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
        """`runner_id`, `lines`, `follow`; tells each of the last lines and, following, of those to come."""
        path, count = self._log_of(text(params, "runner_id") or ""), int(cast("int", params.get("lines", 50)))
        log = _Log(path)
        lines = await trio.to_thread.run_sync(log.news)
        if not params.get("follow"):
            lines += log.rest()
        for line in lines[-count:] if count > 0 else ():
            await tell({"type": "line", "text": line})
        while params.get("follow"):
            await trio.sleep(0.25)
            for line in await trio.to_thread.run_sync(log.news):
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
        return log_path(folder, str(item["runner_id"]))


class _Log:
    """A file that grows and is rotated, in whole lines: what has no end yet is held back, be it half a character."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self._decode = _decoder()
        self._held = ""

    def news(self) -> list[str]:
        """The lines since the last time; at first those of the last megabyte."""
        size = self._path.stat().st_size if self._path.exists() else 0
        lines: list[str] = []
        if size < self._offset:  # rotated: what is there now is new
            lines, self._offset = self.rest(), 0
        elif self._offset == 0:
            self._offset = max(0, size - _READ_BYTES)
        if size > self._offset:
            fresh = _bytes_from(self._path, self._offset)
            self._offset += len(fresh)
            whole, end, self._held = (self._held + self._decode(fresh, False)).rpartition("\n")
            lines += (whole + end).splitlines()
        return lines + self.rest() if len(self._held) > _LINE_CHARACTERS else lines

    def rest(self) -> list[str]:
        """What was held back, as it is."""
        held, self._held, self._decode = self._held + self._decode(b"", True), "", _decoder()
        return [held] if held else []


def _decoder() -> "Callable[[bytes, bool], str]":
    return codecs.getincrementaldecoder("utf-8")("replace").decode


def _bytes_from(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(_READ_BYTES)
    except FileNotFoundError:
        return b""  # being rotated just now
