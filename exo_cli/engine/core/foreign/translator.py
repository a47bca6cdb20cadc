"""The translator: our event for each foreign one, in order, and counts of what has no place in our state."""

import re
from collections import Counter
from collections.abc import Callable
from typing import cast

from exo_cli.engine.core.events import (
    DeleteReason,
    DownloadKind,
    DownloadProgress,
    Event,
    InstanceCreated,
    InstanceDeleted,
    NodeDownloadProgress,
    NodeGatheredInfo,
    NodeTimedOut,
    RunnerStatusUpdated,
    TaskCreated,
    TaskDeleted,
    TaskStatusUpdated,
    TopologyEdgeCreated,
    TopologyEdgeDeleted,
)
from exo_cli.engine.core.foreign.kinds import KINDS
from exo_cli.engine.core.foreign.values import Fields, edge_of, instance_of, n_bytes, tagged
from exo_cli.engine.core.runners import TRANSITIONS, RunnerShutdown
from exo_cli.engine.core.tasks import TaskStatus
from exo_cli.engine.core.topology import NodeFacts

COMMANDS_KEPT = 10_000
_PLAIN = re.compile(r"[A-Za-z0-9-]{1,64}")  # it becomes a part of a command line


class UnknownKindError(ValueError):
    """An event that the public system did not have when this was written."""


