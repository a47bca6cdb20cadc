"""The log on disk: what crashes leave, what damage is, and who may write.

The method: a good log of a few records is cut, padded and flipped at every place that matters, and each time the rule
at the head of `exo_cli.engine.log` says what has to be found. The rest are real processes, killed and starved.
"""

import io
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from exo_cli.engine.core.errors import BadDataError, ConflictError, ExitCode, NotFoundError
from exo_cli.engine.core.events import By, Record, RunnerStatusUpdated
from exo_cli.engine.core.runners import RunnerFailed
from exo_cli.engine.core.wire import Closing, Header, encode_closing, encode_header, encode_record, sealed
from exo_cli.engine.log.disk import DiskLog
from exo_cli.engine.log.scan import Entry, Skipped, Torn, scan, segments_of

FIRST = f"{0:020}.log"


def a_header(base_index: int = -1, base_term: int = 0) -> Header:
    return Header(
        version="1.0",
        cluster_id="c-1",
        node_id="n-1",
        base_index=base_index,
        base_term=base_term,
        state_hash="0" * 64,
        state={"name": "größer"},
    )


def a_record(index: int, text: str = "größer 🦀") -> Record:
    event = RunnerStatusUpdated(runner_id="r-1", runner_status=RunnerFailed(error_message=text))
    return Record(index=index, term=1, at=datetime(2026, 1, 2, tzinfo=UTC), by=By(node="n-1"), event=event)


def lines_of(count: int, first: int = 0) -> list[bytes]:
    """The lines of a good segment: a header and `count` records."""
    return [encode_header(a_header(first - 1)), *(encode_record(a_record(first + n)) for n in range(count))]


