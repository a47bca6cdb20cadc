"""Questions: the story of a thing, the events of a log, what it is made of, and points counted from its end."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from exo_cli.engine.core.errors import NotFoundError, UsageError
from exo_cli.engine.core.events import (
    InstanceCreated,
    InstanceDeleted,
    NodeDownloadProgress,
    NodeJoined,
    NodeTimedOut,
    RunnerStatusUpdated,
    TaskCreated,
    TaskStatusUpdated,
)
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import TaskStatus
from exo_cli.engine.core.wire import Header, encode_header, encode_record
from exo_cli.engine.replaying import replay
from exo_cli.engine.replaying.questions import Questions
from tests.builders import BEGAN, a_download, a_node, a_record, a_status, a_task, an_instance

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
LEFT = "its instance is gone, and no RunnerShutdown ever came"
PAIR = an_instance("i", ("a", "b"))


def status(runner_id, name, **fields):
    return RunnerStatusUpdated(runner_id=runner_id, runner_status=a_status(name, **fields), attempt=1)


EVENTS = [
    NodeJoined(node_id="a", facts=a_node("a"), incarnation=1),
    NodeJoined(node_id="b", facts=a_node("b"), incarnation=1),
    InstanceCreated(instance=PAIR),
    status("i-0", "Idle"),
    status("i-1", "Idle"),
    status("i-1", "Ready"),
    TaskCreated(task_id="t", task=a_task("t", "i")),
    NodeTimedOut(node_id="b"),
    TaskStatusUpdated(task_id="t", task_status=TaskStatus.FAILED, error_message="node lost"),
    InstanceDeleted(instance_id="i", reason="node_lost"),
    status("i-0", "Shutdown"),
]


def a_log(path, events=EVENTS, seconds=1.0):
    empty = State()
    header = Header(
        version="1",
        cluster_id="c",
        node_id="a",
        base_index=-1,
        base_term=0,
        state_hash=empty.hash(),
        state=empty.dump(),
    )
    records = [a_record(event, index, seconds=seconds * index) for index, event in enumerate(events)]
    path.write_bytes(encode_header(header) + b"".join(map(encode_record, records)))
    return str(path)


@pytest.fixture
def log(tmp_path):
    return a_log(tmp_path / "log")


def story(path, wanted, **options):
    return replay(path, questions=Questions(explain=wanted, **options))["item"]["story"]


def indexes(told):
    return [each["index"] for each in told["moments"]]


@pytest.mark.parametrize(
    ("wanted", "expected", "now"),
    [
        ("i-0", [2, 3, 9, 10], "it is not in the state"),
        ("i-1", [2, 4, 5, 7, 9], f"it is RunnerReady since record 5, {LEFT}"),
        ("i", [2, 3, 4, 5, 6, 7, 8, 9], "it is not in the state"),
        ("t", [6, 8, 9], "it is Failed"),
        ("a", [0, 2, 3, 9], "it is a member"),
        ("b", [1, 2, 4, 5, 7, 9], "it is not in the state"),
        ("tiny", [2, 9], "it is not placed"),
    ],
)  # fmt: skip
def test_a_story_has_all_that_has_to_do_with_a_thing(log, wanted, expected, now):
    told = story(log, wanted)
    assert (told["id"], indexes(told)) == (wanted, expected)
    assert told["now"] == now


def test_the_story_of_the_stale_runner_names_its_whole_life():
    told = story(str(RECORDINGS / "stale-after-crash.bin"), "runner-2217")
    sentences = {each["index"]: each["what"] for each in told["moments"]}
    assert "instance-3898d190f9ebdacc" in sentences[8]
    assert sentences[72].endswith("RunnerRunning -> RunnerFailed: Terminated (signal 9)")
    assert sentences[74] == "instance instance-3898d190f9ebdacc is deleted"
    assert told["now"].endswith("no RunnerShutdown ever came")
    assert [each["kind"] for each in told["findings"]] == ["stale_runner"]


def test_what_a_node_refused_and_its_runner_said_is_told_with_it(tmp_path):
    home = tmp_path / "home"
    for folder in ("data/log", "state/journal", "state/runners"):
        (home / folder).mkdir(parents=True)
    a_log(home / "data/log" / f"{0:020}.log")
    lines = [
        {"at": "2026-01-01T00:00:05Z", "kind": "refused", "code": "stale", "reason": "RunnerIdle of i-1 is too late"},
        {"at": "2026-01-01T00:00:06Z", "kind": "refused", "code": "stale", "reason": "of i-0"},
        {"at": "2026-01-01T00:00:06Z", "kind": "counts", "n_i-1": 3},
    ]
    (home / "state/journal/journal.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n{torn")
    (home / "state/runners/i-1.log").write_text("".join(f"line {n}\n" for n in range(30)))
    for path in (home, home / "data/log", home / "data/log" / f"{0:020}.log"):
        told = story(str(path), "i-1")
        assert [each["reason"] for each in told["refused"]] == ["RunnerIdle of i-1 is too late"]
        assert (told["output"][0], told["output"][-1]) == ("line 20", "line 29")


def test_what_is_not_there_and_what_is_two(log):
    with pytest.raises(NotFoundError, match="nothing in the log is called 'x'"):
        story(log, "x")
    with pytest.raises(UsageError, match="ambiguous") as caught:
        story(log, "i-")
    assert caught.value.message.splitlines()[1:] == ["  i-0", "  i-1"]


def rows(path, *filters, **bounds):
    told = []
    replay(path, questions=Questions(filters=filters, on_event=told.append, **bounds))
    return [each["index"] for each in told]


@pytest.mark.parametrize(
    ("filters", "bounds", "expected"),
    [
        ((), {}, list(range(11))),
        ((), {"first": 9}, [9, 10]),
        ((), {"first": -2}, [9, 10]),
        ((), {"first": 2, "last": -8}, [2, 3]),
        (("type=RunnerStatusUpdated",), {}, [3, 4, 5, 10]),
        (("type=RunnerStatusUpdated", "id=i-1"), {}, [4, 5]),
        (("term=7",), {}, []),
        (("node=a",), {"last": 1}, [0, 1]),
    ],
)
def test_events_are_filtered_and_bounded(log, filters, bounds, expected):
    assert rows(log, *filters, **bounds) == expected


@pytest.mark.parametrize("text", ["colour=red", "type", "=x"])
def test_no_filter(log, text):
    with pytest.raises(UsageError, match="not a filter"):
        rows(log, text)


def test_at_an_index_from_the_end_and_at_a_time(log):
    assert replay(log, at=-1)["revision"] == 10
    assert replay(log, at=-4)["revision"] == 7
    for seconds, index in ((0, 0), (3.5, 3), (4, 4), (100, 10)):
        moment = (BEGAN + timedelta(seconds=seconds)).isoformat()
        assert replay(log, at=moment)["revision"] == index
        assert replay(log, at=datetime.fromisoformat(moment).replace(tzinfo=None).isoformat())["revision"] == index
    with pytest.raises(UsageError, match="neither an index nor a time"):
        replay(log, at="tomorrow")
    with pytest.raises(UsageError, match="no times"):
        replay(str(RECORDINGS / "clean.bin"), at="2026-01-01T00:00:00Z")
    assert replay(str(RECORDINGS / "clean.bin"), at=-1)["revision"] == 77


def statistics(path, **options):
    return replay(path, questions=Questions(stats=True, **options))["item"]["statistics"]


def test_statistics_count_types_nodes_and_bytes(log, tmp_path):
    found = statistics(log)
    assert {each["type"]: each["events"] for each in found["types"]}["RunnerStatusUpdated"] == 4
    size = (tmp_path / "log").stat().st_size - len((tmp_path / "log").read_bytes().splitlines(keepends=True)[0])
    assert sum(each["bytes"] for each in found["types"]) == size
    assert found["hours"] == {"2026-01-01T00:00Z": 11}
    assert statistics(log, first=3, last=5)["types"] == [
        {"type": "RunnerStatusUpdated", "events": 3, "bytes": found["types"][0]["bytes"] - _size_of(tmp_path, 10)}
    ]


def _size_of(tmp_path, index):
    return len((tmp_path / "log").read_bytes().splitlines(keepends=True)[index + 1])


def test_a_download_that_floods_is_named(tmp_path):
    progress = [
        NodeDownloadProgress(download_progress=a_download("b", "tiny", "Ongoing", downloaded_bytes=n, total_bytes=9999))
        for n in range(400)
    ]
    quiet = statistics(a_log(tmp_path / "quiet", [*EVENTS[:2], *progress], seconds=1.0))
    loud = statistics(a_log(tmp_path / "loud", [*EVENTS[:2], *progress], seconds=0.1))
    assert (quiet["busiest"][0]["id"], quiet["busiest"][0]["flood"]) == ("b/tiny", False)
    first = loud["busiest"][0]
    assert (first["id"], first["type"], first["events"], first["flood"]) == (
        "b/tiny", "NodeDownloadProgress", 400, True,
    )  # fmt: skip


def test_a_recording_without_times_counts_its_text():
    found = statistics(str(RECORDINGS / "clean.bin"))
    assert {each["type"]: each["events"] for each in found["types"]}["ChunkGenerated"] == 24