class Translator:
    """Gives our event for each foreign one, in order. `notes` counts what is seen and has no place in our state."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self.notes: Counter[str] = Counter()
        self._facts: dict[str, NodeFacts] = {}
        self._identities: set[str] = set()
        self._ports: set[str] = set()
        self._shards: dict[tuple[str, str], object] = {}
        self._commands: dict[str, str] = {}

    def remedy(self, kind: str, subject: str) -> str:
        """What to run against the public system, whose API listens on port 52415, about a finding."""
        if kind == "orphan_task" and (command_id := self._commands.get(subject)):
            return f"curl -X POST http://localhost:52415/v1/cancel/{command_id}"
        if kind == "no_progress":
            return f"curl -X DELETE http://localhost:52415/instance/{subject}"
        path = {"stale_runner": f"/runners/{subject}", "orphan_task": f"/tasks/{subject}"}.get(kind, "")
        return f"curl http://localhost:52415/state{path}  # no request takes it away: restart every node"

    def translate(self, kind: str, fields: Fields) -> Event | None:
        """Our event, or None for a kind that is only counted.

        Raises:
            UnknownKindError: there is no such kind.
            ValueError: its fields are not what they are in that kind.
        """
        if kind not in KINDS:
            raise UnknownKindError(f"{kind[:64]!a} is no event of the public system")
        make = _MAKERS.get(kind)
        if make is None:
            self.notes[f"{kind}_events"] += 1
            return None
        try:
            return make(self, fields)
        except (KeyError, TypeError, AttributeError, StopIteration) as error:
            raise ValueError(f"{kind} without what belongs to it ({type(error).__name__}: {error})") from None

    # What nothing in our state holds -----------------------------------------------------------------------------

    def remember_command(self, task_id: str, command_id: object) -> None:
        """By which command a task can be cancelled, for as long as the last COMMANDS_KEPT are known."""
        if isinstance(command_id, str) and _PLAIN.fullmatch(command_id):
            self._commands[task_id] = command_id
            if len(self._commands) > COMMANDS_KEPT:
                del self._commands[next(iter(self._commands))]

    def _gathered(self, fields: Fields) -> Event | None:
        node_id = str(fields["node_id"])
        info = cast("Fields", fields["info"])
        known = self._facts.get(node_id) or _no_facts(node_id)
        self._facts[node_id] = facts = known.model_copy(update=self._told(node_id, info))
        return NodeGatheredInfo(node_id=node_id, facts=NodeFacts.model_validate(facts.model_dump()))

    def _told(self, node_id: str, info: Fields) -> dict[str, object]:
        memory = info if "ram_total" in info else cast("Fields", info.get("MacmonMetrics") or {}).get("memory")
        if memory:
            return {
                "memory_bytes": memory["ram_total"]["in_bytes"],
                "memory_available_bytes": memory["ram_available"]["in_bytes"],
            }
        name, inner = next(iter(info.items()))
        match name:
            case "MiscData":
                self._identities.add(node_id)
                return {"name": str(inner["friendly_name"])[:128]}
            case "StaticNodeInformation":
                self._identities.add(node_id)
                return {"platform": f"{inner.get('model_id')} {inner.get('os_version')}"[:64]}
            case "NodeBackends":
                self._identities.add(node_id)
                return {"backends": tuple(str(each) for each in inner["backends"])}
            case _:
                return {}

    def _timed_out(self, fields: Fields) -> Event:
        node_id = str(fields["node_id"])
        self._facts.pop(node_id, None)
        # Its identity and backends stay in the state of the public system, one of each for every start of a node.
        self.notes["identities_left"] += node_id in self._identities
        return NodeTimedOut(node_id=node_id)

    def _status(self, fields: Fields) -> Event:
        runner_id = str(fields["runner_id"])
        kind, inner = tagged(fields["runner_status"])
        if kind not in TRANSITIONS:
            raise ValueError(f"{kind[:64]!a} is no status of a runner")
        if kind == "RunnerReady":
            self._note_port(runner_id, inner.get("prefill_server_port"))
        if kind == "RunnerShutdown":
            self._ports.discard(runner_id)
        kept = _STATUS_FIELDS.get(kind, ())
        status: dict[str, object] = {"type": kind, **{name: inner[name] for name in kept if name in inner}}
        return RunnerStatusUpdated.model_validate({"runner_id": runner_id, "runner_status": status})

    def _note_port(self, runner_id: str, port: object) -> None:
        if port is not None:
            self._ports.add(runner_id)
        elif runner_id in self._ports:
            self.notes["ports_left"] += 1

    def _download(self, fields: Fields) -> Event:
        kind, inner = tagged(fields["download_progress"])
        _, shard = tagged(inner["shard_metadata"])
        model_id, node_id = str(shard["model_card"]["model_id"]), str(inner["node_id"])
        part = (shard.get("start_layer"), shard.get("end_layer"), shard.get("device_rank"))
        # Two shards of one model on one node are one entry there.
        self.notes["downloads_merged"] += self._shards.get((node_id, model_id), part) != part
        self._shards[node_id, model_id] = part
        sizes = inner.get("download_progress") or inner
        total = n_bytes(sizes.get("total"))
        done = total if kind == DownloadKind.COMPLETED else n_bytes(sizes.get("downloaded"))
        return NodeDownloadProgress(
            download_progress=DownloadProgress(
                node_id=node_id,
                model_id=model_id,
                kind=DownloadKind(kind),
                downloaded_bytes=done,
                total_bytes=total,
                error_message=inner.get("error_message"),
            )
        )


def _no_facts(node_id: str) -> NodeFacts:
    return NodeFacts(name=node_id[:128], version="", memory_bytes=0, memory_available_bytes=0, cores=1)


def _created(_: Translator, fields: Fields) -> Event:
    return InstanceCreated(instance=instance_of(fields["instance"]))


def _task(translator: Translator, fields: Fields) -> Event:
    kind, inner = tagged(fields["task"])
    translator.remember_command(str(inner["task_id"]), inner.get("command_id"))
    task: dict[str, object] = {
        "type": kind,
        "task_id": inner["task_id"],
        "task_status": inner["task_status"],
        "instance_id": inner["instance_id"],
    }
    for name in _TASK_FIELDS.get(kind, ()):
        task[name] = _TASK_FACTS[name](inner)
    return TaskCreated.model_validate({"task_id": fields["task_id"], "task": task})


def _bound_runner(inner: Fields) -> object:
    bound = inner.get("bound_instance") or {}
    return inner.get("runner_id") or bound.get("bound_runner_id")


def _task_status(_: Translator, fields: Fields) -> Event:
    return TaskStatusUpdated(task_id=fields["task_id"], task_status=TaskStatus(fields["task_status"]))


def _edge_created(_: Translator, fields: Fields) -> Event | None:
    edge = edge_of(fields)
    return TopologyEdgeCreated(edge=edge) if edge else None


def _edge_deleted(_: Translator, fields: Fields) -> Event | None:
    edge = edge_of(fields)
    return TopologyEdgeDeleted(edge=edge) if edge else None


_TASK_FACTS: dict[str, Callable[[Fields], object]] = {
    "runner_id": _bound_runner,
    "model_id": lambda inner: tagged(inner["shard_metadata"])[1]["model_card"]["model_id"],
    "cancelled_task_id": lambda inner: inner["cancelled_task_id"],
}
_TASK_FIELDS = {
    "CreateRunner": ("runner_id",),
    "DownloadModel": ("model_id",),
    "ConnectToGroup": ("runner_id",),
    "LoadModel": ("runner_id",),
    "StartWarmup": ("runner_id",),
    "CancelTask": ("runner_id", "cancelled_task_id"),
    "Shutdown": ("runner_id",),
}
_STATUS_FIELDS = {
    "RunnerLoading": ("layers_loaded", "total_layers"),
    "RunnerFailed": ("error_message",),
}
_MAKERS: dict[str, Callable[[Translator, Fields], Event | None]] = {
    "TaskCreated": _task,
    "TaskStatusUpdated": _task_status,
    "TaskDeleted": lambda _, fields: TaskDeleted(task_id=fields["task_id"]),
    "InstanceCreated": _created,
    "InstanceDeleted": lambda _, fields: InstanceDeleted(
        instance_id=fields["instance_id"], reason=DeleteReason.UNKNOWN
    ),
    "RunnerStatusUpdated": Translator._status,
    # Of logs before March 2026: what a shutdown is now.
    "RunnerDeleted": lambda _, fields: RunnerStatusUpdated(
        runner_id=fields["runner_id"], runner_status=RunnerShutdown()
    ),
    "NodeTimedOut": Translator._timed_out,
    "NodeGatheredInfo": Translator._gathered,
    "NodeDownloadProgress": Translator._download,
    "TopologyEdgeCreated": _edge_created,
    "TopologyEdgeDeleted": _edge_deleted,
}
