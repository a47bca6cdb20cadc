"""Exporting: the same state and the same findings, of our own logs and of recordings, in part and redacted."""

import json
import stat
from pathlib import Path

import pytest

from bench.logs import events_of, write
from exo_cli.engine.core.errors import BadDataError, FailedError, UsageError
from exo_cli.engine.core.wire import Closing, Header, decode_line, encode_closing, encode_header
from exo_cli.engine.log.rotation import Limits
from exo_cli.engine.replaying import replay
from exo_cli.engine.replaying.exporting import export
from exo_cli.engine.replaying.source import Lenient

RECORDINGS = Path("tests/data/recordings")
LOGS = sorted(each for each in RECORDINGS.iterdir() if ".bin" in each.name)
STRICT = Lenient(skip_bad=False, skip_unknown=False)
COMMAND = "orphan_task"  # its remedy there names a command, which is in no event of ours


def exported(path, file, **options):
    options = {"redact": False, "lenient": STRICT, **options}
    return export(str(path), str(file), **options)


def found(path, **options):
    item = replay(str(path), check=True, **options)["item"]
    return item["state_hash"], [
        {**each, "remedy": ""} if each["kind"] == COMMAND else each for each in item["findings"]
    ]


def kinds(path):
    return [(each["kind"], each["since_index"], each["until_index"], each["events"]) for each in found(path)[1]]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Several segments, packed and not."""
    folder = tmp_path_factory.mktemp("own") / "log"
    return write(folder, events_of(4000), Limits(segment_bytes=1 << 17))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_a_recording_exported_is_what_it_was(tmp_path, path):
    n_events = exported(path, tmp_path / "out.log")
    assert found(tmp_path / "out.log") == found(path)
    assert n_events == replay(str(path))["item"]["events"]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_a_recording_redacted_has_the_same_findings(tmp_path, path):
    exported(path, tmp_path / "out.log", redact=True)
    assert kinds(tmp_path / "out.log") == kinds(path)


def test_our_own_log_exported_is_what_it_was(tmp_path, own):
    assert exported(own, tmp_path / "out.log.zst") == 4000
    assert found(tmp_path / "out.log.zst") == found(own)


def test_our_own_log_redacted_has_the_same_findings_and_right_hashes(tmp_path, own):
    exported(own, tmp_path / "out.log", redact=True)
    assert kinds(tmp_path / "out.log") == kinds(own)
    lines = map(decode_line, (tmp_path / "out.log").read_bytes().splitlines())
    closings = [each for each in lines if isinstance(each, Closing)]
    assert all(each.state_hash for each in closings)
    assert closings


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize(("first", "last"), [(1000, 1100), (None, 700), (3990, None), (-5, None), (0, -10)])
def test_a_part_begins_with_the_state_before_it(tmp_path, own, first, last, redact):
    n_events = exported(own, tmp_path / "out.log", first=first, last=last, redact=redact)
    begin = 0 if first is None else first % 4000
    end = 3999 if last is None else last % 4000
    item = replay(str(tmp_path / "out.log"), check=True)["item"]
    assert (item["first_index"], item["last_index"], item["events"]) == (begin, end, end - begin + 1)
    assert n_events == end - begin + 1
    if not redact:
        assert item["state"] == replay(str(own), at=end)["item"]["state"]


def test_a_part_of_a_recording(tmp_path):
    path = RECORDINGS / "node-lost.bin.zst"
    exported(path, tmp_path / "out.log", first=50, last=80)
    assert replay(str(tmp_path / "out.log"))["item"]["state"] == replay(str(path), at=80)["item"]["state"]


def test_a_hash_that_was_wrong_is_wrong_in_the_export(tmp_path, own):
    lines = [each for path in sorted(own.glob("*.log")) for each in path.read_bytes().splitlines(keepends=True)]
    last = decode_line(lines[-1])
    lines[-1] = encode_closing(last.model_copy(update={"state_hash": "1" * 64}))
    (tmp_path / "in.log").write_bytes(b"".join(lines))
    for redact in (False, True):
        out = tmp_path / f"{redact}.log"
        exported(tmp_path / "in.log", out, redact=redact)
        assert replay(str(out))["exit_code"] == replay(str(tmp_path / "in.log"))["exit_code"] == 13


def test_untimed_events_have_no_time_to_stop_at(tmp_path):
    exported(LOGS[0], tmp_path / "out.log")
    with pytest.raises(UsageError, match="no times"):
        replay(str(tmp_path / "out.log"), at="2026-01-01T00:00:00Z")


def test_a_file_that_is_there_stays_as_it_is(tmp_path):
    (tmp_path / "out.log").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        exported(LOGS[0], tmp_path / "out.log")
    assert (tmp_path / "out.log").read_text() == "mine"


def test_only_its_owner_reads_it(tmp_path):
    exported(LOGS[0], tmp_path / "out.log")
    assert stat.S_IMODE((tmp_path / "out.log").stat().st_mode) == 0o600


def test_nothing_is_left_of_what_failed(tmp_path, own):
    with pytest.raises(BadDataError, match="holds no records"):
        exported(own, tmp_path / "out.log", first=9000)
    with pytest.raises(FailedError, match="cannot be written"):
        exported(own, tmp_path / "none" / "out.log")
    assert list(tmp_path.iterdir()) == []


def test_a_header_is_older_than_times(tmp_path):
    """What has times says nothing of it, so that versions before this one read it."""
    state = replay(str(LOGS[0]))["item"]["state"]
    header = Header(
        version="1", cluster_id="c", node_id="a", base_index=-1, base_term=0, state_hash="", state=state, timed=True
    )
    assert "timed" not in json.loads(encode_header(header))
    assert json.loads(encode_header(header.model_copy(update={"timed": False})))["timed"] is False
