"""Replayer: logs on disk and from a pipe, whole, torn, cut anywhere and damaged; exit codes; nothing is written."""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from exo_cli.engine.core.errors import BadDataError, NotFoundError
from exo_cli.engine.core.events import InstanceCreated, InstanceDeleted, NodeJoined, RunnerStatusUpdated
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.state import State
from exo_cli.engine.core.wire import Closing, Header, encode_closing, encode_header, encode_record, sealed
from exo_cli.engine.replaying import replay
from tests.builders import a_node, a_record, a_status, an_instance

EVENTS = [
    NodeJoined(node_id="a", facts=a_node("ä-node"), incarnation=1),
    InstanceCreated(instance=an_instance("i")),
    *(RunnerStatusUpdated(runner_id="i-0", runner_status=a_status(name), attempt=1) for name in ("Idle", "Ready")),
    RunnerStatusUpdated(
        runner_id="i-0", runner_status=a_status("Failed", error_message="aus, \u2026 vorbei"), attempt=1
    ),
    InstanceDeleted(instance_id="i"),
]  # fmt: skip
LATE = NodeJoined(node_id="b", facts=a_node("b"), incarnation=1)
RECORDS = [a_record(event, index, seconds=index) for index, event in enumerate(EVENTS)]


def state_at(index, records=RECORDS):
    state = State()
    for record in records[: index + 1]:
        apply(state, record)
    return state


def header(state=None):
    state = state or State()
    return encode_header(
        Header(
            version="1",
            cluster_id="c",
            node_id="a",
            base_index=state.index,
            base_term=state.term,
            state_hash=state.hash(),
            state=state.dump(),
        )
    )


def closing(state, state_hash=None):
    return encode_closing(Closing(index=state.index, term=state.term, state_hash=state_hash or state.hash()))


LINES = [header(), *map(encode_record, RECORDS)]
UNKNOWN = sealed(
    b'{"index":6,"term":1,"at":"2026-01-01T00:00:06Z","by":{"node":"a"},"cause":null,"event":{"type":"Moon"}}'
)


@pytest.fixture
def log(tmp_path):
    """A log of one file, written as it is asked for."""
    file = tmp_path / "some.log"

    def write(*lines):
        file.write_bytes(b"".join(lines))
        return str(file)

    return write


def item_of(path, **options):
    return replay(path, **options)["item"]


def test_a_file(log):
    answer = replay(log(*LINES))
    assert (answer["revision"], answer["exit_code"]) == (5, 0)
    assert answer["item"]["state"] == state_at(5).dump()
    assert answer["item"]["state_hash"] == state_at(5).hash()
    assert json.loads(json.dumps(answer)) == answer, "all of it is plain"


def segments(folder):
    folder.mkdir(parents=True)
    for first, last in [(0, 1), (2, 3), (4, 5)]:
        base = state_at(first - 1)
        lines = [header(base), *LINES[first + 1 : last + 2], closing(state_at(last))]
        (folder / f"{first:020}.log").write_bytes(b"".join(lines))
    (folder / "abandoned").mkdir()
    (folder / "new.tmp").write_bytes(b"{")


@pytest.mark.parametrize("below", ["", "log", "data/log"])
def test_a_folder_of_segments_and_what_a_node_calls_home(tmp_path, below):
    segments(tmp_path / "home" / below if below else tmp_path / "home")
    assert item_of(str(tmp_path / "home"), check=True) == item_of(str(tmp_path / "home"))
    assert item_of(str(tmp_path / "home"))["state"] == state_at(5).dump()


def test_the_standard_input(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"".join(LINES) + b'{"index":6,"te')))
    answer = replay("-")
    assert answer["revision"] == 5
    assert answer["item"]["torn_tail"] == {"path": "<stdin>", "offset": len(b"".join(LINES)), "bytes": 14}


