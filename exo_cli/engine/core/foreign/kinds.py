"""Kinds: each event of the public system (version 0.3.70), and what becomes of it here.

Kept: it is one of ours as well. Mapped: it becomes one of ours. Counted: no state of ours holds what it tells.
"""

from typing import Literal

Use = Literal["kept", "mapped", "counted"]
KINDS: dict[str, tuple[Use, str]] = {
    "TestEvent": ("counted", "does nothing there"),
    "TaskCreated": ("kept", "without the request's text"),
    "TaskAcknowledged": ("counted", "does nothing there"),
    "TaskDeleted": ("kept", ""),
    "TaskStatusUpdated": ("kept", ""),
    "TaskFailed": ("counted", "sets an error text there, and no status"),
    "InstanceCreated": ("kept", "ring and jaccl alike; facts that a card lacks stay at their least"),
    "InstanceDeleted": ("kept", ""),
    "RunnerStatusUpdated": ("kept", "without attempts; prefill ports are counted when they are left"),
    "RunnerDeleted": ("mapped", "RunnerStatusUpdated with RunnerShutdown (logs before March 2026)"),
    "NodeTimedOut": ("kept", ""),
    "NodeGatheredInfo": ("mapped", "memory, name, system and backends of a node, put together"),
    "NodeDownloadProgress": ("kept", "one entry a node and model"),
    "ChunkGenerated": ("counted", "text, which no state holds"),
    "InputChunkReceived": ("counted", "text, which no state holds"),
    "TopologyEdgeCreated": ("kept", "socket edges; RDMA edges have no place in the state"),
    "TopologyEdgeDeleted": ("kept", "socket edges"),
    "CustomModelCardAdded": ("counted", "cards of a person's own"),
    "CustomModelCardDeleted": ("counted", ""),
    "TracesCollected": ("counted", "times of work"),
    "TracesMerged": ("counted", "times of work"),
    "InstanceLinkCreated": ("counted", "which instances prefill for which"),
    "InstanceLinkDeleted": ("counted", ""),
}
