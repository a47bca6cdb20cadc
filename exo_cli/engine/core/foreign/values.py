"""Values inside foreign events: tagged unions, instances with their shards, cards, edges.

Whatever is missing or of another type raises KeyError, TypeError, AttributeError or ValueError: see the translator.
"""

from collections.abc import Mapping
from typing import Any, cast

from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.shards import Instance, Shard
from exo_cli.engine.core.topology import Edge

Fields = Mapping[str, Any]


def tagged(value: Any) -> tuple[str, Fields]:
    """The tag of a tagged union, and what it stands before."""
    if not isinstance(value, dict) or len(cast("Fields", value)) != 1:
        raise ValueError("what should be one tagged value is none")
    name, inner = next(iter(cast("Fields", value).items()))
    if not isinstance(inner, dict):
        raise ValueError(f"{str(name)[:64]!a} holds no fields")
    return str(name), cast("Fields", inner)


def n_bytes(value: Any) -> int:
    """A size; nothing is none."""
    return int(value["in_bytes"]) if value else 0


def instance_of(value: Any) -> Instance:
    """Ranks in order, each with the node that its runner belongs on."""
    _, inner = tagged(value)
    assigned = inner["shard_assignments"]
    nodes = {str(runner): str(node) for node, runner in assigned["node_to_runner"].items()}
    kinds: set[str] = set()
    shards: list[Shard] = []
    card: Fields = {}
    for runner_id, each in assigned["runner_to_shard"].items():
        kind, shard = tagged(each)
        kinds.add(kind)
        card = shard["model_card"]
        shards.append(
            Shard(
                runner_id=runner_id,
                node_id=nodes[runner_id],
                rank=shard["device_rank"],
                world_size=shard["world_size"],
                start_layer=shard["start_layer"],
                end_layer=shard["end_layer"],
                n_layers=shard["n_layers"],
            )
        )
    return Instance(
        instance_id=inner["instance_id"],
        model_card=card_of(card),
        strategy="tensor" if "TensorShardMetadata" in kinds else "pipeline",
        context_tokens=max(1, int(card.get("context_length") or 0)),
        shards=tuple(sorted(shards, key=lambda shard: shard.rank)),
    )


def card_of(card: Fields) -> ModelCard:
    """As much as a foreign card says; what placement would need beyond that stays at its least."""
    return ModelCard(
        model_id=card["model_id"],
        n_layers=max(1, int(card["n_layers"])),
        hidden_size=max(1, int(card["hidden_size"])),
        n_heads=1,
        n_kv_heads=max(1, int(card.get("num_key_value_heads") or 1)),
        head_dim=1,
        vocab_size=1,
        storage_bytes=n_bytes(card["storage_size"]),
        embedding_bytes=0,
        context_length=max(1, int(card.get("context_length") or 1)),
        family=str(card.get("family") or "unknown")[:64],
    )


def edge_of(fields: Fields) -> Edge | None:
    """The end points of a connection; None for one that our state has no place for."""
    conn = fields["conn"]
    address = conn["edge"].get("sink_multiaddr")
    if address is None:  # RDMA: between interfaces, which no state of ours holds
        return None
    where = f"{address['ip_address']}:{address['port']}"
    return Edge(source=conn["source"], sink=conn["sink"], address=where)
