"""The sequencer: any order in, once and in order out (the field's ordered-buffer cases)."""

from hypothesis import given
from hypothesis import strategies as st

from exo_cli.engine.core.events import TaskDeleted
from exo_cli.engine.core.sequencer import WAITING_MAX, Sequencer
from tests.builders import a_record


def records(*indexes, mark="t"):
    return [a_record(TaskDeleted(task_id=f"{mark}{index}"), index) for index in indexes]


def out(sequencer, *indexes):
    return [each.index for each in sequencer.offer(records(*indexes))]


def test_fresh():
    sequencer = Sequencer(0)
    assert (sequencer.next_index, out(sequencer)) == (0, [])


def test_in_order():
    sequencer = Sequencer(0)
    assert (out(sequencer, 0, 1, 2), sequencer.next_index) == ([0, 1, 2], 3)


def test_shuffled():
    assert out(Sequencer(0), 2, 0, 1) == [0, 1, 2]


def test_a_gap_waits():
    sequencer = Sequencer(0)
    assert (out(sequencer, 0, 2), sequencer.next_index) == ([0], 1)
    assert (out(sequencer, 1), sequencer.next_index) == ([1, 2], 3)


def test_the_first_of_two_different_ones_wins():
    sequencer = Sequencer(0)
    assert sequencer.offer(records(1, mark="first")) == []
    assert sequencer.offer(records(1, mark="second")) == []
    given_out = sequencer.offer(records(0))
    assert [each.event.task_id for each in given_out] == ["t0", "first1"]


def test_what_came_out_is_ignored():
    sequencer = Sequencer(0)
    assert out(sequencer, 0, 1) == [0, 1]
    assert out(sequencer, 0, 1) == []
    assert sequencer.offer(records(1, mark="other")) == []
    assert (out(sequencer, 4, 2), sequencer.next_index) == ([2], 3)
    assert out(sequencer, 3) == [3, 4]


def test_what_is_missing():
    sequencer = Sequencer(3)
    assert sequencer.missing(2) is None
    assert sequencer.missing(3) == 3
    out(sequencer, 5)
    assert sequencer.missing(5) == 3


def test_a_snapshot_lets_go_of_what_it_covers():
    sequencer = Sequencer(0)
    out(sequencer, 3, 6, 7)
    sequencer.reset(5)
    assert out(sequencer, 3, 4) == []
    assert out(sequencer, 5) == [5, 6, 7]


def test_the_buffer_is_bounded():
    sequencer = Sequencer(0)
    sequencer.offer(records(*range(1, WAITING_MAX + 50)))
    came = out(sequencer, 0)
    assert len(came) == WAITING_MAX + 1
    assert sequencer.missing(WAITING_MAX + 49) == WAITING_MAX + 1


@given(st.lists(st.integers(0, 12), max_size=60), st.integers(1, 4))
def test_once_in_order_without_gaps(order, at_once):
    sequencer, came = Sequencer(0), []
    for start in range(0, len(order), at_once):
        came += out(sequencer, *order[start : start + at_once])
    assert came == list(range(len(came)))
    first_missing = next(each for each in range(14) if each not in order)
    assert len(came) == first_missing == sequencer.next_index
