"""The journal: lines that can be read, within their limit, and never a trouble for the node."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from exo_cli.engine.journal import FIELD_CHARACTERS, Journal


def a_clock():
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def tell() -> datetime:
        nonlocal at
        at += timedelta(milliseconds=1)
        return at

    return tell


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_note_is_a_line_of_json(tmp_path):
    journal = Journal(tmp_path / "journal", clock=a_clock())
    journal.note("refused", code="stale", reason="the instance is gone", index=7, ids=("a", "b"), at_all=None)
    journal.close()
    assert lines(journal.current) == [
        {
            "at": "2026-01-02T03:04:05.001Z",
            "kind": "refused",
            "code": "stale",
            "reason": "the instance is gone",
            "index": 7,
            "ids": ["a", "b"],
            "at_all": None,
        }
    ]


def test_the_time_is_the_machines_unless_told(tmp_path):
    journal = Journal(tmp_path)
    journal.note("started")
    journal.close()
    at = datetime.fromisoformat(lines(journal.current)[0]["at"])
    assert abs(at.timestamp() - time.clock_gettime(time.CLOCK_REALTIME)) < 60


def test_fields_are_cut(tmp_path):
    journal = Journal(tmp_path)
    journal.note(
        "long", text="ß" * 5000, inner={"text": ["x" * 5000]}, path=Path("/tmp"), odd=b"\xff", bad="\udc80\n\0"
    )
    journal.close()
    [line] = lines(journal.current)
    assert len(line["text"]) == len(line["inner"]) == FIELD_CHARACTERS
    assert (line["path"], line["bad"]) == ("/tmp", "\udc80\n\0")


def test_the_ring_keeps_its_limit_and_the_newest(tmp_path):
    limit = 20_000
    journal = Journal(tmp_path, limit)
    for number in range(2000):
        journal.note("input", number=number, text="x" * 50)
        if number % 10 == 0:
            journal.flush()
            assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit
    journal.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [journal.current.name, journal.older.name]
    numbers = [line["number"] for line in lines(journal.older) + lines(journal.current)]
    assert numbers == list(range(numbers[0], 2000))
    assert len(numbers) > limit // 2 // 130


def test_it_goes_on_where_it_was_and_after_a_cut_line(tmp_path):
    first = Journal(tmp_path)
    first.note("one")
    first.close()
    with first.current.open("ab") as file:
        file.write(b'{"at":"2026')
    second = Journal(tmp_path)
    second.note("two")
    second.close()
    one, cut, two = first.current.read_text().splitlines()
    assert (json.loads(one)["kind"], cut, json.loads(two)["kind"]) == ("one", '{"at":"2026', "two")


def test_counts_come_once_a_minute(tmp_path):
    journal = Journal(tmp_path)
    for second in range(130):
        journal.count("heartbeat")
        if second == 70:
            journal.count("foreign")
        journal.flush_counts(1000.0 + second)
    journal.flush()
    assert [(line["seconds"], line["n_heartbeat"], line.get("n_foreign")) for line in lines(journal.current)] == [
        (60, 61, None),
        (60, 60, 1),
    ]
    journal.close()
    assert lines(journal.current)[-1]["n_heartbeat"] == 9


def test_keys_have_an_end(tmp_path):
    journal = Journal(tmp_path)
    for number in range(10_000):
        journal.count(f"key {number}")
    journal.close()
    [line] = lines(journal.current)
    assert len(line) < 300
    assert line["n_other"] > 9000


def test_lines_wait_for_a_second_at_most(tmp_path):
    journal = Journal(tmp_path)
    journal.note("one")
    assert not journal.current.exists()
    time.sleep(1.05)
    journal.flush_counts(0.0)
    assert len(lines(journal.current)) == 1
    for number in range(2000):
        journal.note("many", number=number)
    assert len(lines(journal.current)) > 500, "much is not kept in memory"
    journal.close()
    assert len(lines(journal.current)) == 2001


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_costs_lines_and_nothing_else(tmp_path):
    (tmp_path / "journal.jsonl").symlink_to("/dev/full")
    journal = Journal(tmp_path)
    for _ in range(3):
        journal.note("one")
        journal.flush()
    assert journal.lost == 3
    (tmp_path / "journal.jsonl").unlink()
    journal.note("two")
    journal.close()
    assert [line["kind"] for line in lines(journal.current)] == ["two"]


def test_no_folder_costs_lines_and_nothing_else(tmp_path):
    (tmp_path / "file").write_text("")
    journal = Journal(tmp_path / "file" / "journal")
    journal.note("one")
    journal.close()
    assert journal.lost == 1


def test_a_field_that_cannot_be_written_costs_its_line(tmp_path):
    loop: list = []
    loop.append(loop)
    journal = Journal(tmp_path)
    journal.note("loop", value=loop)
    journal.note("deep", value=json.loads("[" * 900 + "]" * 900))
    journal.note("fine")
    journal.close()
    assert journal.lost + len(lines(journal.current)) == 3
    assert lines(journal.current)[-1]["kind"] == "fine"


def test_it_leaves_no_file_open(tmp_path):
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(20):
        journal = Journal(tmp_path, 1000)
        for _ in range(20):
            journal.note("one")
        journal.close()
    assert len(list(Path("/dev/fd").iterdir())) <= before
