"""Replay: the fold of lines, what headers and closings are compared with, and where it stops."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exo_cli.engine.core.events import InstanceCreated, InstanceDeleted, NodeJoined, RunnerStatusUpdated, TaskCreated
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.state import State, load
from exo_cli.engine.core.tasks import CreateRunner, TaskStatus
from exo_cli.engine.core.wire import BadLineError, Closing, Header
from tests.builders import a_node, a_record, a_status, a_task, an_instance
from tests.strategies import LOGS

EVENTS = [
    NodeJoined(node_id="a", facts=a_node("a"), incarnation=1),
    InstanceCreated(instance=an_instance("i")),
    *(
        RunnerStatusUpdated(runner_id="i-0", runner_status=a_status(name), attempt=1)
        for name in ("Idle", "Loading", "Ready")
    ),
    InstanceDeleted(instance_id="i"),
    RunnerStatusUpdated(runner_id="i-0", runner_status=a_status("Shutdown"), attempt=1),
]
RECORDS = [a_record(event, index, seconds=index) for index, event in enumerate(EVENTS)]


def state_at(index, records=RECORDS):
    state = State()
    for record in records[: index + 1]:
        apply(state, record)
    return state


def a_header(state=None, /, **other):
    state = state or State()
    fields = {
        "version": "1",
        "cluster_id": "c",
        "node_id": "a",
        "base_index": state.index,
        "base_term": state.term,
        "state_hash": state.hash(),
        "state": state.dump(),
    }
    return Header.model_validate(fields | other)


def a_closing(state, /, **other):
    return Closing.model_validate({"index": state.index, "term": state.term, "state_hash": state.hash()} | other)


def folded(*lines, check=True):
    fold = Fold(check=check)
    for line in lines:
        fold.feed(line)
    return fold


def kinds(fold):
    return [(each["kind"], each["since_index"]) for each in fold.result()["findings"]]


def test_a_log_adds_up_to_its_state():
    fold = folded(a_header(), *RECORDS, a_closing(state_at(6)))
    assert fold.result() == {
        "format": "exo-log/1",
        "events": 7,
        "first_index": 0,
        "last_index": 6,
        "state_hash": state_at(6).hash(),
        "torn_tail": None,
        "state": state_at(6).dump(),
        "findings": [],
        "notes": {},
    }
    assert not fold.diverged


def test_a_log_without_records_is_the_state_it_begins_with():
    result = folded(a_header(state_at(4))).result()
    assert (result["events"], result["first_index"], result["last_index"]) == (0, None, 4)
    assert load(result["state"]) == state_at(4)


@settings(max_examples=40, deadline=None, database=None)
@given(st.integers(-1, 6), st.integers(-1, 6))
def test_segments_add_up_to_the_same_wherever_they_are_cut(one, other):
    first, second = sorted([one, other])
    lines = [a_header(), *RECORDS[: first + 1]]
    lines += [a_header(state_at(first)), *RECORDS[first + 1 : second + 1], a_closing(state_at(second))]
    lines += [a_header(state_at(second)), *RECORDS[second + 1 :]]
    fold = folded(*lines)
    assert fold.state == state_at(6)
    assert (kinds(fold), fold.diverged) == ([], False)
    suffix = folded(*lines[lines.index(a_header(state_at(second))) :])
    assert suffix.state == state_at(6), "any suffix of segments replays alone"


@pytest.mark.parametrize("index", range(-1, 7))
@pytest.mark.parametrize("check", [True, False])
def test_it_stops_where_it_is_told_to(index, check):
    fold = Fold(check=check)
    fold.stop_at(index)
    for line in [a_header(), *RECORDS[:3], a_header(state_at(2)), *RECORDS[3:], a_closing(state_at(6))]:
        fold.feed(line)
    assert fold.is_done
    assert fold.state == state_at(index)
    assert fold.result()["state_hash"] == state_at(index).hash()


def test_a_gap_never_passes_the_place_to_stop_at():
    fold = Fold()
    fold.stop_at(3)
    for line in [a_header(), *RECORDS[:3], RECORDS[5]]:
        fold.feed(line)
    assert fold.is_done
    assert fold.state == state_at(2)


# The order of the log ------------------------------------------------------------------------------------------------

ORDER = {
    "a record is missing": ([a_header(), *RECORDS[:3], *RECORDS[4:]], [("index_gap", 4)]),
    "a record comes twice": ([a_header(), *RECORDS[:3], *RECORDS[2:]], [("index_gap", 2)]),
    "the beginning is missing": (RECORDS[2:], [("index_gap", 2)]),
    "a segment is missing": ([a_header(), *RECORDS[:2], a_header(state_at(3)), *RECORDS[4:]], [("index_gap", 4)]),
    "a segment is older": ([a_header(), *RECORDS[:4], a_header(state_at(1)), *RECORDS[2:]], [("index_gap", 2)]),
    "the end is missing": ([a_header(), *RECORDS[:4], a_closing(state_at(5))], [("index_gap", 6)]),
    "an older term": (
        [a_header(), RECORDS[0], a_record(EVENTS[1], 1, term=0), *RECORDS[2:]],
        [("term_regression", 1)],
    ),
}


@pytest.mark.parametrize(("lines", "expected"), ORDER.values(), ids=ORDER)
@pytest.mark.parametrize("check", [True, False])
def test_what_is_out_of_order_is_found_without_being_asked_for(lines, expected, check):
    fold = folded(*lines, check=check)
    found = [each for each in kinds(fold) if each[0] in {"index_gap", "term_regression"}]
    assert found == expected
    assert fold.findings.is_grave
    assert not fold.diverged, "it is the gap that is told, not what follows from it"


def test_a_gap_says_what_is_missing():
    (finding,) = folded(a_header(), *RECORDS[:3], *RECORDS[5:]).result()["findings"]
    assert finding["why"] == "record 5 came after record 2: records 3 to 4 are missing"
    assert finding["remedy"] == "exo node list"


def test_behind_a_gap_a_header_brings_the_whole_state_again():
    fold = folded(a_header(), RECORDS[0], *RECORDS[2:4], a_header(state_at(3)), *RECORDS[4:], a_closing(state_at(6)))
    assert fold.state == state_at(6)
    assert ("index_gap", 2) in kinds(fold)


def test_another_history_that_says_so_is_no_gap():
    header = a_header(state_at(4), adopted_from={"term": 1, "index": 6})
    fold = folded(a_header(), *RECORDS[:2], header, *RECORDS[5:])
    assert kinds(fold) == []
    assert fold.state == state_at(6)


# Recorded hashes -----------------------------------------------------------------------------------------------------

DIVERGED = {
    "a closing": [a_header(), *RECORDS, a_closing(state_at(6), state_hash="0" * 64)],
    "a later header": [a_header(), *RECORDS[:3], a_header(state_at(2), state_hash="0" * 64), *RECORDS[3:]],
    "the first header": [a_header(state_hash="0" * 64), *RECORDS],
}


@pytest.mark.parametrize("lines", DIVERGED.values(), ids=DIVERGED)
def test_another_hash_than_recorded_is_told_once(lines):
    fold = folded(*lines, a_closing(state_at(6), state_hash="1" * 64), check=False)
    assert fold.diverged
    assert [each["kind"] for each in fold.result()["findings"]] == ["diverged"]
    assert fold.state == state_at(6)


def test_clock_times_make_no_difference_to_the_hash():
    later = [record.model_copy(update={"at": record.at.replace(year=2030)}) for record in RECORDS]
    assert not folded(a_header(), *later, a_closing(state_at(6))).diverged


@pytest.mark.parametrize("other", [{"state": {"runners": 3}}, {"base_index": 7}])
def test_a_header_whose_state_is_none_is_refused(other):
    with pytest.raises(BadLineError, match="the header's state"):
        folded(a_header(**other))


# Lines passed over ---------------------------------------------------------------------------------------------------


def test_an_unknown_event_keeps_its_place():
    fold = folded(a_header(), *RECORDS[:3])
    fold.skip(unknown=True)
    for line in [*RECORDS[4:], a_closing(state_at(6))]:
        fold.feed(line)
    assert kinds(fold) == [("unknown_event", 3)]
    assert fold.result()["notes"] == {"unknown_events": 1}
    assert not fold.diverged


def test_damage_leaves_a_gap():
    fold = folded(a_header(), *RECORDS[:3])
    fold.skip(unknown=False)
    for line in RECORDS[4:]:
        fold.feed(line)
    assert kinds(fold) == [("index_gap", 4)]
    assert fold.result()["notes"] == {"damaged_lines": 1}


def test_notes_count_what_is_no_finding():
    tasks = [
        TaskCreated(task_id="t", task=a_task("t", status=TaskStatus.CANCELLED)),
        TaskCreated(task_id="u", task=a_task("u", status=TaskStatus.COMPLETE)),
        TaskCreated(task_id="w", task=CreateRunner(instance_id="i", task_status=TaskStatus.COMPLETE)),
    ]
    records = [a_record(event, 2 + number, seconds=2) for number, event in enumerate(tasks)]
    fold = folded(a_header(), *RECORDS[:2], *records)
    assert kinds(fold) == []
    assert fold.result()["notes"] == {"worker_tasks": 1, "cancelled_tasks": 1, "finished_tasks": 1}


def test_findings_come_in_the_order_in_which_they_began():
    records = [
        a_record(event, index, seconds=40 * index)
        for index, event in enumerate([*EVENTS[:5], EVENTS[5], EVENTS[0], EVENTS[1], EVENTS[0], EVENTS[1]])
    ]
    assert kinds(folded(a_header(), *records)) == [("stale_runner", 5), ("overwritten_instance", 9)]


# Laws over any log ---------------------------------------------------------------------------------------------------


def whole(*lines):
    fold = Fold(check=True)
    for line in lines:
        fold.feed(line)
    return fold.result()


@settings(max_examples=100, deadline=None, database=None)
@given(LOGS, st.integers(0, 25))
def test_a_snapshot_anywhere_changes_nothing(records, cut):
    middle = state_at(cut - 1, records)
    parted = [*records[:cut], a_closing(middle), a_header(middle), *records[cut:]]
    assert whole(a_header(), *parted) == whole(a_header(), *records)


@settings(max_examples=100, deadline=None, database=None)
@given(LOGS, st.integers(0, 25))
def test_a_fold_that_goes_on_from_a_mark_ends_as_the_whole(records, cut):
    first, second, one = Fold(), Fold(), Fold()
    for line in (a_header(), *records[:cut]):
        first.feed(line)
    second.resume(load(first.state.dump()), first.mark())
    for line in records[cut:]:
        second.feed(line)
    for line in (a_header(), *records):
        one.feed(line)
    assert second.result() == one.result()


@settings(max_examples=50, deadline=None, database=None)
@given(LOGS)
def test_at_every_index_it_is_the_fold_to_there(records):
    for index in range(len(records)):
        fold = Fold(check=True)
        fold.stop_at(index)
        for line in (a_header(), *records):
            fold.feed(line)
        assert fold.result() == whole(a_header(), *records[: index + 1])
