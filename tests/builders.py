"""Values for tests: cards, nodes, instances, states. Small, plain, and never a mock."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from exo_cli.engine.core import runners
from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.events import By, DownloadKind, DownloadProgress, Event, Record
from exo_cli.engine.core.intents import PlaceInstance
from exo_cli.engine.core.planner import Local, LocalRunner
from exo_cli.engine.core.runners import RunnerStatus
from exo_cli.engine.core.shards import Instance, Shard
from exo_cli.engine.core.state import Node, Runner, State
from exo_cli.engine.core.tasks import TaskStatus, TextGeneration
from exo_cli.engine.core.topology import NodeFacts

MIB = 1 << 20
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """The wall clock `seconds` after the tests' epoch."""
    return BEGAN + timedelta(seconds=seconds)


def a_card(model_id: str = "tiny", *, n_layers: int = 12, layer_bytes: int = 10 * MIB, **other: object) -> ModelCard:
    """A card whose numbers are easy: no embedding, and a KV cache of 512 bytes per token and layer."""
    facts: dict[str, object] = {
        "model_id": model_id,
        "n_layers": n_layers,
        "hidden_size": 64,
        "n_heads": 4,
        "n_kv_heads": 4,
        "head_dim": 16,
        "vocab_size": 100,
        "storage_bytes": n_layers * layer_bytes,
        "embedding_bytes": 0,
        "context_length": 512,
        "family": "llama",
        **other,
    }
    return ModelCard.model_validate(facts)


def a_node(name: str = "a", *, memory_bytes: int = 8192 * MIB, **other: object) -> NodeFacts:
    """Facts of a machine whose memory is all free."""
    facts: dict[str, object] = {
        "name": name,
        "version": "1",
        "addresses": (f"{name}:7101",),
        "memory_bytes": memory_bytes,
        "memory_available_bytes": memory_bytes,
        "backends": ("mlx_cpu",),
        "cores": 2,
        **other,
    }
    return NodeFacts.model_validate(facts)


def an_instance(
    instance_id: str = "i", node_ids: Iterable[str] = ("a",), card: ModelCard | None = None, **other: object
) -> Instance:
    """An instance with one shard a node, in order of rank; its runners are `i-0`, `i-1`, ..."""
    card, names = card or a_card(), tuple(node_ids)
    borders = [card.n_layers * rank // len(names) for rank in range(len(names) + 1)]
    shards = tuple(
        Shard(
            runner_id=f"{instance_id}-{rank}",
            node_id=node_id,
            rank=rank,
            world_size=len(names),
            start_layer=borders[rank],
            end_layer=borders[rank + 1],
            n_layers=card.n_layers,
        )
        for rank, node_id in enumerate(names)
    )
    plain = {"instance_id": instance_id, "model_card": card, "context_tokens": 512, "shards": shards, **other}
    return Instance.model_validate(plain)


def a_status(name: str, **fields: object) -> RunnerStatus:
    """A status by its short name: `a_status("Ready")`."""
    status: RunnerStatus = getattr(runners, f"Runner{name}")(**fields)
    return status


def a_download(node_id: str, model_id: str = "tiny", kind: str = "Completed", **other: object) -> DownloadProgress:
    """Where a download stands, by the short name of its kind."""
    return DownloadProgress(
        node_id=node_id,
        model_id=model_id,
        kind=DownloadKind(f"Download{kind}"),
        **other,  # type: ignore[arg-type]
    )


def a_task(
    task_id: str = "t", instance_id: str = "i", status: TaskStatus = TaskStatus.PENDING, **other: object
) -> TextGeneration:
    """A chat."""
    return TextGeneration.model_validate(
        {"task_id": task_id, "instance_id": instance_id, "task_status": status, **other}
    )


def a_wish(card: ModelCard | None = None, **other: object) -> PlaceInstance:
    """A wish to place a model."""
    return PlaceInstance.model_validate({"model_card": card or a_card(), **other})


def a_record(event: Event, index: int = 0, *, term: int = 1, seconds: float = 0.0, **by: object) -> Record:
    """An event at a place in the log."""
    return Record(
        index=index, term=term, at=at(seconds), by=By.model_validate({"node": "a", **by}), cause=None, event=event
    )


def a_state(
    *,
    nodes: Mapping[str, NodeFacts] | Iterable[str] = ("a", "b", "c"),
    instances: Iterable[Instance] = (),
    runners: Mapping[str, str | RunnerStatus] | None = None,
    attempt: int = 1,
    downloads: Iterable[DownloadProgress] = (),
    tasks: Iterable[TextGeneration] = (),
) -> State:
    """A state of the given parts, as the log of master `a` could have made it; statuses may be short names."""
    facts = nodes if isinstance(nodes, Mapping) else {name: a_node(name) for name in nodes}
    state = State(index=100, term=1, cluster_id="c-test", master="a", voters=("a",))
    state.nodes = {name: Node(facts=each, incarnation=1) for name, each in facts.items()}
    state.instances = {each.instance_id: each for each in instances}
    for runner_id, status in (runners or {}).items():
        state.runners[runner_id] = Runner(
            status=a_status(status) if isinstance(status, str) else status, attempt=attempt, since_index=0, since=at(0)
        )
    for progress in downloads:
        state.downloads.setdefault(progress.node_id, {})[progress.model_id] = progress
    state.tasks = {each.task_id: each for each in tasks}
    return state


def a_local(node_id: str, state: State, runners: Mapping[str, str | RunnerStatus] | None = None) -> Local:
    """What a node really runs: processes of instances in the state (or of one that it no longer knows, `i`)."""
    local = Local(node_id)
    for runner_id, status in (runners or {}).items():
        instance = state.instance_of_runner(runner_id) or an_instance(runner_id.rpartition("-")[0], (node_id,))
        known = a_status(status) if isinstance(status, str) and status else status
        local.runners[runner_id] = runner = LocalRunner(
            runner_id, instance, attempt=1, status=None if isinstance(known, str) else known
        )
        # Of a runner that is past connecting, siblings that are idle are not those that it connected to.
        known_ones = [each for each in instance.runner_ids if each in state.runners]
        runner.group = {
            each: state.runners[each].attempt
            for each in known_ones
            if runner.kind == "RunnerConnecting" or state.runners[each].status.type != "RunnerIdle"
        }
    return local
