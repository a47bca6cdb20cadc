"""Wishes: what people want changed, as commands with an id and one answer each."""

import os
from typing import TYPE_CHECKING, cast

import trio

from exo_cli.engine.control import Params, Tell
from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.decider import unchanged
from exo_cli.engine.core.errors import BadStateError, Refused, UnavailableError, UsageError, error_for
from exo_cli.engine.core.events import By
from exo_cli.engine.core.ids import model_name_fault
from exo_cli.engine.core.intents import (
    Command,
    DeleteInstance,
    ForgetRunner,
    PlaceInstance,
    RestartInstance,
    Submission,
)
from exo_cli.engine.core.items import Item, going_items, instance_item, instance_items, runner_items
from exo_cli.engine.core.placement import place
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.wire import Answer
from exo_cli.engine.fresh import fresh_id
from exo_cli.engine.surface.asked import chosen, text
from exo_cli.engine.surface.of_nodes import link_item, no_master, node_items

if TYPE_CHECKING:
    from exo_cli.engine.node import Node


class Wishes:
    """Methods that ask the cluster for something."""

    def __init__(self, node: "Node") -> None:
        """Everything is asked of the node and its state."""
        self._node = node

    def _single(self, item: Item) -> Item:
        return {"revision": self._node.state.index, "item": item}

    async def _submit(self, command: Command, params: Params) -> Answer:
        by = By(
            node=self._node.node_id,
            client=(text(params, "client") or "unknown")[:64],
            user=(text(params, "user") or "")[:64] or None,
        )
        command_id = text(params, "command_id") or fresh_id("x")
        answer = await self._node.submit(Submission(command_id=command_id, by=by, command=command))
        if answer.status == "refused" and answer.refusal is not None:
            raise error_for(answer.refusal)
        if answer.status == "unknown":
            if (fault := no_master(self._node)) is not None:
                raise fault
            where = link_item(self._node).get("master_address") or "nobody"
            raise UnavailableError(
                f"no master answered (this node follows {where}): the command may still happen",
                "exo node list",
                code="unknown",
                details={"command_id": command_id},
            )
        return answer

    async def place(self, params: Params, _tell: Tell) -> Item:
        """`model` and how, `dry_run`; the result's item is the instance, and `changed` says whether it is new."""
        name = text(params, "model") or ""
        engine = self._node.engine_name(text(params, "engine"))
        card = await self._card(name, engine)
        wish = PlaceInstance.model_validate(
            {
                "model_card": card,
                "engine": engine,
                "strategy": params.get("strategy"),
                "min_nodes": params.get("min_nodes") or 1,
                "nodes": self._named_nodes(params.get("nodes")),
                "context_tokens": params.get("context_tokens"),
                "new": bool(params.get("new")),
                "force": bool(params.get("force")),
            }
        )
        if params.get("dry_run"):
            return self._single(self._dry_run(wish))
        answer = await self._submit(wish, params)
        instance = self._node.state.instances.get(answer.subject or "")
        if instance is None:
            # Committed by the master, and not yet followed here (or deleted again meanwhile).
            instance = await self._followed(answer)
        return self._single({**instance_item(self._node.state, instance), "changed": answer.changed})

    async def _followed(self, answer: Answer) -> Instance:
        with trio.move_on_after(5.0):
            while self._node.state.index < (answer.index or 0):
                await self._node.wait_changed(0.5)
        instance = self._node.state.instances.get(answer.subject or "")
        if instance is None:
            raise BadStateError(f"instance {answer.subject} was placed, and is gone again", "exo runners")
        return instance

    def _dry_run(self, wish: PlaceInstance) -> Item:
        instance = unchanged(self._node.state, wish)
        changed = "unchanged" if instance else "created"
        planned = instance or place(self._node.state, wish, "dry-run")
        if isinstance(planned, Refused):
            raise error_for(planned)
        shards = [
            {"node_id": shard.node_id, "layers": [shard.start_layer, shard.end_layer]} for shard in planned.shards
        ]
        item = instance_item(self._node.state, planned)
        return {**item, "status": "planned", "changed": changed, "shards": shards}

    async def _card(self, name: str, engine: str) -> ModelCard:
        if engine.startswith("scripted:"):
            if fault := model_name_fault(name):
                raise UsageError(fault, "exo place smollm2")
            return scripted_card(name)
        return await self._node.store.resolve(name)

    def _named_nodes(self, wanted: object) -> tuple[str, ...]:
        names = cast("list[object]", wanted) if isinstance(wanted, list) else []
        items = node_items(self._node)
        return tuple(
            str(chosen(str(name), items, ("node_id", "name"), "node", "exo node list")["node_id"]) for name in names
        )

    async def delete(self, params: Params, _tell: Tell) -> Item:
        """`instance_id`; the result's item is the instance, deleting."""
        wanted = text(params, "instance_id") or ""
        items = [*instance_items(self._node.state), *going_items(self._node.state)]
        item = chosen(wanted, items, ("instance_id",), "instance", "exo runners")
        instance_id = str(item["instance_id"])
        answer = await self._submit(DeleteInstance(instance_id=instance_id), params)
        return self._single({**item, "status": "deleting", "changed": answer.changed})

    async def forget(self, params: Params, _tell: Tell) -> Item:
        """`runner_id`; the result's item is the runner as it was."""
        items = runner_items(self._node.state)
        item = chosen(text(params, "runner_id") or "", items, ("runner_id",), "runner", "exo runners")
        answer = await self._submit(ForgetRunner(runner_id=str(item["runner_id"])), params)
        return self._single({**item, "changed": answer.changed})

    async def restart(self, params: Params, _tell: Tell) -> Item:
        """`instance_id` or `runner_id`; the result's item is a runner of the instance that is restarted."""
        wanted = text(params, "instance_id") or text(params, "runner_id") or ""
        items = runner_items(self._node.state)
        keys = ("runner_id", "instance_id")
        item = chosen(wanted, items, keys, "runner", "exo runners", identity="instance_id")
        answer = await self._submit(RestartInstance(instance_id=str(item["instance_id"])), params)
        return self._single({**item, "changed": answer.changed})

    async def stop(self, _params: Params, _tell: Tell) -> Item:
        """Nothing asked for; the node begins to stop, the result has its `pid`."""
        self._node.ask_to_stop()
        return {"pid": os.getpid()}


def scripted_card(name: str) -> ModelCard:
    """The card of a model that only a script plays: small, four layers, no files."""
    return ModelCard(
        model_id=name,
        n_layers=4,
        hidden_size=64,
        n_heads=4,
        n_kv_heads=4,
        head_dim=16,
        vocab_size=256,
        storage_bytes=1 << 20,
        embedding_bytes=1 << 16,
        context_length=8192,
        family="scripted",
        source="scripted",
    )
