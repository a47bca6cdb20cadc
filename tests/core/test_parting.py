"""Parting: the first record at which another reducer says something else, and what became of it."""

import pytest
from hypothesis import given, settings

from exo_cli.engine.core.events import InstanceCreated, InstanceDeleted, NodeJoined, RunnerStatusUpdated
from exo_cli.engine.core.parting import PATHS_KEPT, Parting
from exo_cli.engine.core.reducer import applied, apply
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.state import State
from tests.builders import a_node, a_record, a_status, an_instance
from tests.strategies import LOGS


def parted(reducer, records):
    fold, parting = Fold(), Parting(reducer)
    fold.watch(parting.see)
    for record in records:
        fold.feed(record)
    return parting.item(fold.state)


def log(*events):
    return [a_record(event, index) for index, event in enumerate(events)]


def status(name):
    return RunnerStatusUpdated(runner_id="i-0", runner_status=a_status(name), attempt=1)


def tidy(state, record):
    """Takes the runners of an instance with it."""
    apply(state, record)
    if isinstance(record.event, InstanceDeleted):
        for each in [each for each in state.runners if state.instance_of_runner(each) is None]:
            del state.runners[each]


PLACED, DELETED = InstanceCreated(instance=an_instance("i")), InstanceDeleted(instance_id="i")
STALE = log(PLACED, status("Idle"), status("Ready"), DELETED)


@settings(max_examples=60, deadline=None)
@given(LOGS)
def test_our_own_parts_nowhere_whether_it_changes_or_returns(records):
    for reducer in (apply, applied):
        told = parted(reducer, records)
        assert (told["parts_at"], told["there"], told["at_end"]) == (None, [], [])


def test_the_first_record_that_makes_a_difference_is_named_and_the_end_as_well():
    told = parted(tidy, STALE)
    assert (told["parts_at"]["index"], told["parts_at"]["type"]) == (3, "InstanceDeleted")
    assert [each["path"] for each in told["there"]] == ["runners.i-0"]
    assert told["there"][0]["theirs"] is None
    assert told["at_end"] == told["there"]


def test_what_meets_again_has_parted_all_the_same():
    told = parted(tidy, [*STALE, *(a_record(event, 4) for event in [status("Shutdown")])])
    assert told["parts_at"]["index"] == 3
    assert told["at_end"] == []


def test_clocks_make_no_difference():
    def later(state, record):
        apply(state, record.model_copy(update={"at": record.at.replace(year=2031)}))

    assert parted(later, STALE)["parts_at"] is None


def test_many_differences_are_cut():
    joined = [NodeJoined(node_id=f"n{each}", facts=a_node("a"), incarnation=1) for each in range(PATHS_KEPT * 2)]
    told = parted(lambda _state, record: State(index=record.index, term=record.term), log(*joined))
    assert told["parts_at"]["index"] == 0
    assert len(told["at_end"]) == PATHS_KEPT


def test_what_is_no_state_is_refused():
    with pytest.raises(TypeError, match="neither a State nor None"):
        parted(lambda _state, _record: 3, STALE)
