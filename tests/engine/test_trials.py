"""Trials: cures that make a log clean, the least log with the same fault as a test that fails, and first points."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exo_cli.engine.core.errors import BadDataError, NotFoundError, UsageError
from exo_cli.engine.core.events import InstanceCreated, InstanceDeleted, NodeJoined, RunnerStatusUpdated
from exo_cli.engine.core.experiments import Recorded, reason_of, shrunk
from exo_cli.engine.core.history import Placed
from exo_cli.engine.replaying import replay
from exo_cli.engine.replaying.trials import bisect, recorded, shrink, trial
from tests.builders import BEGAN, a_node, a_status, an_instance, at

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
FAULTS = [
    ("stale-after-crash.bin", "stale_runner"),
    ("node-lost.bin.zst", "stale_runner"),
    ("node-lost.bin.zst", "orphan_task"),
    ("node-lost.bin.zst", "ghost_download"),
    ("late-status.bin", "stale_runner"),
]
SHUTDOWN = {"RunnerStatusUpdated": {"runner_id": "runner-2217beaddbc496cb", "runner_status": {"RunnerShutdown": {}}}}
OURS = {
    "type": "RunnerStatusUpdated",
    "runner_id": "runner-2217beaddbc496cb",
    "runner_status": {"type": "RunnerShutdown"},
}


def recording(name):
    return str(RECORDINGS / name)


@pytest.mark.parametrize("event", [SHUTDOWN, OURS])
def test_a_shutdown_at_the_end_makes_the_log_clean(tmp_path, event):
    file = tmp_path / "event.json"
    file.write_text(json.dumps(event))
    told = trial(recording("stale-after-crash.bin"), [], [(97, str(file))])
    assert [each["id"] for each in told["vanished"]] == ["runner-2217beaddbc496cb"]
    assert (told["findings"], told["new"], told["grave"]) == ([], [], False)


def test_without_what_made_it_the_finding_is_gone():
    told = trial(recording("late-status.bin"), [46], [])
    assert (len(told["vanished"]), told["findings"]) == (1, [])
    # And without the shutdowns there are two.
    told = trial(recording("clean.bin"), [74, 75, 76, 77], [])
    assert [each["kind"] for each in told["new"]] == ["stale_runner"] * 2


def test_what_is_not_there_or_no_event_is_refused(tmp_path):
    with pytest.raises(NotFoundError, match="no record 500"):
        trial(recording("clean.bin"), [500], [])
    for text, error in (("{", BadDataError), ('{"type": "Moon"}', BadDataError), ('{"TestEvent": {}}', BadDataError)):
        (tmp_path / "event").write_text(text)
        with pytest.raises(error, match="holds no event") as caught:
            trial(recording("clean.bin"), [], [(5, str(tmp_path / "event"))])
        assert "\n" not in caught.value.message
    with pytest.raises(NotFoundError, match="cannot read"):
        trial(recording("clean.bin"), [], [(5, str(tmp_path / "none"))])


@pytest.mark.parametrize(
    ("name", "kind"), [FAULTS[0], *(pytest.param(*each, marks=pytest.mark.long) for each in FAULTS[1:])]
)
def test_a_fault_shrinks_to_a_test_that_fails_for_the_same_reason(tmp_path, name, kind):
    finding, placed, test = shrink(recording(name), kind)
    assert len(placed) <= 6
    events = recorded(recording(name))
    assert reason_of(finding) in map(reason_of, events.judge(placed).in_order())
    for number in range(len(placed)):
        fewer = placed[:number] + placed[number + 1 :]
        assert reason_of(finding) not in map(reason_of, events.judge(fewer).in_order()), "one of them is not needed"
    file = tmp_path / "test_shrunk.py"
    file.write_text(test)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout
    assert f"('{kind}', '{finding.id}'" in ran.stdout.replace('("', "('").replace('", ', "', ")


def test_a_long_log_shrinks_quickly():
    placed = [Placed(0, NodeJoined(node_id="a", facts=a_node("a"), incarnation=1), at(0))]

    def add(event):
        placed.append(Placed(len(placed), event, at(len(placed) * 0.01)))

    for number in range(3000):
        name = f"i{number}"
        add(InstanceCreated(instance=an_instance(name)))
        for status in ("Idle", "Loading", "Ready", *([] if number == 1500 else ["Shutdown"])):
            add(RunnerStatusUpdated(runner_id=f"{name}-0", runner_status=a_status(status), attempt=1))
        add(InstanceDeleted(instance_id=name))
    placed.append(Placed(len(placed), placed[0].event, at(1000)))
    events = Recorded(placed=placed)
    [finding] = events.judge(placed).in_order()
    assert (finding.kind, finding.id) == ("stale_runner", "i1500-0")
    began = time.monotonic()
    assert len(shrunk(events, finding)) <= 6
    assert time.monotonic() - began < 20
    assert placed[0].at == BEGAN


@pytest.mark.parametrize(
    ("name", "wanted", "index"),
    [
        ("stale-after-crash.bin", "runners.runner-2217beaddbc496cb.status.type == RunnerFailed", 72),
        ("stale-after-crash.bin", "stale_runner", 74),
        ("stale-after-crash.bin", "stale_runner:runner-2217beaddbc496cb", 74),
        ("node-lost.bin.zst", "orphan_task", 97),
        ("clean.bin", "runners.count >= 2", 16),
    ],
)
def test_the_first_point_where_something_holds(name, wanted, index):
    assert bisect(recording(name), wanted) == index


def test_a_condition_holds_first_where_the_folds_say_so():
    sizes = [len(replay(recording("node-lost.bin.zst"), at=n)["item"]["state"]["instances"]) for n in range(113)]
    assert bisect(recording("node-lost.bin.zst"), "instances.count == 2") == sizes.index(2)


@pytest.mark.parametrize("text", ["a b", "a is b", "runners.count ** 2"])
def test_no_condition(text):
    with pytest.raises(UsageError, match="not a condition"):
        bisect(recording("clean.bin"), text)


@pytest.mark.parametrize(
    "text", ["__class__ == 1", "nodes.__len__ == 1", "runners.x < 3", "ghost_node", "x.y.z == null2"]
)
def test_what_holds_nowhere(text):
    with pytest.raises(NotFoundError, match="holds nowhere"):
        bisect(recording("clean.bin"), text)
