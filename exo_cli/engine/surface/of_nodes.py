"""Items of nodes: who is in the cluster and how this node stands, in the shapes that scripts rely on."""

import os
from typing import TYPE_CHECKING

import trio

from exo_cli.engine.core.items import Item

if TYPE_CHECKING:
    from exo_cli.engine.node import Node


def link_item(node: "Node") -> Item:
    """Where a node stands towards the master."""
    link = node.replica.follower.link
    if node.replica.is_master:
        return {"phase": "master", "master_address": node.replica.address}
    return {"phase": link.phase, "master_address": link.master_address or None, "tried": dict(link.tried)}


def node_items(node: "Node") -> list[Item]:
    """`exo node list`."""
    now, membership = trio.current_time(), node.replica.membership
    items: list[Item] = []
    for node_id, known in node.state.nodes.items():
        facts, sign = known.facts, membership.heard.get(node_id)
        live = sign.memory_available_bytes if sign and sign.memory_available_bytes else facts.memory_available_bytes
        suspect = node_id != node.node_id and membership.is_suspect(node_id, now)
        items.append(
            {
                "node_id": node_id,
                "name": facts.name,
                "master": node_id == node.state.master,
                "voter": node_id in node.state.voters,
                "state": "suspect" if suspect else "alive",
                "addresses": list(facts.addresses),
                "memory_bytes": facts.memory_bytes,
                "memory_available_bytes": live,
                "backends": list(facts.backends),
                "cores": facts.cores,
                "platform": facts.platform,
                "version": facts.version,
            }
        )
    return items


def own_item(node: "Node") -> Item:
    """`exo node show` of the node that is asked."""
    link = link_item(node)
    mine = next((item for item in node_items(node) if item["node_id"] == node.node_id), None)
    joined = mine or {"node_id": node.node_id, "name": node.name, "state": link["phase"]}
    return {
        **joined,
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
