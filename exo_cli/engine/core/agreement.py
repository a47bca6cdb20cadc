"""Agreement: whether our state is that of the public system, as far as both say the same: what its `/state` answers.

Its state is in camelCase and tagged. Compared are runners with their status, instances with who holds which layers,
downloads with their bytes, tasks with their status, and nodes.
"""

from collections.abc import Iterator
from typing import Any

from exo_cli.engine.core.foreign.values import Fields, tagged
from exo_cli.engine.core.state import State

Facts = dict[str, dict[str, object]]


def index_of(theirs: Fields) -> int:
    """The last event that is in it. Raises ValueError when it is no state."""
    index = theirs.get("lastEventAppliedIdx")
    if not isinstance(index, int) or index < -1:
        raise ValueError("lastEventAppliedIdx is missing, or no index")
    return index


def differences(state: State, theirs: Fields) -> list[dict[str, object]]:
    """Each thing that is different: its path, what we have and what they have (None: nothing).

    Raises:
        ValueError: what they have is not what a state of theirs is.
    """
    ours = _ours(state)
    try:
        others = _theirs(theirs)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a part of it is missing, or of another kind ({type(error).__name__}: {error})") from None
    return [
        {"path": f"{part}.{name}", "ours": ours[part].get(name), "theirs": others[part].get(name)}
        for part in ours
        for name in sorted(ours[part].keys() | others[part].keys())
        if ours[part].get(name) != others[part].get(name)
    ]


def _ours(state: State) -> Facts:
    return {
        "nodes": dict.fromkeys(state.nodes, "known"),
        "runners": {
            runner_id: [each.status.type, getattr(each.status, "error_message", None)]
            for runner_id, each in state.runners.items()
        },
        "instances": {
            instance_id: [
                each.model_card.model_id,
                sorted([s.node_id, s.runner_id, s.start_layer, s.end_layer] for s in each.shards),
            ]
            for instance_id, each in state.instances.items()
        },
        "downloads": {
            f"{node_id}/{model_id}": [str(each.kind), each.downloaded_bytes, each.total_bytes]
            for node_id, models in state.downloads.items()
            for model_id, each in models.items()
        },
        "tasks": {
            task_id: [each.type, str(each.task_status), each.instance_id] for task_id, each in state.tasks.items()
        },
    }


def _theirs(theirs: Fields) -> Facts:
    runners = {str(name): tagged(each) for name, each in theirs["runners"].items()}
    tasks = {str(name): tagged(each) for name, each in theirs["tasks"].items()}
    return {
        "nodes": dict.fromkeys(map(str, theirs["topology"]["nodes"]), "known"),
        "runners": {name: [kind, inner.get("errorMessage")] for name, (kind, inner) in runners.items()},
        "instances": {str(name): _instance(tagged(each)[1]) for name, each in theirs["instances"].items()},
        "downloads": dict(_downloads(theirs["downloads"])),
        "tasks": {name: [kind, inner["taskStatus"], inner["instanceId"]] for name, (kind, inner) in tasks.items()},
    }


def _instance(inner: Fields) -> list[object]:
    assigned = inner["shardAssignments"]
    shards: list[list[Any]] = []
    for node_id, runner_id in assigned["nodeToRunner"].items():
        _, shard = tagged(assigned["runnerToShard"][runner_id])
        shards.append([node_id, runner_id, shard["startLayer"], shard["endLayer"]])
    return [assigned["modelId"], sorted(shards)]


def _downloads(nodes: Fields) -> Iterator[tuple[str, list[object]]]:
    for node_id, entries in nodes.items():
        for entry in entries:
            kind, inner = tagged(entry)
            progress = inner.get("downloadProgress", inner)
            total = progress["total"]["inBytes"]
            done = total if kind == "DownloadCompleted" else progress["downloaded"]["inBytes"]
            _, shard = tagged(inner["shardMetadata"])
            yield f"{node_id}/{shard['modelCard']['modelId']}", [kind, done, total]
