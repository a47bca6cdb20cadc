"""Items: the state in the shapes that scripts rely on. Pure, from frozen records; bytes, seconds and RFC 3339 raw."""

from datetime import datetime

from exo_cli.engine.core.events import DownloadKind
from exo_cli.engine.core.ids import instance_id_in
from exo_cli.engine.core.runners import SERVING, RunnerLoading
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import State

Item = dict[str, object]
_WORDS = {
    "RunnerIdle": "has started",
    "RunnerConnecting": "connects to its group",
    "RunnerConnected": "is connected",
    "RunnerLoading": "loads",
    "RunnerLoaded": "has loaded",
    "RunnerWarmingUp": "warms up",
    "RunnerReady": "is ready",
    "RunnerRunning": "is ready",
    "RunnerShuttingDown": "is ending",
    "RunnerShutdown": "has ended",
    "RunnerFailed": "has failed",
}


def runner_items(state: State) -> list[Item]:
    """`exo runners`: one item a runner, placed or left over, in order of instance and rank."""
    items: list[Item] = []
    seen: set[str] = set()
    for instance in state.instances.values():
        for runner_id in instance.runner_ids:
            seen.add(runner_id)
            items.append(_runner_item(state, runner_id, instance))
    items += [_runner_item(state, runner_id, None) for runner_id in state.runners if runner_id not in seen]
    return items


def _runner_item(state: State, runner_id: str, instance: Instance | None) -> Item:
    runner = state.runners.get(runner_id)
    shard = instance.shard_of(runner_id) if instance else None
    failures = state.failures.get(instance.instance_id) if instance else None
    error = getattr(runner.status, "error_message", None) if runner else None
    before = failures.last_error if failures is not None and failures.runner_id == runner_id else None
    is_well = runner is not None and runner.status.type in SERVING
    return {
        "runner_id": runner_id,
        "instance_id": instance.instance_id if instance else instance_id_in(runner_id),
        "node_id": shard.node_id if shard else None,
        "model": instance.model_card.model_id if instance else None,
        "engine": instance.engine if instance else None,
        "strategy": instance.strategy if instance else None,
        "rank": shard.rank if shard else None,
        "world_size": shard.world_size if shard else None,
        "layers": [shard.start_layer, shard.end_layer] if shard else None,
        "status": runner.status.type if runner else None,
        "since": moment(runner.since) if runner else None,
        "error": error or (None if is_well else before),
        "last_error": error or before,
        "failures": failures.count if failures else 0,
    }


def instance_items(state: State) -> list[Item]:
    """All placed models."""
    return [instance_item(state, instance) for instance in state.instances.values()]


def instance_item(state: State, instance: Instance) -> Item:
    """One placed model, and how far it is: pending, downloading, loading, ready or failed."""
    failures = state.failures.get(instance.instance_id)
    status, progress = instance_status(state, instance)
    return {
        "instance_id": instance.instance_id,
        "model": instance.model_card.model_id,
        "status": status,
        "strategy": instance.strategy,
        "engine": instance.engine,
        "context_tokens": instance.context_tokens,
        "runners": list(instance.runner_ids),
        "nodes": list(instance.node_ids),
        "progress": progress,
        "error": _error(state, instance) or (failures.last_error if failures else None),
    }


def going_item(state: State, instance_id: str) -> Item:
    """An instance that was deleted, while its runners end."""
    left = [each for each in state.runners if instance_id_in(each) == instance_id]
    return {
        "instance_id": instance_id,
        "status": "deleting",
        "progress": f"{len(left)} runners are ending" if left else "deleted",
        "runners": left,
    }


def going_items(state: State) -> list[Item]:
    """All of those."""
    going = dict.fromkeys(instance_id_in(runner_id) for runner_id in state.runners)
    return [going_item(state, instance_id) for instance_id in going if instance_id not in state.instances]


def _error(state: State, instance: Instance) -> str | None:
    for node_id in instance.node_ids:
        progress = state.downloads.get(node_id, {}).get(instance.model_card.model_id)
        if progress is not None and progress.kind == DownloadKind.FAILED:
            return f"download on {node_id} failed: {progress.error_message}"
    return None


def instance_status(state: State, instance: Instance) -> tuple[str, str]:
    """One word, and a few for people about what is going on."""
    failures = state.failures.get(instance.instance_id)
    if failures is not None and failures.terminal:
        return "failed", f"failed {failures.count} times in a row: {failures.last_error}"
    runners = [state.runners.get(runner_id) for runner_id in instance.runner_ids]
    ready = sum(runner is not None and runner.status.type in SERVING for runner in runners)
    if ready == len(runners):
        return "ready", f"{ready}/{len(runners)} runners ready"
    for node_id in instance.node_ids:
        progress = state.downloads.get(node_id, {}).get(instance.model_card.model_id)
        if progress is not None and progress.kind == DownloadKind.ONGOING:
            part = 100 * progress.downloaded_bytes // max(1, progress.total_bytes)
            return "downloading", f"downloading {part} % on {node_id}"
        if progress is not None and progress.kind == DownloadKind.FAILED:
            permanent = "failed" if progress.permanent else "downloading"
            return permanent, f"download on {node_id} failed: {progress.error_message}"
    for runner in runners:
        if runner is not None and isinstance(runner.status, RunnerLoading):
            return "loading", f"loading layer {runner.status.layers_loaded}/{runner.status.total_layers}"
    known = [f"rank {rank} {_WORDS[each.status.type]}" for rank, each in enumerate(runners) if each is not None]
    if failures is not None:
        return "loading", f"starting again after: {failures.last_error}"
    return ("loading" if known else "pending"), ", ".join(known) or "waiting for its runners"


def moment(at: datetime | None) -> str | None:
    """A time as scripts read it."""
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
