"""Replay against decoding alone; its cost with many runners; what a log of a million events takes, and answers."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path

from bench.logs import BEGAN, events_of, instance_of, write
from bench.measure import Row, interleaved, ratio, spread
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
from exo_cli.engine.core.topology import NodeFacts
from exo_cli.engine.core.wire import decode_line, encode_record
from exo_cli.engine.log.rotation import Limits
from exo_cli.engine.replaying import replay

EVENTS = 100_000
LONG, SHORT = 1_000_000, 10_000
ONE_FILE = Limits(segment_bytes=1 << 40)
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


def all_up(n_runners: int) -> Iterator[Event]:
    """Instances of two runners each come up, then work and rest for ever."""
    yield TermStarted(master="n-0", cluster_id="c-bench")
    for number in range(2):
        facts = NodeFacts(name="n", version="1", memory_bytes=1 << 34, memory_available_bytes=1 << 33, cores=8)
        yield NodeJoined(node_id=f"n-{number}", facts=facts, incarnation=1)
    instances = [instance_of(f"i-{number:012}", ["n-0", "n-1"]) for number in range(n_runners // 2)]
    for instance in instances:
        yield InstanceCreated(instance=instance)
    runner_ids = [each for instance in instances for each in instance.runner_ids]
    for step in count():
        status = COMING_UP[step] if step < len(COMING_UP) else (RunnerRunning() if step % 2 else RunnerReady())
        for runner_id in runner_ids:
            yield RunnerStatusUpdated(runner_id=runner_id, runner_status=status, attempt=1)


def records_of(n_runners: int, n_events: int) -> list[Record]:
    """The same as records that were read."""
    by, records = By(node="n-0"), list[Record]()
    for index, event in zip(range(n_events), all_up(n_runners), strict=False):
        at = BEGAN + timedelta(milliseconds=50 * index)
        line = encode_record(Record(index=index, term=1, at=at, by=by, cause=index - 1 if index else None, event=event))
        read = decode_line(line)
        assert isinstance(read, Record)
        records.append(read)
    return records


def decode_alone(path: Path) -> None:
    """The floor: each line's JSON to a record by pydantic, and nothing else."""
    decode = Record.model_validate_json
    with path.open("rb") as file:
        for line in file:
            if line.startswith(b'{"index"'):
                decode(line[:-19] + b"}")


def checked(path: Path) -> None:
    answer = replay(str(path), check=True)
    assert answer["exit_code"] == 0, "the log that is measured is a healthy one"


def memory_bytes(path: Path) -> int:
    """What a process that replays it takes at most."""
    told = subprocess.run([sys.executable, "-c", SIZE, str(path)], check=True, capture_output=True, text=True)
    return int(told.stdout) * (1 if sys.platform == "darwin" else 1024)


def against_decoding(folder: Path) -> Iterator[Row]:
    [path] = write(folder / "one", events_of(EVENTS), ONE_FILE).iterdir()
    work = {
        "floor": lambda: decode_alone(path),
        "plain": lambda: replay(str(path)),
        "checked": lambda: checked(path),
    }
    taken = interleaved(work)
    noise = spread(taken["floor"])
    yield Row("replay / decoding alone", ratio(taken["floor"], taken["plain"]), 0.5, spread=noise)
    yield Row("replay --check / decoding alone", ratio(taken["floor"], taken["checked"]), 0.3, spread=noise)
    yield Row("replay, events a second", EVENTS / min(taken["plain"]), unit="1/s")
    yield Row("replay --check, events a second", EVENTS / min(taken["checked"]), unit="1/s")


def many_runners() -> Iterator[Row]:
    """The fold alone, over records of runners that are all up; the log is decoded before."""
    for check, name in ((False, "fold an event"), (True, "fold and check an event")):
        work = {}
        for n_runners in (10, 10_000):
            records = records_of(n_runners, 3 * n_runners + 40_000)
            fold = Fold(check=check)
            for record in records[:-20_000]:
                fold.feed(record)
            work[str(n_runners)] = _Again(fold, records[-20_000:])
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
    small = memory_bytes(write(folder / "short", events_of(SHORT)))
    large = memory_bytes(folder / "long")
    yield Row("replay memory, 1 M events / 10 k", large / small, 1.2, at_least=False)
    yield Row("replay memory, 1 M events", large / 2**20, unit="MiB")


def questions(folder: Path) -> Iterator[Row]:
    """What a person waits for at 1 M events: without a sidecar, while one is made, and with it (whole processes)."""
    long = str(folder / "long")
    for each in (folder / "long").iterdir():
        os.utime(each, (0, 0))  # a log that was written to a moment ago gets no sidecar
    whole = seconds_of(lambda: replay(long, at=LONG - 1))  # to an index, the log is folded by one process
    yield Row("whole fold of 1 M events", whole, unit="s")
    side_by_side = seconds_of(lambda: replay(long))
    yield Row("the same by several processes", side_by_side, unit="s")
    if (os.cpu_count() or 1) > 1:
        yield Row("one process / several", whole / side_by_side, 1.5)
    yield Row("--check of 1 M events", seconds_of(lambda: replay(long, check=True)), unit="s")
    item = replay(long, at=LONG // 2)["item"]
    assert isinstance(item, dict)
    runner = next(iter(item["state"]["runners"]))

    def ask(*words: str) -> float:
        command = [sys.executable, "-m", "exo_cli", "replay", long, *words]
        environment = {**os.environ, "EXO_HOME": str(folder / "home")}
        return seconds_of(lambda: subprocess.run(command, check=True, capture_output=True, env=environment))

    yield Row("first question, which makes the sidecar", ask("--at", "5"), unit="s")
    asked = {"--at": ("--at", str(LONG // 2)), "--explain": ("--explain", runner)}
    asked["--why"] = ("--at", str(LONG // 2), "--why", runner)
    for name, words in asked.items():
        yield Row(f"{name} with the sidecar, whole process", min(ask(*words) for _ in range(3)), 1, False, unit="s")


def seconds_of(work: Callable[[], object]) -> float:
    """How long somebody waits for it."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def run() -> list[Row]:
    """All of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "long", events_of(LONG))
        return [*against_decoding(folder), *many_runners(), *memory(folder), *questions(folder)]
