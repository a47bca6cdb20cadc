"""Placement: which nodes carry a model, and how it is cut. Polynomial, deterministic, explained.

Candidates are sets of k nodes that carry the model together, k from the wished minimum up: fewer nodes are preferred,
then nodes that hold the files already, then free memory (or the order in which nodes were named). What is reserved by
placements that have not loaded yet counts as used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.errors import ExitCode, Refused
from exo_cli.engine.core.events import DownloadKind
from exo_cli.engine.core.ids import instance_id_for, runner_id_for
from exo_cli.engine.core.intents import PlaceInstance
from exo_cli.engine.core.runners import SERVING
from exo_cli.engine.core.shards import Instance, Shard, StrategyName
from exo_cli.engine.core.state import State
from exo_cli.engine.core.strategies import STRATEGIES, Room

# What a runner holds besides weights and cache: interpreter, mlx, tokenizer (measured: 210 MB with SmolLM2's).
OVERHEAD_BYTES = 256 << 20
CONTEXT_DEFAULT = 8192
CONTEXT_LEAST = 512
# On a CPU stored 4-bit weights are opened up to float32 where it fits; placement asks only for what must be there.
ENGINE_BACKENDS = {"mlx": ("mlx_metal", "mlx_cuda", "mlx_cpu")}


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to place a model: nodes in order of rank and the layers of each."""

    strategy: StrategyName
    context_tokens: int
    node_ids: tuple[str, ...]
    layers: tuple[range, ...]


def place(state: State, wish: PlaceInstance, command_id: str) -> Instance | Refused:
    """The instance that the wish would create, or why nothing fits, with the figures."""
    plan = choose(state, wish)
    if isinstance(plan, Refused):
        return plan
    instance_id = instance_id_for(command_id)
    shards = tuple(
        Shard(
            runner_id=runner_id_for(instance_id, rank),
            node_id=node_id,
            rank=rank,
            world_size=len(plan.node_ids),
            start_layer=layers.start,
            end_layer=layers.stop,
            n_layers=wish.model_card.n_layers,
        )
        for rank, (node_id, layers) in enumerate(zip(plan.node_ids, plan.layers, strict=True))
    )
    return Instance(
        instance_id=instance_id,
        model_card=wish.model_card,
        strategy=plan.strategy,
        engine=wish.engine,
        context_tokens=plan.context_tokens,
        shards=shards,
    )


def choose(state: State, wish: PlaceInstance) -> Plan | Refused:
    """The best plan for a wish, or a refusal that says what is needed, what each node has, and what would work."""
    strategy = wish.strategy or "pipeline"
    if strategy not in STRATEGIES:
        return _refused(
            "infeasible", f"strategy {strategy} is not available yet", "exo place MODEL --strategy pipeline"
        )
    candidates = _candidates(state, wish)
    if isinstance(candidates, Refused):
        return candidates
    card, at_most = wish.model_card, len(candidates)
    fault = STRATEGIES[strategy].fault(card, wish.min_nodes)
    if fault or wish.min_nodes > at_most:
        reason = fault or f"{wish.min_nodes} nodes are asked for, {at_most} can run {card.model_id}"
        return _refused("infeasible", reason, "exo node list")
    for context in _contexts(wish):
        rooms = _rooms(state, wish, candidates, context)
        for n_nodes in range(wish.min_nodes, at_most + 1):
            if plan := _best(card, strategy, context, rooms, n_nodes):
                return plan
    return _does_not_fit(state, wish, candidates)


def _candidates(state: State, wish: PlaceInstance) -> Sequence[str] | Refused:
    unknown = [name for name in wish.nodes if name not in state.nodes]
    if unknown:
        return Refused("not_found", f"no node {unknown[0]!a}", "exo node list", ExitCode.NOT_FOUND)
    pool = tuple(dict.fromkeys(wish.nodes)) or tuple(state.nodes)
    needed = ENGINE_BACKENDS.get(wish.engine)
    able = [
        node_id
        for node_id in pool
        if needed is None or any(backend in needed for backend in state.nodes[node_id].facts.backends)
    ]
    if not able:
        return _refused("infeasible", f"no node has a backend for engine {wish.engine}", "pip install 'exo-cli[cpu]'")
    return able