def write(folder: Path, data: bytes, first: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{first:020}.log"
    path.write_bytes(data)
    return path


def indexes(seen: list) -> list[int]:
    return [each.line.index for each in seen if isinstance(each, Entry) and isinstance(each.line, Record)]


def reopen(folder: Path) -> DiskLog:
    return DiskLog.open_or_create(folder, a_header)


def refuses(path: Path, *, record: int | None = None, byte: int | None = None) -> None:
    """Readers and the writer refuse it, say where, and leave it as it is."""
    before = path.read_bytes()
    for read in (lambda: list(scan(path)), lambda: list(scan(path.parent)), lambda: reopen(path.parent)):
        with pytest.raises(BadDataError) as caught:
            read()
        assert caught.value.exit_code == ExitCode.BAD_DATA == 12
        assert str(path) in caught.value.message
        assert caught.value.hints
        if record is not None:
            assert f"record {record} " in caught.value.message
            assert caught.value.details["record"] == record
        if byte is not None:
            assert f"byte {byte})" in caught.value.message
            assert caught.value.details["byte"] == byte
    assert path.read_bytes() == before


def cuts_back(path: Path, kept: list[int], torn_at: int) -> None:
    """Readers report the torn tail and change nothing; the writer cuts it, says so, and goes on."""
    before = path.read_bytes()
    for source in (path, path.parent, io.BytesIO(before)):
        seen = list(scan(source))
        assert indexes(seen) == kept
        assert [each.offset for each in seen if isinstance(each, Torn)] == [torn_at]
        assert isinstance(seen[-1], Torn)
    assert path.read_bytes() == before
    log = reopen(path.parent)
    assert len(log.warnings) == 1
    assert str(path) in log.warnings[0]
    assert f"byte {torn_at}" in log.warnings[0]
    following = len(kept)
    log.append([a_record(following)])
    assert [record.index for record in log.read(0)] == [*kept, following]
    log.close()
    seen = list(scan(path.parent))
    assert indexes(seen) == [*kept, following]
    assert not [each for each in seen if isinstance(each, Torn)]


class TestTornTails:
    def test_every_cut_of_the_last_two_records(self, tmp_path):
        good = b"".join(lines_of(4))
        ends = [sum(map(len, lines_of(4)[: n + 2])) for n in range(4)]
        for cut in range(ends[1], len(good) + 1):
            folder = tmp_path / str(cut)
            path = write(folder, good[:cut])
            whole = [n for n, end in enumerate(ends) if end - 1 <= cut]  # a record is whole without its newline
            torn = [each for each in scan(path) if isinstance(each, Torn)]
            if cut in ends:
                assert not torn
                assert indexes(list(scan(path))) == whole
            else:
                at = cut if cut + 1 in ends else max(end for end in ends if end <= cut)
                assert torn == [Torn(str(path), at, cut - at)]
                cuts_back(path, whole, at)

    def test_a_missing_newline_costs_no_record(self, tmp_path):
        good = b"".join(lines_of(2))
        path = write(tmp_path / "log", good[:-1])
        reopen(tmp_path / "log").close()
        assert path.read_bytes() == good

    @pytest.mark.parametrize("padding", [1, 7, 512, 5000])
    def test_padding_with_zeros(self, tmp_path, padding):
        header, *records = lines_of(3)
        good = header + b"".join(records)
        last = len(good) - len(records[-1])
        cuts_back(write(tmp_path / "after", good + b"\0" * padding), [0, 1, 2], len(good))
        cuts_back(write(tmp_path / "inside", good[: last + 20] + b"\0" * padding), [0, 1], last)
        cuts_back(write(tmp_path / "newline", good[:-1] + b"\0" * padding), [0, 1, 2], len(good) - 1)

    def test_blocks_never_written_in_a_line_of_whole_length(self, tmp_path):
        lines = [*lines_of(2), encode_record(a_record(2, "x" * 3000))]
        good = b"".join(lines)
        last = len(good) - len(lines[-1])
        block = -(-last // 512) * 512
        cuts_back(write(tmp_path / "inside", good[:block] + b"\0" * 1024 + good[block + 1024 :]), [0, 1], last)
        cuts_back(write(tmp_path / "front", good[:last] + b"\0" * 512 + good[last + 512 :]), [0, 1], last)
        # Three records of one batch in the hole, and a part of the fourth.
        lines = [*lines_of(2), *(encode_record(a_record(n)) for n in range(2, 6))]
        last = sum(map(len, lines[:2])) + len(lines[2])
        hole = sum(map(len, lines[3:6])) + 50
        good = b"".join(lines)
        cuts_back(write(tmp_path / "batch", good[:last] + b"\0" * hole + good[last + hole :]), [0, 1], last)

    def test_a_cut_within_a_character(self, tmp_path):
        good = b"".join(lines_of(3))
        for place in ("ö".encode(), "🦀".encode()):
            cut = good.rindex(place) + 1
            with pytest.raises(UnicodeDecodeError):
                good[:cut].decode()
            cuts_back(write(tmp_path / str(cut), good[:cut]), [0, 1], sum(map(len, lines_of(2))))

    def test_every_cut_of_the_header_makes_an_empty_log(self, tmp_path):
        header = lines_of(0)[0]
        for cut in (*range(40), len(header) // 2, len(header) - 2):
            cuts_back(write(tmp_path / str(cut), header[:cut]), [], 0)
        cuts_back(write(tmp_path / "zeros", b"\0" * 4096), [], 0)
        cuts_back(write(tmp_path / "whole", header[:-1]), [], len(header) - 1)

    def test_a_newest_segment_without_a_whole_header_is_taken_off(self, tmp_path):
        for cut in (0, 30):
            folder = tmp_path / str(cut)
            write(folder, b"".join(lines_of(3)))
            newest = write(folder, lines_of(0, first=3)[0][:cut], first=3)
            seen = list(scan(folder))
            assert indexes(seen) == [0, 1, 2]
            assert seen[-1] == Torn(str(newest), 0, cut)
            log = reopen(folder)
            assert log.warnings == [str(seen[-1])]
            log.append([a_record(3)])
            assert [record.index for record in log.read(0)] == [0, 1, 2, 3]
            log.close()
            assert segments_of(folder) == [folder / FIRST]


class TestDamage:
    @pytest.mark.parametrize("mask", [0x01, 0x80, 0x0A, 0xFF])
    def test_a_flip_anywhere_before_the_last_record(self, tmp_path, mask):
        lines = lines_of(4)
        good = b"".join(lines)
        starts = [sum(map(len, lines[:n])) for n in range(5)]
        for place in range(0, starts[4], 1 if mask == 1 else 7):
            line = max(n for n in range(5) if starts[n] <= place)
            damaged = good[:place] + bytes([good[place] ^ mask]) + good[place + 1 :]
            path = write(tmp_path / "log", damaged)
            refuses(path, record=line - 1 if line else None, byte=starts[line])

    def test_a_flip_in_the_last_record_is_not_taken_for_a_torn_write(self, tmp_path):
        lines = lines_of(3)
        good = b"".join(lines)
        start = len(good) - len(lines[-1])
        for place in range(start, len(good)):
            path = write(tmp_path / "log", good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
            refuses(path, record=2, byte=start)

    def test_a_newline_that_became_a_zero_joins_no_records(self, tmp_path):
        lines = lines_of(3)
        path = write(tmp_path / "log", b"".join(lines[:3])[:-1] + b"\0" + lines[3])
        refuses(path, record=1)
        refuses(write(tmp_path / "cut", path.read_bytes()[:-10]), record=1)

    def test_zeros_before_whole_records(self, tmp_path):
        lines = lines_of(3)
        refuses(write(tmp_path / "log", b"".join(lines[:3]) + b"\0" * 600 + b"\n" + lines[3]), record=2)
        refuses(write(tmp_path / "glued", b"".join(lines[:3]) + b"\0" * 600 + lines[3] + b"\n"), record=2)

    def test_debris_in_front_of_a_later_append(self, tmp_path):
        lines = lines_of(3)
        refuses(write(tmp_path / "log", b"".join(lines[:3])[:-9] + lines[3]), record=1)

    def test_a_torn_segment_that_is_not_the_newest(self, tmp_path):
        path = write(tmp_path, b"".join(lines_of(3))[:-20])
        write(tmp_path, b"".join(lines_of(2, first=3)), first=3)
        with pytest.raises(BadDataError, match="record 2 "):
            list(scan(tmp_path))
        log = reopen(tmp_path)
        with pytest.raises(BadDataError, match="record 2 "):
            log.read(0)
        assert [record.index for record in log.read(3)] == [3, 4]
        log.close()
        assert indexes(list(scan(path))) == [0, 1]

    @pytest.mark.parametrize("text", [b"hello", b"hello\n", b"\x89PNG\r\n\x1a\n", b"{}\n", b"\n", b'{"index":0'])
    def test_what_is_no_log_at_all(self, tmp_path, text):
        refuses(write(tmp_path, text), byte=0)

    def test_records_without_a_header(self, tmp_path):
        refuses(write(tmp_path / "log", b"".join(lines_of(3)[1:])), byte=0)
        refuses(write(tmp_path / "cut", b"".join(lines_of(1)[1:])[:-4]), byte=0)

    def test_a_record_that_is_missing_stops_the_writer_and_not_the_reader(self, tmp_path):
        lines = lines_of(4)
        path = write(tmp_path, b"".join(lines[:2] + lines[3:]))
        assert indexes(list(scan(path))) == [0, 2, 3]
        with pytest.raises(BadDataError, match="record 2 where 1 belongs"):
            reopen(tmp_path)

    def test_a_segment_under_a_wrong_name(self, tmp_path):
        write(tmp_path, b"".join(lines_of(2, first=7)), first=9)
        with pytest.raises(BadDataError, match="belongs to another segment"):
            reopen(tmp_path)

    def test_bad_lines_can_be_passed_over(self, tmp_path):
        lines = lines_of(5)
        lines[2] = lines[2].replace(b"RunnerFailed", b"RunnerFazled")
        lines[5] = lines[5][:-30]
        path = write(tmp_path, b"".join(lines))
        seen = list(scan(path, skip_bad=True))
        assert indexes(seen) == [0, 2, 3]
        [skipped] = [each for each in seen if isinstance(each, Skipped)]
        assert (skipped.number, skipped.offset, skipped.unknown) == (3, len(lines[0] + lines[1]), False)
        assert isinstance(seen[-1], Torn)

    def test_a_bad_header_can_be_passed_over(self, tmp_path):
        lines = lines_of(2)
        path = write(tmp_path, b"rubbish\n" + b"".join(lines[1:]))
        assert indexes(list(scan(path, skip_bad=True))) == [0, 1]

    def test_damage_that_came_after_opening_is_seen_by_a_read(self, tmp_path):
        log = reopen(tmp_path)
        log.append([a_record(n) for n in range(3)])
        path = tmp_path / FIRST
        data = path.read_bytes()
        path.write_bytes(data.replace(b'{"index":1', b'{"index":7'))
        with pytest.raises(BadDataError, match="record 1 ") as caught:
            log.read(0)
        assert caught.value.details["byte"] == data.index(b'{"index":1')
        log.close()


class TestNewerLogs:
    def test_an_unknown_event(self, tmp_path):
        lines = lines_of(3)
        head = lines[2].partition(b',"crc":"')[0]
        lines[2] = sealed(head.replace(b"RunnerStatusUpdated", b"CoffeeMade") + b"}")
        path = write(tmp_path, b"".join(lines))
        with pytest.raises(BadDataError, match=r"record 1 .*'CoffeeMade'") as caught:
            list(scan(path))
        assert "--skip-unknown" in caught.value.hints[0]
        with pytest.raises(BadDataError):
            list(scan(path, skip_bad=True))
        with pytest.raises(BadDataError):
            reopen(tmp_path)
        seen = list(scan(path, skip_unknown=True))
        assert indexes(seen) == [0, 2]
        assert [each.unknown for each in seen if isinstance(each, Skipped)] == [True]

    def test_a_newer_format(self, tmp_path):
        path = write(tmp_path, sealed(b'{"kind":"exo-log","format":99}') + b"".join(lines_of(2)[1:]))
        refuses(path)
        with pytest.raises(BadDataError, match="format 99") as caught:
            list(scan(path, skip_bad=True, skip_unknown=True))
        assert "upgrade" in caught.value.hints[0]


class TestSegments:
    def test_a_folder_of_several_reads_as_one(self, tmp_path):
        for first, count in ((0, 100), (100, 1), (101, 200)):
            closing = Closing(index=first + count - 1, term=1, state_hash="0" * 64)
            write(tmp_path, b"".join(lines_of(count, first)) + encode_closing(closing), first)
        (tmp_path / "notes.log").write_text("none of ours")
        seen = list(scan(tmp_path))
        assert indexes(seen) == list(range(301))
        assert len([each for each in seen if isinstance(each.line, Header)]) == 3
        log = reopen(tmp_path)
        assert (log.first_index, log.last_index) == (0, 300)
        for first in (0, 63, 64, 99, 100, 101, 165, 300):
            assert [record.index for record in log.read(first)] == list(range(first, 301))
        assert [record.index for record in log.read(99, limit_bytes=1)] == [99]
        log.append([a_record(301)])
        assert [record.index for record in log.read(299)] == [299, 300, 301]
        log.close()
        # Any suffix of segments is a log.
        (tmp_path / FIRST).unlink()
        log = reopen(tmp_path)
        assert log.first_index == 100
        assert log.read(100)[-1].index == 301
        log.close()

    def test_segments_one_after_another_in_a_stream(self, tmp_path):
        both = b"".join(lines_of(2)) + b"".join(lines_of(2, first=2))
        assert indexes(list(scan(io.BytesIO(both)))) == [0, 1, 2, 3]

    def test_records_go_on_after_a_closing(self, tmp_path):
        log = reopen(tmp_path)
        log.append([a_record(0)])
        log.close(Closing(index=0, term=1, state_hash="ab" * 32))
        seen = []
        log = DiskLog.open_or_create(tmp_path, a_header, visit=seen.append)
        assert [type(line).__name__ for line in seen] == ["Header", "Record", "Closing"]
        log.append([a_record(n) for n in range(1, 200)])
        assert [record.index for record in log.read(0)] == list(range(200))
        log.close()
        log = reopen(tmp_path)
        assert [record.index for record in log.read(127)] == list(range(127, 200))
        log.close()

    def test_a_header_is_made_only_for_a_new_log(self, tmp_path):
        seen = []
        log = DiskLog.open_or_create(tmp_path, lambda: a_header(4, 2), visit=seen.append)
        assert seen == [log.header] == [a_header(4, 2)]
        log.close()
        log = DiskLog.open_or_create(tmp_path, lambda: pytest.fail("there is a log"))
        assert (log.header, log.last_index, log.last_term, log.warnings) == (a_header(4, 2), 4, 2, [])
        log.close()

    def test_no_log(self, tmp_path):
        with pytest.raises(NotFoundError):
            list(scan(tmp_path))
        with pytest.raises(NotFoundError):
            list(scan(tmp_path / "none.log"))


class TestRestarts:
    def test_what_was_there_moves_to_abandoned(self, tmp_path):
        write(tmp_path, b"".join(lines_of(3)))
        write(tmp_path, b"".join(lines_of(2, first=3)), first=3)
        log = reopen(tmp_path)
        log.restart(a_header(2, 7).model_copy(update={"adopted_from": {"term": 1, "index": 4}}))
        log.append([a_record(3).model_copy(update={"term": 7})])
        log.restart(a_header(9, 8))
        log.close()
        assert [path.name for path in segments_of(tmp_path)] == [f"{10:020}.log"]
        older, newer = sorted((tmp_path / "abandoned").iterdir())
        assert {older.name.split("-", 1)[1], newer.name.split("-", 1)[1]} == {"1-4", "7-3"}
        first = next(path for path in (older, newer) if path.name.endswith("-1-4"))
        assert indexes(list(scan(first))) == [0, 1, 2, 3, 4]
        assert indexes(list(scan(tmp_path))) == []

    @pytest.mark.parametrize("moved", [True, False])
    def test_a_crash_in_the_middle_of_one_is_made_good(self, tmp_path, moved):
        if not moved:
            write(tmp_path, b"".join(lines_of(3)))
        (tmp_path / "restart.tmp").write_bytes(encode_header(a_header(1, 7)))
        log = reopen(tmp_path)
        assert (log.last_index, log.last_term) == (1, 7)
        assert len(log.warnings) == 1
        log.close()
        assert [path.name for path in segments_of(tmp_path)] == [f"{2:020}.log"]
        assert len(list((tmp_path / "abandoned").rglob("*.log"))) == (0 if moved else 1)

    def test_a_crash_before_it_began_is_nothing(self, tmp_path):
        write(tmp_path, b"".join(lines_of(3)))
        (tmp_path / "restart.tmp").write_bytes(encode_header(a_header(1, 7))[:-5])
        (tmp_path / "new.tmp").write_bytes(b"")
        log = reopen(tmp_path)
        assert (log.last_index, log.warnings) == (2, [])
        log.close()
        assert not list(tmp_path.glob("*.tmp"))


WRITER = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_log import a_header, a_record
from exo_cli.engine.log.disk import DiskLog
log = DiskLog.open_or_create(Path({folder!r}), a_header)
"""


def a_process(folder: Path, script: str) -> subprocess.Popen:
    text = WRITER.format(here=str(Path(__file__).parent), folder=str(folder)) + script
    return subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


class TestProcesses:
    def test_a_second_one_is_refused_by_name(self, tmp_path):
        with a_process(tmp_path, "print('open', flush=True); input()") as process:
            assert process.stdout.readline() == "open\n"
            with pytest.raises(ConflictError, match=f"in use by pid {process.pid}") as caught:
                reopen(tmp_path)
            assert caught.value.details["pid"] == process.pid
            assert indexes(list(scan(tmp_path))) == []  # readers need no lock
            process.kill()
        reopen(tmp_path).close()

    def test_nothing_acknowledged_is_lost_to_a_kill(self, tmp_path):
        script = """
index = 0
while True:
    log.append([a_record(index + n, "x" * (index * 37 % 5000)) for n in range(3)])
    index += 3
    print(index - 1, flush=True)
"""
        acknowledged = -1
        for _ in range(3):
            with a_process(tmp_path, script.replace("index = 0", "index = log.last_index + 1")) as process:
                for _ in range(40):
                    acknowledged = int(process.stdout.readline())
                process.send_signal(signal.SIGKILL)
                for line in process.stdout:
                    acknowledged = int(line)
            seen = list(scan(tmp_path))
            assert indexes(seen) == list(range(len(indexes(seen))))
            assert indexes(seen)[-1] >= acknowledged
        log = reopen(tmp_path)
        log.append([a_record(log.last_index + 1)])
        log.close()
        assert not [each for each in scan(tmp_path) if not isinstance(each, Entry)]

    def test_a_full_disk_costs_the_batch_and_no_more(self, tmp_path):
        # The limit is as a full disk: the write comes back short, the next one fails.
        script = """
log.append([a_record(0)])
end = log._pen.end
resource.setrlimit(resource.RLIMIT_FSIZE, (end + 1000, resource.RLIM_INFINITY))
for _ in range(3):
    try:
        log.append([a_record(1), a_record(2, "x" * 2000), a_record(3)])
    except OSError as error:
        print(error.errno, error.filename, log.last_index, log._pen.path.stat().st_size - end)
log.append([a_record(1)])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append([a_record(2), a_record(3)])
print([record.index for record in log.read(0)])
"""
        with a_process(tmp_path, script) as process:
            told = process.stdout.read().splitlines()
        assert told == [f"27 {tmp_path / FIRST} 0 0"] * 3 + ["[0, 1, 2, 3]"]
        assert indexes(list(scan(tmp_path))) == [0, 1, 2, 3]

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    def test_what_cannot_be_cut_back_is_not_written_to_again(self, tmp_path):
        log = reopen(tmp_path)
        log.append([a_record(0)])
        good = os.dup(log._pen._fd)
        full = os.open("/dev/full", os.O_RDWR)
        os.dup2(full, log._pen._fd)  # its writes fail, and it cannot be cut
        with pytest.raises(OSError, match="No space left"):
            log.append([a_record(1)])
        os.dup2(good, log._pen._fd)
        with pytest.raises(OSError, match="until it is opened again"):
            log.append([a_record(1)])
        os.close(good)
        os.close(full)
        assert [record.index for record in log.read(0)] == [0]
        log.close(Closing(index=0, term=1, state_hash="0" * 64))
        log = reopen(tmp_path)
        log.append([a_record(1)])
        log.close()

    def test_reading_takes_no_memory_with_the_length(self, tmp_path):
        script = """
import resource
from exo_cli.engine.log.scan import scan
for round in range(40):
    log.append([a_record(log.last_index + 1 + n, "x" * 100) for n in range(500)])
    if round in (3, 39):
        for _ in scan(Path({folder!r})): pass
        log.read(log.last_index // 2, limit_bytes=1000)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
""".replace("{folder!r}", repr(str(tmp_path)))
        with a_process(tmp_path, script) as process:
            short, long = (int(line) for line in process.stdout)
        assert long < short * 1.1
