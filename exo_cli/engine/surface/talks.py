"""Talks: waiting for an instance, and chatting with one. Both follow the state, and every wait has a deadline."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from exo_cli.engine.chats import is_ready
from exo_cli.engine.control import Params, Tell
from exo_cli.engine.core.errors import (
    BadStateError,
    ExoError,
    NotFoundError,
    UnavailableError,
    UsageError,
    WaitTimeoutError,
)
from exo_cli.engine.core.ids import instance_id_in
from exo_cli.engine.core.items import Item, going_item, instance_item, instance_status
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.tasks import ChatParams, Finish
from exo_cli.engine.core.wire import OpenChat
from exo_cli.engine.fresh import fresh_id
from exo_cli.engine.surface.asked import seconds, text
from exo_cli.engine.surface.of_nodes import no_master

if TYPE_CHECKING:
    from exo_cli.engine.node import Node


@dataclass(frozen=True, slots=True)
class Rank0:
    """Where a chat is admitted: the instance, and the address of rank 0's node (None: this one)."""

    instance: Instance
    address: str | None


class Talks:
    """Methods that last."""

    def __init__(self, node: "Node") -> None:
        """Everything is asked of the node and its state."""
        self._node = node

    async def wait(self, params: Params, tell: Tell) -> Item:
        """`{instance_id, for: ready|deleted, timeout_seconds}`: tells `progress` with the item, results in `{item}`."""
        instance_id = text(params, "instance_id") or ""
        timeout = seconds(params, 600.0)
        check = self._gone if params.get("for") == "deleted" else self._ready
        last: Item | None = None
        with trio.move_on_after(timeout):
            while (item := check(instance_id)) is None:
                now = self._progress(instance_id)
                if now != last:
                    last = now
                    await tell({"type": "progress", "item": now})
                await self._node.wait_changed(1.0)
            return {"item": item}
        seen = self._progress(instance_id)
        raise WaitTimeoutError(
            f"instance {instance_id} is {seen['status']} after {timeout:g} s: {seen['progress']}", "exo runners"
        )

    def _progress(self, instance_id: str) -> Item:
        instance = self._node.state.instances.get(instance_id)
        if instance is not None:
            return instance_item(self._node.state, instance)
        return going_item(self._node.state, instance_id)

    def _ready(self, instance_id: str) -> Item | None:
        state = self._node.state
        instance = state.instances.get(instance_id)
        if instance is None:
            raise BadStateError(f"instance {instance_id} was deleted", "exo runners", code="instance_deleted")
        item = instance_item(state, instance)
        if item["status"] == "failed":
            raise BadStateError(
                f"instance {instance_id} failed: {item['error']}",
                f"exo runners logs {instance.runner_ids[0]}",
                f"exo delete {instance_id}",
                code="instance_failed",
            )
        return item if item["status"] == "ready" else None

    def _gone(self, instance_id: str) -> Item | None:
        state = self._node.state
        busy = instance_id in state.instances or any(instance_id_in(each) == instance_id for each in state.runners)
        return (
            None
            if busy or self._node.has_process_of(instance_id)
            else {"instance_id": instance_id, "status": "deleted"}
        )

    async def chat(self, params: Params, tell: Tell) -> Item:
        """`{model, messages, sampling, stop, timeout_seconds}`: tells `waiting`, `started` and `chunk`, results in the
        item with usage, seed and finish reason. The deadline holds until an instance is ready.
        """
        wanted = ChatParams.model_validate(
            {
                "messages": params.get("messages"),
                "sampling": params.get("sampling") or {},
                "stop": params.get("stop") or (),
            }
        )
        with trio.move_on_after(seconds(params, 600.0)) as deadline:
            rank_0 = await self._ready_instance(text(params, "model"), tell)
            deadline.deadline = float("inf")
            return await self._converse(rank_0, wanted, params, tell)
        raise WaitTimeoutError("no instance became ready in time", "exo runners")

    async def _ready_instance(self, model: str | None, tell: Tell) -> Rank0:
        """The least busy ready instance of a model; waits while one is coming up."""
        told = ""
        while True:
            state = self._node.state
            instances = [each for each in state.instances.values() if model in {None, each.model_card.model_id}]
            ready = [each for each in instances if is_ready(state, each)]
            if ready:
                return self._rank_0(min(ready, key=lambda each: self._node.busy(each.instance_id)))
            coming = [each for each in instances if instance_status(state, each)[0] != "failed"]
            if not coming:
                raise self._nothing_ready(model, instances)
            text = f"waiting for {coming[0].instance_id}: {instance_status(state, coming[0])[1]}"
            if text != told:
                told = text
                await tell({"type": "waiting", "text": text})
            await self._node.wait_changed(1.0)

    def _nothing_ready(self, model: str | None, instances: list[Instance]) -> ExoError:
        name = model or "smollm2"
        if not instances:
            if (fault := no_master(self._node)) is not None:
                return fault
            what = f"no instance of {model!a}" if model else "no model is placed"
            return NotFoundError(what, f"exo place {name}", code="no_instance")
        item = instance_item(self._node.state, instances[0])
        return BadStateError(
            f"no ready instance of {item['model']}: {item['instance_id']} {item['progress']}",
            f"exo runners restart {item['instance_id']}",
            code="not_ready",
        )

    def _rank_0(self, instance: Instance) -> Rank0:
        node_id = instance.shards[0].node_id
        if node_id == self._node.node_id:
            return Rank0(instance, None)
        node = self._node.state.nodes.get(node_id)
        if node is None or not node.facts.addresses:
            raise UnavailableError(f"rank 0's node {node_id} has no known address", "exo node list")
        return Rank0(instance, node.facts.addresses[0])

    async def _converse(self, rank_0: Rank0, wanted: ChatParams, params: Params, tell: Tell) -> Item:
        chats, instance, task_id = self._node.chats, rank_0.instance, fresh_id("t")
        client = (text(params, "client") or "unknown")[:64]
        about: Item = {"task_id": task_id, "instance_id": instance.instance_id, "model": instance.model_card.model_id}
        is_over = False
        try:
            if rank_0.address is None:
                await chats.admit(task_id, instance.instance_id, wanted, client)
            else:
                opening = OpenChat(task_id=task_id, instance_id=instance.instance_id, params=wanted, client=client)
                await chats.open_elsewhere(rank_0.address, opening)
            await tell({"type": "started", **about, "node_id": instance.shards[0].node_id})
            async with aclosing(chats.read(task_id, rank_0.address)) as frames:
                async for frame in frames:
                    if isinstance(frame, Finish):
                        is_over = True
                        return _finished(frame, about)
                    await tell({"type": "chunk", "sequence": frame.sequence, "text": frame.text})
        finally:
            if not is_over:
                self._node.abandon(task_id, rank_0.address)
        raise AssertionError("a stream ends with its terminal frame")


def _finished(frame: Finish, about: Item) -> Item:
    item: Item = {
        **about,
        "finish_reason": frame.reason,
        "usage": frame.usage.model_dump(),
        "seed": frame.seed,
    }
    if frame.reason in {"stop", "length"}:
        return {"item": item}
    if frame.code in {"context_overflow", "busy", "bad_request"}:
        kind: type[ExoError] = UsageError if frame.code != "busy" else UnavailableError
        raise kind(frame.error or frame.reason, "exo chat --help", code=frame.code, details=item)
    raise BadStateError(frame.error or f"the task was {frame.reason}", "exo runners", code=frame.code, details=item)
