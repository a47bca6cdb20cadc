"""Lanes: what was in which state when, what is marked in it, and that it stays small."""

import pytest

from exo_cli.engine.core import lanes
from exo_cli.engine.core.events import InstanceCreated, InstanceDeleted, NodeJoined, NodeTimedOut, RunnerStatusUpdated
from exo_cli.engine.core.lanes import Lanes
from exo_cli.engine.core.replay import Fold
from tests.builders import a_node, a_record, a_status, an_instance


def status(name, runner_id="i-0", **fields):
    return RunnerStatusUpdated(runner_id=runner_id, runner_status=a_status(name, **fields), attempt=1)


JOINED = NodeJoined(node_id="a", facts=a_node("a"), incarnation=1)
PLACED = InstanceCreated(instance=an_instance("i"))


def seen(events):
    fold, watched = Fold(), Lanes()
    fold.watch(lambda state, placed, _size: watched.see(state, placed))
    for index, event in enumerate(events):
        fold.feed(a_record(event, index, seconds=index))
    return watched


def drawn(events, findings=(), refused=()):
    item = seen(events).item(findings, refused, len(events) - 1)
    return {each["id"]: each for each in item["lanes"]}


@pytest.mark.parametrize(
    ("events", "name", "spans"),
    [
        ([JOINED], "a", [("Present", 0, None)]),
        ([JOINED, NodeTimedOut(node_id="a")], "a", [("Present", 0, 1)]),
        ([PLACED, InstanceDeleted(instance_id="i")], "i", [("Placed", 0, 1)]),
        ([PLACED, status("Idle"), status("Ready")], "i-0", [("Idle", 1, 2), ("Ready", 2, None)]),
        ([PLACED, status("Loading"), status("Loading"), status("Shutdown")], "i-0", [("Loading", 1, 3)]),
    ],
)
def test_spans(events, name, spans):
    assert [(each["status"], each["from_index"], each["to_index"]) for each in drawn(events)[name]["spans"]] == spans


def test_runners_stand_below_their_instance_and_nodes_first():
    assert list(drawn([PLACED, status("Idle"), JOINED])) == ["a", "i", "i-0"]


def test_a_finding_marks_what_it_meets_and_a_refused_report_stands_at_the_end():
    finding = {"kind": "stale_runner", "id": "i-0", "since_index": 2, "until_index": None}
    note = {"reason": "report RunnerIdle of runner i-0 is refused: x"}
    lane = drawn([PLACED, status("Idle"), status("Failed", error_message="oom")], [finding], [note])["i-0"]
    assert [bool(each["findings"]) for each in lane["spans"]] == [False, True]
    assert lane["spans"][1]["error"] == "oom"
    assert [each["index"] for each in lane["refused"]] == [2]


def test_memory_does_not_grow_with_the_log(monkeypatch):
    monkeypatch.setattr(lanes, "SPANS_KEPT", 40)
    item = seen([PLACED, *(status(name) for _ in range(500) for name in ("Ready", "Running"))]).item((), (), 1000)
    kept = sum(len(each["spans"]) for each in item["lanes"])
    assert kept <= 42
    assert kept + item["left_out"] == 1001
