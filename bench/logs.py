"""Logs that look like real ones: nodes join and are lost, models come up, answer, crash, come up again, are deleted.

The same seed gives the same log. Healthy by the invariants: what ends an instance also ends its runners and tasks.
"""

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path

from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.events import (
    By,
    DeleteReason,
    DownloadKind,
    DownloadProgress,
    Event,
    InstanceCreated,
    InstanceDeleted,
    NodeDownloadProgress,
    NodeGatheredInfo,
    NodeJoined,
    NodeTimedOut,
    Record,
    RunnerStatusUpdated,
    TaskCreated,
    TaskDeleted,
    TaskStatusUpdated,
    TermStarted,
)
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.runners import (
    RunnerConnected,
    RunnerConnecting,
    RunnerFailed,
    RunnerIdle,
    RunnerLoaded,
    RunnerLoading,
    RunnerReady,
    RunnerRunning,
    RunnerShutdown,
    RunnerShuttingDown,
    RunnerStatus,
    RunnerWarmingUp,
)
from exo_cli.engine.core.shards import Instance, Shard
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import Sampling, TaskStatus, TextGeneration
from exo_cli.engine.core.topology import NodeFacts
from exo_cli.engine.core.wire import Closing, Header, encode_closing, encode_header, encode_record
from exo_cli.engine.log.rotation import Limits, tidy

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
CARD = ModelCard(
    model_id="tiny", n_layers=30, hidden_size=576, n_heads=9, n_kv_heads=3, head_dim=64, vocab_size=49152,
    storage_bytes=1 << 27, embedding_bytes=1 << 24, context_length=8192, family="llama",
)  # fmt: skip
NODES, INSTANCES = 8, 60
# How often each thing happens, of a thousand.
_WEIGHTS = {"chat": 955, "place": 20, "crash": 8, "delete": 10, "facts": 4, "lose": 1, "join": 2}


