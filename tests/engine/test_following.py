"""Following: the lines of a log as it is written, through rotation, restart and a torn end; and what is told of it.

The wait between two looks is where the test writes on: nothing here depends on time.
"""

from contextlib import suppress

import pytest

from exo_cli.engine.core.errors import BadDataError, UsageError
from exo_cli.engine.core.events import InstanceCreated, InstanceDeleted, NodeJoined, RunnerStatusUpdated
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.state import State
from exo_cli.engine.core.wire import Header, Record, encode_record
from exo_cli.engine.log.disk import DiskLog
from exo_cli.engine.log.growth import growing
from exo_cli.engine.replaying.following import follow
from exo_cli.engine.replaying.questions import Questions
from tests.builders import a_node, a_record, a_status, an_instance


class EnoughError(Exception):
    """The test has seen all."""


class Writer:
    """A node's log that goes on, one step at each wait."""

    def __init__(self, folder):
        self.folder, self.state = folder, State()
        self.log = DiskLog.open_or_create(folder, self.header)
        self.steps = []

    def header(self):
        state = self.state
        return Header(
            version="1", cluster_id="c", node_id="a", base_index=state.index, base_term=state.term,
            state_hash=state.hash(), state=state.dump(),
        )  # fmt: skip

    def append(self, *events, seconds=None):
        first = self.state.index + 1
        records = [
            a_record(event, first + n, seconds=first + n if seconds is None else seconds)
            for n, event in enumerate(events)
        ]
        for record in records:
            apply(self.state, record)
        self.log.append(records)

    def rotate(self):
        self.log.rotate(self.header())

    def restart(self):
        self.state = State()
        self.log.restart(self.header())

    def wait(self):
        if not self.steps:
            raise EnoughError
        self.steps.pop(0)()


@pytest.fixture
def writer(tmp_path):
    made = Writer(tmp_path / "log")
    yield made
    made.log.close()


def joined(name):
    return NodeJoined(node_id=name, facts=a_node(name), incarnation=1)


def status(name, **fields):
    return RunnerStatusUpdated(runner_id="i-0", runner_status=a_status(name, **fields), attempt=1)


def newest(writer):
    return max(writer.folder.glob("*.log"))


def seen(writer, *, path=None, folder=True):
    lines = []
    with suppress(EnoughError):
        for line, _ in growing(path or newest(writer), writer.folder if folder else None, writer.wait):
            lines.append(line.index if isinstance(line, Record) else type(line).__name__)
    return lines


def test_lines_as_they_come(writer):
    writer.append(joined("a"))
    writer.steps = [lambda: writer.append(joined("b"), joined("c")), lambda: None, lambda: writer.append(joined("d"))]
    assert seen(writer) == ["Header", 0, 1, 2, 3]


def test_across_rotations_also_when_two_came_at_once(writer):
    def twice():
        writer.append(joined("b"))
        writer.rotate()
        writer.append(joined("c"))
        writer.rotate()

    writer.append(joined("a"))
    writer.steps = [twice, lambda: writer.append(joined("d"))]
    assert seen(writer) == ["Header", 0, 1, "Header", 2, "Header", 3]


def test_across_a_restart(writer):
    writer.append(joined("a"), joined("b"))
    writer.steps = [writer.restart, lambda: writer.append(joined("c"))]
    assert seen(writer) == ["Header", 0, 1, "Header", 0]


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_half_a_line_waits_and_one_that_is_cut_off_is_forgotten(writer, cut):
    writer.append(joined("a"))
    raw = encode_record(a_record(joined("b"), 1, seconds=1))
    file, whole = newest(writer), newest(writer).stat().st_size

    def add(piece):
        with file.open("ab") as end:
            end.write(piece)

    def cut_and_go_on():
        with file.open("r+b") as end:
            end.truncate(whole)
        add(raw)

    writer.steps = [lambda: add(raw[:cut]), lambda: None, cut_and_go_on]
    assert seen(writer) == ["Header", 0, 1]


def test_a_file_alone_ends_when_it_is_gone(writer):
    writer.append(joined("a"))
    path = newest(writer)
    writer.steps = [lambda: path.unlink()]
    assert len(list(growing(path, None, writer.wait))) == 2


def test_a_damaged_line_and_one_without_an_end(writer):
    path = newest(writer)
    for rubbish in (b"{}\n", b"\0" * (40 << 20)):
        with path.open("ab") as end:
            end.write(rubbish)
        with pytest.raises(BadDataError, match="line 2 is damaged"):
            list(growing(path, None, writer.wait))


def told(path, writer, **asked):
    rows, found = [], []
    questions = Questions(on_event=lambda row: rows.append(row["index"]), **asked)
    with pytest.raises(EnoughError):
        follow(str(path), questions, lambda each: found.append((each["kind"], each["until_index"])), wait=writer.wait)
    return rows, found


def test_the_last_ten_are_told_and_then_each_that_comes(writer):
    writer.append(*(joined(f"n{n}") for n in range(30)))
    writer.steps = [lambda: writer.append(joined("x"))]
    assert told(writer.folder, writer)[0] == [*range(20, 30), 30]
    writer.steps = [lambda: writer.append(joined("y"))]
    assert told(writer.folder, writer, first=-3)[0] == [*range(28, 32)]
    assert told(writer.folder, writer, filters=("id=y",))[0] == [31]


def test_it_begins_in_the_segment_that_has_what_is_told(writer):
    for n in range(5):
        writer.append(joined(f"n{n}"), joined(f"m{n}"))
        writer.rotate()
    assert told(writer.folder, writer, first=3)[0] == [*range(3, 10)]


def test_a_finding_is_told_when_it_begins_and_when_it_is_over(writer):
    writer.append(joined("a"), InstanceCreated(instance=an_instance("i", ("a",))), status("Idle"), status("Ready"))
    writer.append(status("Running"), InstanceDeleted(instance_id="i"))
    # The clock of this machine is far ahead of the records: what is not settled by now nobody settles.
    writer.steps = [lambda: None, lambda: writer.append(status("Shutdown")), lambda: None]
    rows, found = told(writer.folder, writer)
    assert rows == [*range(7)]
    assert found == [("stale_runner", None), ("stale_runner", 6)]


def test_what_does_not_grow(tmp_path):
    recording = tmp_path / "events.bin"
    recording.write_bytes(b"\0\0\0\x0c\x81\xa9TestEvent\x80")
    for path in (str(recording), "-"):
        with pytest.raises((UsageError, BadDataError)):
            follow(path, Questions(), print)
