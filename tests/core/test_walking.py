"""Walking: every place has the state and the neighbours that it has in the log, from wherever it is reached."""

import pytest
from hypothesis import given, settings

from exo_cli.engine.core import walking
from exo_cli.engine.core.events import InstanceCreated, InstanceDeleted, RunnerStatusUpdated
from exo_cli.engine.core.experiments import Recorded
from exo_cli.engine.core.history import Placed
from exo_cli.engine.core.lanes import Lanes
from exo_cli.engine.core.reducer import apply, fold_event
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.state import Node, State
from exo_cli.engine.core.walking import Walk
from exo_cli.engine.core.wire import Header
from exo_cli.walk_view import walk_lines
from tests.builders import a_node, a_record, a_status, an_instance
from tests.strategies import LOGS


def a_walk(records, findings=()):
    placed = [Placed(each.index, each.event, each.at, each.term, each.by) for each in records]
    return Walk(Recorded(placed=placed), findings)


@settings(max_examples=60, deadline=None)
@given(LOGS)
def test_each_place_is_the_fold_to_there(records):
    before, walking.STRIDE = walking.STRIDE, 4
    try:
        walk, state = a_walk(records), State()
        for place, record in enumerate(records):
            fold_event(state, record.event, record.index, record.at)
            state.index = record.index
            stand = walk.stand(place, 2)
            assert stand.state == state
            assert stand.rows[stand.here]["index"] == record.index
            around = range(max(0, place - 2), min(len(records), place + 3))
            assert [each["index"] for each in stand.rows] == list(around)
    finally:
        walking.STRIDE = before


EVENTS = [
    InstanceCreated(instance=an_instance("i")),
    RunnerStatusUpdated(runner_id="i-0", runner_status=a_status("Ready"), attempt=1),
    InstanceDeleted(instance_id="i"),
    RunnerStatusUpdated(runner_id="i-0", runner_status=a_status("Idle"), attempt=2),
]
PLACED = [Placed(index, event) for index, event in enumerate(EVENTS, 10)]


@pytest.fixture
def walk():
    recorded = Recorded(timed=False, base=State(index=9, nodes={"a": Node(facts=a_node("a"))}), placed=PLACED)
    return Walk(recorded, recorded.judge(PLACED).in_order())


@pytest.mark.parametrize(("index", "place"), [(0, 0), (10, 0), (12, 2), (13, 3), (99, None)])
def test_the_place_of_an_index(walk, index, place):
    assert walk.place_of(index) == place


@pytest.mark.parametrize(
    ("text", "place", "step", "found"),
    [("Ready", 0, 1, 1), ("Deleted", 3, 1, 2), ("Idle", 0, -1, 3), ("i-0", 1, 1, 3), ("Moon", 0, 1, None)],
)
def test_what_is_looked_for_is_found_round_the_end(walk, text, place, step, found):
    assert walk.find(text, place, step) == found


def test_findings_are_told_where_they_hold(walk):
    assert [[each.kind for each in walk.stand(place, 0).findings] for place in range(4)] == [
        [], [], ["stale_runner"], ["stale_runner"],
    ]  # fmt: skip


@pytest.mark.parametrize("lines", [6, 12, 40])
def test_the_view_fits_and_names_what_the_record_is_about(walk, lines):
    shown = walk_lines(walk.stand(3, 1), "record 13", 100, lines, None)
    assert len(shown) == lines
    text = "\n".join(shown)
    assert "record 13" in text
    if lines == 40:
        assert "*   runner i-0, which nothing places: RunnerIdle since record 13" in text
        assert "stale_runner i-0" in text
        assert "\x1b[7m" in next(each for each in shown if "RunnerReady -> RunnerIdle" in each)


def test_what_is_hostile_is_printed_as_text(walk):
    assert "\x1b]" not in "".join(walk_lines(walk.stand(0, 1), "\x1b]0;x", 80, 20, "\x1b]0;x"))


def test_what_a_header_brings_behind_a_gap_counts_from_there():
    """Records 3 and 4 are missing: what they did is in the header behind them."""
    missing = [RunnerStatusUpdated(runner_id="i-0", runner_status=a_status("Loaded"), attempt=1), EVENTS[2]]
    before = [*EVENTS[:2], RunnerStatusUpdated(runner_id="i-0", runner_status=a_status("Running"), attempt=1)]
    after = [RunnerStatusUpdated(runner_id="i-0", runner_status=a_status("Shutdown"), attempt=1)]
    records = [a_record(event, index) for index, event in enumerate([*before, *missing, *after])]
    state = State()
    for record in records[:5]:
        apply(state, record)
    header = Header(
        version="1", cluster_id="c", node_id="a", base_index=4, base_term=1, state_hash=state.hash(), state=state.dump()
    )
    fold, recorded, lanes = Fold(), Recorded(), Lanes()
    fold.watch(recorded.see)
    fold.watch(lambda met, placed, _size: lanes.see(met, placed))
    for line in (*records[:3], header, records[5]):
        fold.feed(line)
    walk = Walk(recorded)
    assert walk.stand(3, 0).state == fold.state
    assert walk.stand(2, 0).state.instances
    drawn = {each["id"]: each["spans"] for each in lanes.item((), (), fold.state)["lanes"]}
    assert [(each["status"], each["from_index"], each["to_index"]) for each in drawn["i"]] == [("Placed", 0, 5)]
    assert [each["to_index"] for each in drawn["i-0"]] == [2, 5, 5]
