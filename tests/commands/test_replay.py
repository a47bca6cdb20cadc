"""replay: the document and the summary of a log, and the exit code that says what is wrong with it."""

import json
from datetime import UTC, datetime

import pytest

from exo_cli.engine.core.events import By, NodeTimedOut, Record
from exo_cli.engine.core.state import State
from exo_cli.engine.core.wire import Header, encode_header, encode_record

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _record(index: int, term: int = 1) -> bytes:
    by = By(node="n-a", user="\x1b[31mmallory\u202e")
    return encode_record(Record(index=index, term=term, at=AT, by=by, event=NodeTimedOut(node_id="n-b")))


@pytest.fixture
def log(tmp_path):
    """A log of three records, as the pieces that a test puts together."""
    state = State()
    header = encode_header(
        Header(
            version="0.1.0",
            cluster_id="c-a",
            node_id="n-a",
            base_index=-1,
            base_term=0,
            state_hash=state.hash(),
            state=state.dump(),
        )
    )

    def write(*pieces: bytes):
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"".join((header, *pieces)))
        return str(path)

    return write


def test_the_document(exo, log):
    ended = exo("replay", log(_record(0), _record(1)), "-o", "json")
    document = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert (document["kind"], document["schema"], document["revision"]) == ("Replay", 1, 1)
    assert document["item"].keys() >= {
        "format",
        "events",
        "first_index",
        "last_index",
        "state_hash",
        "torn_tail",
        "state",
        "findings",
        "notes",
    }
    assert document["item"]["torn_tail"] is None


def test_the_summary(exo, log):
    lines = exo("replay", log(_record(0), _record(1))).out.splitlines()
    assert "events      2 (0 to 1)" in lines
    assert "findings    not looked for (--check)" in lines
    assert "findings    0" in exo("replay", log(_record(0)), "--check").out.splitlines()


def test_at_an_index(exo, log):
    path = log(_record(0), _record(1), _record(2))
    assert json.loads(exo("replay", path, "--at", "1", "-o", "json").out)["revision"] == 1
    assert exo("replay", path, "--at", "9").code == 3


def test_findings_are_1_when_they_are_looked_for(exo, log):
    path = log(_record(0), _record(5))
    ended = exo("replay", path, "--check")
    assert ended.code == 1
    assert "index_gap" in ended.out
    assert json.loads(exo("replay", path, "--check", "-o", "json").out)["item"]["findings"][0]["kind"] == "index_gap"
    assert exo("replay", path).code == 0


def test_a_torn_tail_is_a_warning_unless_strict(exo, log):
    path = log(_record(0), _record(1)[:-20])
    ended = exo("replay", path, "-o", "json")
    assert ended.code == 0
    assert ended.err.startswith("warning: the log ends in the middle of a record")
    assert json.loads(ended.out)["item"]["torn_tail"]
    assert exo("replay", path, "--strict").code == 12


def test_damage_in_the_middle_is_12_with_its_place(exo, log):
    bad = bytearray(_record(1))
    bad[30] ^= 1
    path = log(_record(0), bytes(bad), _record(2))
    ended = exo("replay", path)
    assert (ended.code, ended.out) == (12, "")
    assert "line 3, byte " in ended.err
    assert json.loads(exo("replay", path, "-o", "json").err)["error"]["details"]["line"] == 3
    assert exo("replay", path, "--skip-bad").code == 0


def test_a_log_from_stdin(exo, log, tmp_path):
    log(_record(0))
    assert exo("replay", "-", stdin=(tmp_path / "log.jsonl").read_bytes()).code == 0


def test_no_log_is_3(exo, tmp_path):
    assert exo("replay", str(tmp_path / "none")).code == 3