def test_no_log_there(tmp_path):
    with pytest.raises(NotFoundError, match="there is no log"):
        replay(str(tmp_path / "none.log"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadDataError, match="holds no event log"):
        replay(str(tmp_path / "empty"))


@pytest.mark.parametrize("path", ["/dev/null", "some.log", "-", "seg"])
def test_nothing_at_all_is_no_log(tmp_path, monkeypatch, path):
    (tmp_path / "some.log").write_bytes(b"")
    (tmp_path / "seg").mkdir()
    (tmp_path / "seg" / f"{0:020}.log").write_bytes(b"")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    with pytest.raises(BadDataError, match="holds no event log") as caught:
        replay(path if path == "-" else str(tmp_path / path), at=None, check=True)
    assert caught.value.hints


# Torn tails ----------------------------------------------------------------------------------------------------------

TWO_LAST = len(LINES[-2]) + len(LINES[-1])
WHOLE = b"".join(LINES)


@pytest.mark.parametrize("zeros", [0, 4096])
def test_every_cut_of_the_last_two_records_is_a_torn_tail(tmp_path, zeros):
    file = tmp_path / "some.log"
    ends = [len(WHOLE) - TWO_LAST, len(WHOLE) - len(LINES[-1]), len(WHOLE)]
    for cut in range(ends[0], len(WHOLE) + 1):
        file.write_bytes(WHOLE[:cut] + b"\0" * zeros)
        answer = replay(str(file), check=True)
        item, whole = answer["item"], sum(cut >= end - 1 for end in ends)
        assert answer["exit_code"] == 0
        assert item["last_index"] == 2 + whole
        assert item["state"] == state_at(2 + whole).dump()
        if cut in ends and not zeros:
            assert item["torn_tail"] is None
        else:
            torn = item["torn_tail"]
            assert torn["path"] == str(file)
            assert torn["offset"] + torn["bytes"] == cut + zeros
            assert replay(str(file), strict=True)["exit_code"] == 12
    assert file.read_bytes() == WHOLE + b"\0" * zeros, "it is never written to"


def test_an_empty_newest_segment(tmp_path):
    segments(tmp_path / "log")
    (tmp_path / "log" / f"{6:020}.log").write_bytes(b"")
    answer = replay(str(tmp_path / "log"))
    assert answer["exit_code"] == 0
    assert answer["item"]["torn_tail"] == {"path": str(tmp_path / "log" / f"{6:020}.log"), "offset": 0, "bytes": 0}
    assert answer["item"]["last_index"] == 5


# Damage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(1, 5))
def test_a_flipped_byte_in_the_middle_is_refused_with_its_place(log, number):
    offset = len(b"".join(LINES[:number]))
    for at in range(offset, offset + len(LINES[number]) - 1, 7):
        damaged = bytearray(WHOLE)
        damaged[at] ^= 1
        path = log(bytes(damaged))
        with pytest.raises(BadDataError) as caught:
            replay(path)
        assert caught.value.exit_code == 12
        assert caught.value.details["record"] == number - 1
        assert caught.value.details["byte"] == offset
        assert f"record {number - 1} " in str(caught.value)
    answer = replay(path, skip_bad=True, check=True)
    assert answer["item"]["notes"]["damaged_lines"] == 1
    assert [each["kind"] for each in answer["item"]["findings"]][:1] == ["index_gap"]
    assert answer["exit_code"] == 1
    assert answer["item"]["events"] == 5, "what is behind it is read"


def test_a_header_that_cannot_be_used_is_refused(log):
    bad = encode_header(
        Header(version="1", cluster_id="c", node_id="a", base_index=3, base_term=0, state_hash="", state={"index": 2})
    )
    with pytest.raises(BadDataError, match="line 1, byte 0"):
        replay(log(bad, *LINES[1:]))
    assert item_of(log(bad, *LINES[1:]), skip_bad=True)["state"] == state_at(5).dump()


def test_an_unknown_event_stops_it_until_it_is_told_to_go_on(log):
    path = log(*LINES, UNKNOWN, encode_record(a_record(LATE, 7, seconds=7)))
    with pytest.raises(BadDataError, match="unknown event type 'Moon'"):
        replay(path)
    answer = replay(path, skip_unknown=True, check=True)
    assert [(each["kind"], each["since_index"]) for each in answer["item"]["findings"]] == [("unknown_event", 6)]
    assert (answer["revision"], answer["exit_code"]) == (7, 1)


# Where to stop -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(6))
def test_the_state_at_an_index(tmp_path, log, at):
    segments(tmp_path / "log")
    for path in (log(*LINES), str(tmp_path / "log")):
        answer = replay(path, at=at)
        assert answer["revision"] == at
        assert answer["item"]["state"] == state_at(at).dump()


def test_an_index_that_the_log_does_not_have(log):
    with pytest.raises(NotFoundError, match="has no record 6, its last one is 5"):
        replay(log(*LINES), at=6)
    with pytest.raises(NotFoundError, match="begins at record 3, after 1"):
        replay(log(header(state_at(2)), *LINES[4:]), at=1)


# Exit codes ----------------------------------------------------------------------------------------------------------

WRONG = [closing(state_at(5), "0" * 64)]
STALE = [encode_record(a_record(LATE, 6, seconds=600))]
TORN = [b'{"index":']


@pytest.mark.parametrize(
    ("lines", "options", "code"),
    [
        ([], {"check": True}, 0),
        (STALE, {}, 0),
        (STALE, {"check": True}, 1),
        (WRONG, {}, 13),
        (WRONG + STALE, {"check": True}, 13),
        (WRONG + STALE + TORN, {"check": True}, 13),
        (WRONG + STALE + TORN, {"check": True, "strict": True}, 12),
        (TORN, {"strict": True}, 12),
        ([], {"strict": True}, 0),
    ],
)
def test_the_exit_code_is_the_first_of_12_13_and_1(log, lines, options, code):
    assert replay(log(*LINES, *lines), **options)["exit_code"] == code


def test_findings_name_the_runner_that_was_left_behind(log):
    (finding,) = item_of(log(*LINES, *STALE), check=True)["findings"]
    assert finding["kind"] == "stale_runner"
    assert (finding["id"], finding["since_index"], finding["until_index"]) == ("i-0", 5, None)
    assert finding["events"] == [1, 2, 3, 4]
    assert finding["remedy"] == "exo runners forget i-0"


def test_what_is_nothing_but_damage_is_no_log_even_for_who_skips_it(log):
    with pytest.raises(BadDataError, match="holds no event log"):
        replay(log(b"\x80garbage\n", b"more\n"), skip_bad=True)
