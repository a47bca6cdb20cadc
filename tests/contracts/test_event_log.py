"""What every event log does, on disk or in memory."""

from datetime import UTC, datetime

import pytest

from exo_cli.engine.core.errors import NotFoundError
from exo_cli.engine.core.events import By, Record, RunnerStatusUpdated, TaskDeleted
from exo_cli.engine.core.runners import RunnerFailed
from exo_cli.engine.core.wire import Closing, Header
from exo_cli.engine.log.disk import DiskLog
from exo_cli.engine.log.memory import MemoryLog
from exo_cli.engine.log.rotation import Limits
from exo_cli.engine.ports import EventLog


def a_header(base_index: int = -1, base_term: int = 0) -> Header:
    return Header(
        version="1.0",
        cluster_id="c-1",
        node_id="n-1",
        base_index=base_index,
        base_term=base_term,
        state_hash="0" * 64,
        state={"index": base_index, "name": "größer"},
    )


def a_record(index: int, term: int = 1) -> Record:
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    return Record(index=index, term=term, at=at, by=By(node="n-1"), event=TaskDeleted(task_id=f"t-{index}"))


@pytest.fixture(params=["disk", "memory"])
def make_log(request, tmp_path):
    made = []

    def make(header: Header, **options) -> EventLog:
        if request.param == "disk":
            log: EventLog = DiskLog.open_or_create(tmp_path / f"log{len(made)}", lambda: header, **options)
        else:
            log = MemoryLog(header, **options)
        made.append(log)
        return log

    yield make
    for log in made:
        log.close()


def test_a_new_log_is_empty(make_log):
    log = make_log(a_header())
    assert log.last_index == -1
    assert log.first_index == 0
    assert log.read(0) == []
    assert log.read(5) == []


def test_a_log_that_begins_at_a_snapshot(make_log):
    log = make_log(a_header(base_index=41, base_term=3))
    assert (log.first_index, log.last_index, log.last_term) == (42, 41, 3)
    log.append([a_record(42, 3)])
    assert log.read(42) == [a_record(42, 3)]
    with pytest.raises(NotFoundError, match="begins at record 42, not at 41"):
        log.read(41)


def test_what_was_appended_is_read(make_log):
    log = make_log(a_header())
    log.append([a_record(0), a_record(1)])
    log.append([])
    log.append([a_record(2, term=4)])
    assert (log.last_index, log.last_term) == (2, 4)
    assert log.read(0) == [a_record(0), a_record(1), a_record(2, term=4)]
    assert log.read(2) == [a_record(2, term=4)]
    assert log.read(3) == []


def test_any_text_comes_back(make_log):
    log = make_log(a_header())
    status = RunnerFailed(error_message='"crc":"00000000"}\n,"crc":"00000000"}\n\0ß🦀\u2028')
    record = a_record(0).model_copy(update={"event": RunnerStatusUpdated(runner_id="r-0", runner_status=status)})
    log.append([record])
    assert log.read(0) == [record]


def test_times_are_kept_to_the_millisecond(make_log):
    log = make_log(a_header())
    exact = a_record(0).model_copy(update={"at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)})
    log.append([exact])
    assert log.read(0) == [a_record(0)]


def test_a_read_takes_at_least_one_and_about_the_limit(make_log):
    log = make_log(a_header())
    log.append([a_record(index) for index in range(300)])
    assert [record.index for record in log.read(100, limit_bytes=1)] == [100]
    some = log.read(7, limit_bytes=2000)
    assert [record.index for record in some] == list(range(7, 7 + len(some)))
    assert 5 < len(some) < 30
    seen, first = 0, 0
    while batch := log.read(first, limit_bytes=3000):
        seen, first = seen + len(batch), batch[-1].index + 1
    assert seen == 300


@pytest.mark.parametrize("indexes", [[1], [0, 2], [0, 0], [5]])
def test_a_gap_is_our_own_fault(make_log, indexes):
    log = make_log(a_header())
    with pytest.raises(AssertionError):
        log.append([a_record(index) for index in indexes])
    assert log.last_index == -1
    log.append([a_record(0)])
    assert log.read(0) == [a_record(0)]


def test_a_restart_forgets_what_was_here(make_log):
    log = make_log(a_header())
    log.append([a_record(index) for index in range(5)])
    log.restart(a_header(base_index=1, base_term=9))
    assert (log.first_index, log.last_index, log.last_term) == (2, 1, 9)
    assert log.header.base_term == 9
    assert log.read(2) == []
    log.append([a_record(2, 9)])
    assert log.read(2) == [a_record(2, 9)]


def test_a_closed_log_takes_no_more_and_closes_twice(make_log):
    log = make_log(a_header())
    log.append([a_record(0)])
    log.close(Closing(index=0, term=1, state_hash="0" * 64))
    log.close()
    with pytest.raises(AssertionError):
        log.append([a_record(1)])
    with pytest.raises(AssertionError):
        log.restart(a_header())


def test_a_full_segment_is_followed_by_another(make_log):
    log = make_log(a_header(), limits=Limits(segment_bytes=1000))
    assert not log.is_full
    for start in range(0, 40, 10):
        log.append([a_record(index) for index in range(start, start + 10)])
        assert log.is_full
        log.rotate(a_header(base_index=start + 9, base_term=1))
        assert not log.is_full
        assert (log.header.base_index, log.last_index, log.last_term) == (start + 9, start + 9, 1)
    log.append([a_record(40)])
    # The newest and the one before it; who needs more gets the state.
    assert log.first_index == 30
    assert [record.index for record in log.read(30)] == list(range(30, 41))
    with pytest.raises(NotFoundError):
        log.read(29)
