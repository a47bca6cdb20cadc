"""Replay against decoding alone, with and without checks; its cost with many runners; its memory on a long log."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from bench.measure import Row, interleaved, ratio, spread
from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.events import By, Event, InstanceCreated, NodeJoined, Record, RunnerStatusUpdated, TermStarted
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.runners import (
    RunnerConnecting,
    RunnerIdle,
    RunnerLoading,
    RunnerReady,
    RunnerRunning,
    RunnerStatus,
)
from exo_cli.engine.core.shards import Instance, Shard
from exo_cli.engine.core.state import State
from exo_cli.engine.core.topology import NodeFacts
from exo_cli.engine.core.wire import Header, decode_line, encode_header, encode_record
from exo_cli.engine.replaying import replay

EVENTS = 100_000
LONG, SHORT = 1_000_000, 10_000
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
CARD = ModelCard(
    model_id="tiny", n_layers=30, hidden_size=576, n_heads=9, n_kv_heads=3, head_dim=64, vocab_size=49152,
    storage_bytes=1 << 27, embedding_bytes=1 << 24, context_length=8192, family="llama",
)  # fmt: skip
COMING_UP: tuple[RunnerStatus, ...] = (
    RunnerIdle(),
    RunnerConnecting(),
    RunnerLoading(layers_loaded=5, total_layers=15),
)
# On Linux a child's maxrss begins with that of its parent, so the kernel's own high-water mark is read there.
SIZE = """
import resource, sys
from pathlib import Path
from exo_cli.engine.replaying import replay
replay(sys.argv[1])
if sys.platform == "darwin":
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
else:
    print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


def events_of(n_runners: int) -> Iterator[Event]:
    """Instances of two runners each come up, then work and rest for ever."""
    yield TermStarted(master="n-0", cluster_id="c-bench")
    for number in range(2):
        facts = NodeFacts(name="n", version="1", memory_bytes=1 << 34, memory_available_bytes=1 << 33, cores=8)
        yield NodeJoined(node_id=f"n-{number}", facts=facts, incarnation=1)
    instances = [instance_of(f"i-{number:012}") for number in range(n_runners // 2)]
    for instance in instances:
        yield InstanceCreated(instance=instance)
    runner_ids = [each for instance in instances for each in instance.runner_ids]
    for step in count():
        status = COMING_UP[step] if step < len(COMING_UP) else (RunnerRunning() if step % 2 else RunnerReady())
        for runner_id in runner_ids:
            yield RunnerStatusUpdated(runner_id=runner_id, runner_status=status, attempt=1)


def instance_of(instance_id: str) -> Instance:
    shards = tuple(
        Shard(
            runner_id=f"{instance_id}-{rank}", node_id=f"n-{rank}", rank=rank, world_size=2,
            start_layer=15 * rank, end_layer=15 * rank + 15, n_layers=30,
        )
        for rank in range(2)
    )  # fmt: skip
    return Instance(instance_id=instance_id, model_card=CARD, context_tokens=8192, shards=shards)


def lines_of(n_runners: int, n_events: int) -> Iterator[bytes]:
    """The log's lines, header first."""
    state = State()
    yield encode_header(
        Header(
            version="1", cluster_id="c-bench", node_id="n-0", base_index=-1, base_term=0,
            state_hash=state.hash(), state=state.dump(),
        )
    )  # fmt: skip
    by = By(node="n-0")
    for index, event in zip(range(n_events), events_of(n_runners), strict=False):
        at = BEGAN + timedelta(milliseconds=50 * index)
        yield encode_record(Record(index=index, term=1, at=at, by=by, cause=index - 1 if index else None, event=event))


def write(path: Path, n_runners: int, n_events: int) -> Path:
    with path.open("wb") as file:
        file.writelines(lines_of(n_runners, n_events))
    return path


def decode_alone(path: Path) -> None:
    """The floor: each line's JSON to a record by pydantic, and nothing else."""
    decode = Record.model_validate_json
    with path.open("rb") as file:
        file.readline()
        for line in file:
            decode(line[:-19] + b"}")


def checked(path: Path) -> None:
    answer = replay(str(path), check=True)
    assert answer["exit_code"] == 0, "the log that is measured is a healthy one"


def fold_only(records: list[Record], header: Header, *, check: bool) -> None:
    fold = Fold(check=check)
    fold.feed(header)
    for record in records:
        fold.feed(record)


def memory_bytes(path: Path) -> int:
    """What a process that replays it takes at most."""
    told = subprocess.run([sys.executable, "-c", SIZE, str(path)], check=True, capture_output=True, text=True)
    return int(told.stdout) * (1 if sys.platform == "darwin" else 1024)


def against_decoding(folder: Path) -> Iterator[Row]:
    path = write(folder / "1000.log", 1000, EVENTS)
    work = {
        "floor": lambda: decode_alone(path),
        "plain": lambda: replay(str(path)),
        "checked": lambda: checked(path),
    }
    taken = interleaved(work)
    noise = spread(taken["floor"])
    yield Row("replay / decoding alone, 1,000 runners", ratio(taken["floor"], taken["plain"]), 0.5, spread=noise)
    yield Row("replay --check / decoding alone", ratio(taken["floor"], taken["checked"]), 0.3, spread=noise)
    yield Row("replay, events a second", EVENTS / min(taken["plain"]), unit="1/s")
    yield Row("replay --check, events a second", EVENTS / min(taken["checked"]), unit="1/s")


def many_runners() -> Iterator[Row]:
    """The fold alone, over records of runners that are all up; the log is decoded before."""
    for check, name in ((False, "fold an event"), (True, "fold and check an event")):
        work = {}
        for n_runners in (10, 10_000):
            header, *records = (decode_line(line) for line in lines_of(n_runners, 3 * n_runners + 40_000))
            assert isinstance(header, Header)
            known = [each for each in records if isinstance(each, Record)]
            fold = Fold(check=check)
            fold.feed(header)
            for record in known[:-20_000]:
                fold.feed(record)
            work[str(n_runners)] = _Again(fold, known[-20_000:])
        taken = interleaved(work, rounds=7)
        noise = spread(taken["10"])
        yield Row(f"{name}, 10,000 runners / 10", ratio(taken["10000"], taken["10"]), 2, at_least=False, spread=noise)


class _Again:
    """Feeds the same records to one fold over and over: their places are all that is wound back."""

    def __init__(self, fold: Fold, records: list[Record]) -> None:
        self.fold = fold
        self.records = records

    def __call__(self) -> None:
        self.fold.state.index = self.records[0].index - 1
        for record in self.records:
            self.fold.feed(record)


def memory(folder: Path) -> Iterator[Row]:
    small = memory_bytes(write(folder / "short.log", 1000, SHORT))
    large = memory_bytes(write(folder / "long.log", 1000, LONG))
    yield Row("replay memory, 1 M events / 10 k", large / small, 1.2, at_least=False)
    yield Row("replay memory, 1 M events", large / 2**20, unit="MiB")


def run() -> list[Row]:
    """All of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*against_decoding(folder), *many_runners(), *memory(folder)]