def _contexts(wish: PlaceInstance) -> list[int]:
    """Context sizes to try: the one asked for, else the card's up to the default, halved until the least."""
    if wish.context_tokens is not None:
        return [min(wish.context_tokens, wish.model_card.context_length)]
    sizes = [min(CONTEXT_DEFAULT, wish.model_card.context_length)]
    while sizes[-1] // 2 >= CONTEXT_LEAST:
        sizes.append(sizes[-1] // 2)
    return sizes


def reserved_bytes(state: State, node_id: str) -> int:
    """What placements on a node will still take: those whose runner there does not serve yet."""
    total = 0
    for instance in state.instances.values():
        shard = instance.shard_on(node_id)
        runner = state.runners.get(shard.runner_id) if shard else None
        if shard and (runner is None or runner.status.type not in SERVING):
            total += shard_bytes(instance.model_card, len(shard.layers), instance.context_tokens)
    return total


def shard_bytes(card: ModelCard, n_layers: int, context_tokens: int) -> int:
    """What a runner of `n_layers` needs: weights, its embedding, KV cache for the context, and the overhead."""
    # Every rank of a pipeline keeps the embedding: rank 0 needs it, the others carry its table.
    return n_layers * card.layer_bytes + card.embedding_bytes + card.kv_bytes(context_tokens, n_layers) + OVERHEAD_BYTES


def _rooms(state: State, wish: PlaceInstance, node_ids: Sequence[str], context: int) -> list[Room]:
    card = wish.model_card
    fixed = card.embedding_bytes + OVERHEAD_BYTES
    each = card.layer_bytes + card.kv_bytes(context, 1)
    rooms: list[Room] = []
    for node_id in node_ids:
        usable = state.nodes[node_id].facts.memory_available_bytes - reserved_bytes(state, node_id)
        fits = card.n_layers if wish.force else max(0, min(card.n_layers, (usable - fixed) // max(1, each)))
        rooms.append(Room(node_id, max(1, usable), fits))
    order = {node_id: place for place, node_id in enumerate(node_ids)}
    return sorted(
        rooms,
        key=lambda room: (
            order[room.node_id] if wish.nodes else 0,  # whoever names nodes says which they prefer
            -_held(state, room.node_id, card.model_id),
            -(room.usable_bytes >> 26),  # 64 MB steps: equal machines keep the order in which they joined
            order[room.node_id],
        ),
    )


def _held(state: State, node_id: str, model_id: str) -> float:
    """The part of a model's files that a node has, 0 to 1; a failed download counts as none."""
    progress = state.downloads.get(node_id, {}).get(model_id)
    if progress is None or progress.kind == DownloadKind.FAILED:
        return 0.0
    if progress.kind == DownloadKind.COMPLETED:
        return 1.0
    return progress.downloaded_bytes / progress.total_bytes if progress.total_bytes else 0.0


def _best(card: ModelCard, strategy: StrategyName, context: int, rooms: Sequence[Room], n_nodes: int) -> Plan | None:
    """The plan with the most preferred `n_nodes` rooms that can carry the model together; rooms are in that order."""
    able = [room for room in rooms if room.layers_max > 0]
    largest = sorted(able, key=lambda room: -room.layers_max)
    if len(able) < n_nodes or _try(card, strategy, context, largest[:n_nodes]) is None:
        return None
    if plan := _try(card, strategy, context, able[:n_nodes]):
        return plan
    chosen: list[Room] = []
    for room in able:
        taken = {each.node_id for each in (*chosen, room)}
        rest = [each for each in largest if each.node_id not in taken][: n_nodes - len(taken)]
        if _try(card, strategy, context, [*chosen, room, *rest]):
            chosen.append(room)
        if len(chosen) == n_nodes:
            break
    return _try(card, strategy, context, chosen)


def _try(card: ModelCard, strategy: StrategyName, context: int, rooms: Sequence[Room]) -> Plan | None:
    rules = STRATEGIES[strategy]
    if rules.fault(card, len(rooms)):
        return None
    layers = rules.split(card.n_layers, [room.usable_bytes for room in rooms], [room.layers_max for room in rooms])
    if layers is None:
        return None
    return Plan(strategy, context, tuple(room.node_id for room in rooms), tuple(layers))


def _does_not_fit(state: State, wish: PlaceInstance, node_ids: Sequence[str]) -> Refused:
    card, context = wish.model_card, _contexts(wish)[-1]
    usable = {
        node_id: state.nodes[node_id].facts.memory_available_bytes - reserved_bytes(state, node_id)
        for node_id in node_ids
    }
    needed = shard_bytes(card, card.n_layers, context)
    missing = needed - max(usable.values())
    figures = ", ".join(f"{node_id} {_mib(each)}" for node_id, each in usable.items())
    return Refused(
        "infeasible",
        f"{card.model_id} needs {_mib(needed)} with {context} tokens of context; usable: {figures}; "
        f"missing {_mib(max(0, missing))}",
        f"exo place {card.model_id} --force",
        ExitCode.INFEASIBLE,
        {"needed_bytes": needed, "usable_bytes": usable, "missing_bytes": max(0, missing), "context_tokens": context},
    )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def _refused(code: str, reason: str, hint: str) -> Refused:
    return Refused(code, reason, hint, ExitCode.INFEASIBLE)
