"""Consensus: places in the log, terms that only grow, and a tail that counts once it is durable."""

import pytest

from exo_cli.engine.core.consensus import Consensus
from exo_cli.engine.core.events import By, TaskDeleted
from tests.builders import a_record, at

BY = By(node="a")


def events(*names):
    return [TaskDeleted(task_id=name) for name in names]


def a_master(term=3, last_index=9):
    consensus = Consensus("a", term, last_index)
    consensus.take_over()
    return consensus


def test_places_follow_without_gap():
    consensus = a_master()
    first = consensus.propose(events("x", "y"), BY, at(0))
    second = consensus.propose(events("z"), BY, at(1))
    assert [each.index for each in first + second] == [10, 11, 12]
    assert {each.term for each in first + second} == {4}
    assert consensus.propose([], BY, at(1)) == []


def test_only_the_master_gives_places():
    with pytest.raises(AssertionError, match="only the master"):
        Consensus("a", 1, 0).propose(events("x"), BY, at(0))


def test_a_record_counts_once_it_is_durable():
    consensus = a_master()
    x, y, z = consensus.propose(events("x", "y", "z"), BY, at(0))
    assert consensus.appended(9) == []
    assert consensus.appended(11) == [x, y]
    assert consensus.appended(11) == []
    assert consensus.appended(12) == [z]


def test_a_tail_that_was_not_written_gives_its_places_back():
    consensus = a_master()
    consensus.propose(events("x"), BY, at(0))
    consensus.appended(10)
    lost = consensus.propose(events("y", "z"), BY, at(0))
    assert consensus.drop_tail() == lost
    assert [each.index for each in consensus.propose(events("again"), BY, at(0))] == [11]


def test_terms_only_grow():
    follower = Consensus("b", 2, 9)
    follower.accept([a_record(events("x")[0], 10, term=5)])
    follower.accept([a_record(events("y")[0], 11, term=5)])
    assert follower.term == 5
    follower.take_over()
    assert follower.term == 6


def test_what_does_not_follow_is_a_bug():
    with pytest.raises(AssertionError, match="record 12 does not follow 9"):
        Consensus("b", 2, 9).accept([a_record(events("x")[0], 12)])


def test_another_history_is_adopted_whole():
    consensus = a_master()
    consensus.propose(events("x"), BY, at(0))
    consensus.adopt(7, 100)
    assert (consensus.is_master, consensus.term, consensus.last_index, consensus.tail) == (False, 7, 100, [])


def test_times_are_as_fine_as_they_are_written():
    (record,) = a_master().propose(events("x"), BY, at(1.2345678))
    assert record.at == at(1.234)
