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


def seen(events, *window):
    fold, watched = Fold(), Lanes(*window)
    fold.watch(lambda state, placed, _size: watched.see(state, placed))
    for index, event in enumerate(events):
        fold.feed(a_record(event, index, seconds=index))
    return watched, fold.state


def drawn(events, findings=(), refused=(), window=()):
    watched, state = seen(events, *window)
    return {each["id"]: each for each in watched.item(findings, refused, state)["lanes"]}


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
    watched, state = seen([PLACED, *(status(name) for _ in range(500) for name in ("Ready", "Running"))])
    item = watched.item((), (), state)
    kept = sum(len(each["spans"]) for each in item["lanes"])
    assert kept <= 42
    assert kept + item["left_out"] == 1001


STORY = [PLACED, status("Idle"), status("Failed", error_message="oom"), status("Idle"), JOINED, status("Ready")]


@pytest.mark.parametrize(
    ("window", "bounds", "spans"),
    [
        ((None, None), (0, 5), [("Idle", 1, 2), ("Failed", 2, 3), ("Idle", 3, 5), ("Ready", 5, None)]),
        ((3, None), (3, 5), [("Failed", 2, 3), ("Idle", 3, 5), ("Ready", 5, None)]),
        ((None, 2), (0, 2), [("Idle", 1, 2), ("Failed", 2, None)]),
        ((3, 4), (3, 4), [("Failed", 2, 3), ("Idle", 3, None)]),
        ((2, 99), (2, 5), [("Idle", 1, 2), ("Failed", 2, 3), ("Idle", 3, 5), ("Ready", 5, None)]),
    ],
)
def test_a_window_begins_with_what_was_there(window, bounds, spans):
    watched, state = seen(STORY, *window)
    item = watched.item((), (), state)
    assert (item["first_index"], item["last_index"]) == bounds
    assert item["first_at"] == f"2026-01-01T00:00:0{bounds[0]}.000Z"
    [lane] = [each for each in item["lanes"] if each["id"] == "i-0"]
    assert [(each["status"], each["from_index"], each["to_index"]) for each in lane["spans"]] == spans


def test_what_was_there_keeps_its_error_and_its_attempt():
    spans = drawn([PLACED, status("Failed", error_message="oom"), JOINED, status("Failed")], window=(2,))["i-0"][
        "spans"
    ]
    assert [(each["from_index"], each["error"]) for each in spans] == [(1, "oom")]


def test_a_window_without_an_event_shows_what_is_there():
    fold, watched = Fold(), Lanes(7)
    fold.feed(a_record(JOINED, 0))
    assert [each["id"] for each in watched.item((), (), fold.state)["lanes"]] == ["a"]


def test_a_refused_report_has_no_place_outside_or_where_the_end_is_cut_off():
    notes = [{"reason": "report of runner i-0 is refused"}, {"reason": "report of runner i-0 is refused", "index": 1}]
    assert [len(drawn(STORY, (), notes, window)["i-0"]["refused"]) for window in ((), (0, 3), (2,))] == [2, 1, 1]


def test_an_instance_stays_as_long_as_a_runner_stands_below_it(monkeypatch):
    monkeypatch.setattr(lanes, "SPANS_KEPT", 40)
    events = [PLACED, *(status(name) for _ in range(30) for name in ("Ready", "Running"))]
    events[5:5] = [InstanceDeleted(instance_id="i")]
    assert {name: lane["of"] for name, lane in drawn(events).items()} == {"i": None, "i-0": "i"}


def test_an_instance_goes_with_the_last_of_its_runners(monkeypatch):
    monkeypatch.setattr(lanes, "SPANS_KEPT", 40)
    events = [PLACED, status("Ready"), InstanceDeleted(instance_id="i"), status("Shutdown")]
    later = InstanceCreated(instance=an_instance("k"))
    events += [later, *(status(name, "k-0") for _ in range(25) for name in ("Ready", "Running"))]
    assert list(drawn(events)) == ["k", "k-0"]
