"""Items of nodes: who is in the cluster and how this node stands, in the shapes that scripts rely on."""

import os
from typing import TYPE_CHECKING

import trio

from exo_cli.engine.core.errors import UnavailableError
from exo_cli.engine.core.items import Item
from exo_cli.engine.core.topology import NodeFacts

if TYPE_CHECKING:
    from exo_cli.engine.node import Node


def link_item(node: "Node") -> Item:
    """Where a node stands towards the master."""
    link = node.replica.follower.link
    is_master = node.replica.is_master
    return {
        "phase": "leaving" if node.fault else "master" if is_master else link.phase,
        "master_address": node.replica.address if is_master else link.master_address or None,
        "tried": dict(link.tried),
        "unmet": [each for each in link.seeds if each not in link.met | link.tried.keys()],
    }


def no_master(node: "Node") -> UnavailableError | None:
    """What to say when something needs a master and this node has not found one; None when it has."""
    link = node.replica.follower.link
    if node.replica.is_master or link.phase != "seeking":
        return None
    tried = "".join(f"\n  {address}: {why}" for address, why in link.tried.items())
    what = f"this node has found no master yet{tried or ': its peers have not answered'}"
    return UnavailableError(what, "exo node show", code="no_master", details={"tried": dict(link.tried)})


def node_items(node: "Node") -> list[Item]:
    """`exo node list`: the nodes of the cluster, or this one alone while it belongs to none."""
    now, heard = trio.current_time(), node.replica.membership
    items: list[Item] = []
    for node_id, known in node.state.nodes.items():
        sign = heard.heard.get(node_id)
        suspect = node_id != node.node_id and heard.is_suspect(node_id, now)
        item = _item(node, node_id, known.facts, "suspect" if suspect else "alive")
        items.append(
            item
            | ({"memory_available_bytes": sign.memory_available_bytes} if sign and sign.memory_available_bytes else {})
        )
    return items or [_item(node, node.node_id, node.replica.facts, node.replica.follower.link.phase)]


def _item(node: "Node", node_id: str, facts: NodeFacts, state: str) -> Item:
    return {
        "node_id": node_id,
        "name": facts.name,
        "master": node_id == node.state.master,
        "voter": node_id in node.state.voters,
        "state": state,
        "addresses": list(facts.addresses),
        "memory_bytes": facts.memory_bytes,
        "memory_available_bytes": facts.memory_available_bytes,
        "backends": list(facts.backends),
        "cores": facts.cores,
        "platform": facts.platform,
        "version": facts.version,
    }


def own_item(node: "Node") -> Item:
    """`exo node show` of the node that is asked."""
    link = link_item(node)
    mine = next((item for item in node_items(node) if item["node_id"] == node.node_id), None)
    return {
        **(mine or _item(node, node.node_id, node.replica.facts, str(link["phase"]))),
        "listen": None if node.options.solo else node.transport.address,
        "endpoint": f"unix:{node.paths.control_socket}",
        "socket": str(node.paths.control_socket),
        "term": node.state.term,
        "index": node.state.index,
        "state_hash": node.state.hash(),
        "log_dir": None if node.options.solo else str(node.paths.log),
        "pid": os.getpid(),
        "read_only": node.pump.read_only or None,
        **link,
    }