class Cluster:
    """What exists, and the stories that go on in it. A story is a generator of events; several go on at once."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.numbers = count()
        self.nodes: list[str] = []
        self.instances: dict[str, Instance] = {}
        self.attempts: dict[str, int] = {}
        self.busy: set[str] = set()
        self.stories: list[Iterator[Event]] = []
        self.is_urgent = False

    def events(self) -> Iterator[Event]:
        """For ever."""
        yield TermStarted(master="n-0", cluster_id="c-bench")
        for _ in range(3):
            yield from self.join()
        story: Iterator[Event] = iter(())
        while True:
            if len(self.stories) < 6:
                self.stories.append(getattr(self, self.dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0])())
            if not self.is_urgent:
                story = self.dice.choice(self.stories)
            if (event := next(story, None)) is None:
                self.stories.remove(story)
            else:
                yield event

    def join(self) -> Iterator[Event]:
        if len(self.nodes) < NODES:
            node_id = f"n-{next(self.numbers)}" if self.nodes else "n-0"
            self.nodes.append(node_id)
            yield NodeJoined(node_id=node_id, facts=self._facts(), incarnation=1)

    def facts(self) -> Iterator[Event]:
        yield NodeGatheredInfo(node_id=self.dice.choice(self.nodes), facts=self._facts())

    def _facts(self) -> NodeFacts:
        free = self.dice.randrange(1 << 33)
        return NodeFacts(name="n", version="1", memory_bytes=1 << 34, memory_available_bytes=free, cores=8)

    def chat(self) -> Iterator[Event]:
        if (instance_id := self._chosen()) is None:
            return
        task_id = f"t-{next(self.numbers):012}"
        task = TextGeneration(
            task_id=task_id, instance_id=instance_id, digest=f"{self.dice.getrandbits(64):016x}",
            prompt_tokens=self.dice.randrange(4000), client="exo", sampling=Sampling(),
        )  # fmt: skip
        yield TaskCreated(task_id=task_id, task=task)
        if self.dice.random() < 0.2:
            yield RunnerStatusUpdated(
                runner_id=f"{instance_id}-0", runner_status=RunnerRunning(), **self._of(instance_id)
            )
            yield RunnerStatusUpdated(
                runner_id=f"{instance_id}-0", runner_status=RunnerReady(), **self._of(instance_id)
            )
        tokens = self.dice.randrange(1, 500)
        yield TaskStatusUpdated(
            task_id=task_id, task_status=TaskStatus.COMPLETE, tokens=tokens, seconds=tokens / 20, finish_reason="stop"
        )
        yield TaskDeleted(task_id=task_id)
        self.busy.discard(instance_id)

    def _of(self, instance_id: str) -> dict[str, int]:
        return {"attempt": self.attempts[instance_id]}

    def _chosen(self) -> str | None:
        """An instance in which nothing else goes on; it is taken."""
        idle = [each for each in self.instances if each not in self.busy]
        if not idle:
            return None
        chosen = self.dice.choice(idle)
        self.busy.add(chosen)
        return chosen

    def place(self) -> Iterator[Event]:
        if len(self.instances) >= INSTANCES:
            return
        nodes = self.dice.sample(self.nodes, min(len(self.nodes), self.dice.randint(1, 3)))
        instance = instance_of(f"i-{next(self.numbers):012}", nodes)
        instance_id = instance.instance_id
        self.instances[instance_id], self.attempts[instance_id] = instance, 0
        self.busy.add(instance_id)
        yield InstanceCreated(instance=instance)
        for node_id in nodes:
            yield from self._download(node_id)
        yield from self._come_up(instance)
        self.busy.discard(instance_id)

    def _download(self, node_id: str) -> Iterator[Event]:
        total = CARD.storage_bytes
        for part in range(4):
            kind = DownloadKind.COMPLETED if part == 3 else DownloadKind.ONGOING
            progress = DownloadProgress(
                node_id=node_id, model_id=CARD.model_id, kind=kind,
                downloaded_bytes=total * (part + 1) // 4, total_bytes=total,
            )  # fmt: skip
            if node_id in self.nodes:
                yield NodeDownloadProgress(download_progress=progress)

    def _come_up(self, instance: Instance) -> Iterator[Event]:
        self.attempts[instance.instance_id] += 1
        steps: list[RunnerStatus] = [
            RunnerIdle(), RunnerConnecting(), RunnerConnected(), RunnerLoading(layers_loaded=3, total_layers=15),
            RunnerLoading(layers_loaded=9, total_layers=15), RunnerLoaded(), RunnerWarmingUp(), RunnerReady(),
        ]  # fmt: skip
        for status in steps:
            yield from self._all(instance, status)

    def _all(self, instance: Instance, status: RunnerStatus) -> Iterator[Event]:
        for runner_id in instance.runner_ids:
            yield RunnerStatusUpdated(runner_id=runner_id, runner_status=status, **self._of(instance.instance_id))

    def crash(self) -> Iterator[Event]:
        if (instance_id := self._chosen()) is not None:
            failed = RunnerFailed(error_message="killed by signal 9", phase="RunnerReady", signal=9)
            yield RunnerStatusUpdated(runner_id=f"{instance_id}-0", runner_status=failed, **self._of(instance_id))
            yield from self._all(self.instances[instance_id], RunnerShutdown())
            yield from self._come_up(self.instances[instance_id])
            self.busy.discard(instance_id)

    def delete(self) -> Iterator[Event]:
        if (instance_id := self._chosen()) is not None:
            yield from self._end(instance_id, DeleteReason.REQUESTED)

    def _end(self, instance_id: str, reason: DeleteReason) -> Iterator[Event]:
        instance = self.instances.pop(instance_id)
        yield InstanceDeleted(instance_id=instance_id, reason=reason)
        if reason is DeleteReason.REQUESTED:
            yield from self._all(instance, RunnerShuttingDown())
        yield from self._all(instance, RunnerShutdown())
        self.busy.discard(instance_id)

    def lose(self) -> Iterator[Event]:
        """A node on which nothing else goes on at the moment; the master settles it at once."""
        gone = self.dice.choice(self.nodes)
        there = [each.instance_id for each in self.instances.values() if gone in each.node_ids]
        if len(self.nodes) > 3 and gone != "n-0" and self.busy.isdisjoint(there):
            self.nodes.remove(gone)
            self.busy.update(there)
            self.is_urgent = True
            yield NodeTimedOut(node_id=gone)
            for instance_id in there:
                yield from self._end(instance_id, DeleteReason.NODE_LOST)
            self.is_urgent = False


def instance_of(instance_id: str, nodes: list[str]) -> Instance:
    """A pipeline over these nodes."""
    borders = [30 * rank // len(nodes) for rank in range(len(nodes) + 1)]
    shards = tuple(
        Shard(
            runner_id=f"{instance_id}-{rank}", node_id=node_id, rank=rank, world_size=len(nodes),
            start_layer=borders[rank], end_layer=borders[rank + 1], n_layers=30,
        )
        for rank, node_id in enumerate(nodes)
    )  # fmt: skip
    return Instance(instance_id=instance_id, model_card=CARD, context_tokens=8192, shards=shards)


def events_of(n_events: int, *, seed: int = 0) -> Iterator[Event]:
    """So many events of the cluster with this seed."""
    return islice(Cluster(seed).events(), n_events)


def write(folder: Path, events: Iterable[Event], limits: Limits | None = None) -> Path:
    """Events as a folder of segments, as a node writes, packs and drops them."""
    limits = limits or Limits()
    folder.mkdir(parents=True)
    state, by, file, size = State(), By(node="n-0"), None, 0
    for index, event in enumerate(events):
        if file is None or size >= limits.segment_bytes:
            if file is not None:
                file.write(encode_closing(Closing(index=index - 1, term=1, state_hash=state.hash())))
                file.close()
                list(tidy(folder, limits))
            file = (folder / f"{index:020}.log").open("wb")
            size = file.write(header_of(state))
        at = BEGAN + timedelta(milliseconds=200 * index)
        record = Record(index=index, term=1, at=at, by=by, cause=index - 1 if index else None, event=event)
        apply(state, record)
        size += file.write(encode_record(record))
    if file is not None:
        file.write(encode_closing(Closing(index=state.index, term=1, state_hash=state.hash())))
        file.close()
    return folder


def header_of(state: State) -> bytes:
    """The first line of a segment at a state."""
    return encode_header(
        Header(
            version="1", cluster_id="c-bench", node_id="n-0", base_index=state.index, base_term=state.term,
            state_hash=state.hash(), state=state.dump(),
        )
    )  # fmt: skip
