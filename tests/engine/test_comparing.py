"""Comparing: logs of several nodes side by side; where they part, what was put aside, what no log says."""

import json
from pathlib import Path

import pytest

from exo_cli.engine.core.errors import UsageError
from exo_cli.engine.core.events import InstanceCreated, InstanceDeleted, NodeJoined, RunnerStatusUpdated
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.state import State
from exo_cli.engine.core.wire import Header, encode_header, encode_record
from exo_cli.engine.replaying.comparing import compare
from exo_cli.engine.replaying.source import Lenient
from tests.builders import a_node, a_record, a_status, an_instance

NAMES = "abc"
JOINS = [NodeJoined(node_id=name, facts=a_node(name), incarnation=1) for name in NAMES]
PLACED = InstanceCreated(instance=an_instance("i", ("c",)))
FAILED = a_status("Failed", error_message="killed by signal 9")


def status(name, attempt=1):
    return RunnerStatusUpdated(
        runner_id="i-0", runner_status=FAILED if name == "Failed" else a_status(name), attempt=attempt
    )


STORY = [*JOINS, PLACED, status("Idle"), status("Loading"), status("Loaded"), status("WarmingUp"), status("Ready")]


def records_of(events, term=1):
    return [a_record(event, index, term=term, seconds=index) for index, event in enumerate(events)]


@pytest.fixture
def home(tmp_path):
    """A function that writes a node's home: its log, what it put aside, its journal."""

    def write(name, records, *, base=(), aside=(), adopted=None, journal=()):
        home = tmp_path / name
        folder = home / "data" / "log"
        _write(folder, name, records, base, adopted)
        if aside:
            _write(folder / "abandoned" / "20260101T000000Z-1-9", name, aside, (), None)
        state = home / "state" / "journal"
        state.mkdir(parents=True)
        lines = [json.dumps({"at": "2026-01-01T00:00:09.000Z", **note}) for note in journal]
        (state / "journal.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return str(home)

    return write


def _write(folder, name, records, base, adopted):
    folder.mkdir(parents=True)
    state = State()
    for record in base:
        apply(state, record)
    header = Header(
        version="1", cluster_id="c", node_id=name, base_index=state.index, base_term=state.term,
        state_hash=state.hash(), state=state.dump(), adopted_from=adopted,
    )  # fmt: skip
    lines = [encode_header(header), *map(encode_record, records)]
    (folder / f"{state.index + 1:020}.log").write_bytes(b"".join(lines))


def aligned(*paths, check=False):
    answer = compare(paths, check=check, lenient=Lenient(skip_bad=False, skip_unknown=False))
    return answer["item"], answer["exit_code"]


def findings(item):
    return [(each["kind"], each["id"], each["since_index"]) for each in item["findings"]]


def test_logs_that_are_the_same_but_for_their_ends(home):
    records = records_of(STORY)
    item, code = aligned(home("a", records), home("b", records[:6]), home("c", records[4:8], base=records[:4]))
    assert code == 0
    assert (item["agreed_upto"], item["first_difference"]) == (8, None)
    assert [each["lag"] for each in item["logs"]] == [0, 3, 1]
    assert [(each["node"], each["base_index"], each["first_index"]) for each in item["logs"]] == [
        ("a", -1, 0), ("b", -1, 0), ("c", 3, 4),
    ]  # fmt: skip
    assert item["history"].endswith("/a")


def test_where_they_part_the_higher_term_counts(home):
    records = records_of(STORY)
    newer = [*records[:6], *[each.model_copy(update={"term": 2}) for each in records_of([*STORY[:6], *STORY[6:7]])[6:]]]
    item, code = aligned(home("a", records), home("b", newer), home("c", newer[:5]))
    assert code == 10
    a, b, c = item["logs"]
    assert (a["parts_at"], a["fate"], a["last_index"]) == (6, "abandoned", 8)
    assert b["parts_at"] is None
    assert c["parts_at"] is None
    assert item["agreed_upto"] == 5
    difference = item["first_difference"]
    assert (difference["index"], [each["term"] for each in difference["records"]]) == (6, [1, 2])
    assert item["history"].endswith("/b")


def test_two_records_of_one_term_are_contested_and_most_count(home):
    ours, theirs = records_of([*STORY[:5], status("Loading")]), records_of([*STORY[:5], status("Shutdown")])
    item, code = aligned(home("a", ours), home("b", theirs), home("c", theirs))
    assert code == 10
    assert [each["fate"] for each in item["logs"]] == ["contested", None, None]


def test_what_a_node_put_aside_is_told_and_is_no_difference(home):
    records = records_of(STORY)
    newer = [*records[:5], *[each.model_copy(update={"term": 2}) for each in records[5:7]]]
    adopter = home("b", newer[6:], base=newer[:6], aside=records[:8], adopted={"index": 7, "term": 1})
    item, code = aligned(home("a", newer), adopter)
    assert (code, item["first_difference"]) == (0, None)
    _, b, aside = item["logs"]
    assert b["adopted_from"] == {"index": 7, "term": 1}
    assert (aside["kept"], aside["parts_at"], aside["last_index"], aside["fate"]) == (False, 5, 7, "abandoned")


KNEW = {"kind": "failed", "index": 8, "id": "i-0", "instance": "i", "attempt": 1, "error": "killed by signal 9"}


@pytest.mark.parametrize(
    ("more", "remedy"),
    [
        ([], "exo runners restart i"),
        ([InstanceDeleted(instance_id="i")], "exo runners forget i-0"),
        ([InstanceDeleted(instance_id="i"), status("Shutdown")], "exo node list"),
        ([status("Failed", attempt=2)], "exo runners restart i"),
    ],
)
def test_a_failure_that_its_node_could_not_report(home, more, remedy):
    a, b = (home(name, records_of([*STORY, *more])) for name in "ab")
    refusal = {"kind": "refused", "code": "no_master", "reason": "runner i-0 cannot be reported: no master"}
    c = home("c", records_of(STORY), journal=[KNEW, refusal])
    item, code = aligned(a, b, c, check=True)
    unreported = item["findings"][0]
    assert (unreported["kind"], unreported["id"], unreported["since_index"]) == ("unreported", "i-0", 8)
    assert code == 1
    assert unreported["remedy"] == remedy
    for word in ("node c knew at 2026-01-01T00:00:09.000Z, after record 8", "killed by signal 9", "no log has it",
                 "refused: runner i-0 cannot"):  # fmt: skip
        assert word in unreported["why"]
    assert aligned(a, b)[0]["findings"] == []


def test_a_failure_that_was_reported_is_none(home):
    records = records_of([*STORY, status("Failed")])
    item, code = aligned(home("a", records), home("c", records[:-1], journal=[KNEW]), check=True)
    assert (findings(item), code) == ([], 0)


def test_a_failure_that_stands_only_where_it_was_abandoned(home):
    records = records_of([*STORY, status("Failed")])
    newer = [*records[:9], records_of([*STORY, status("Running")], term=2)[9]]
    item, _ = aligned(home("a", newer), home("b", newer), home("c", records, journal=[KNEW]))
    assert findings(item) == [("unreported", "i-0", 8)]
    assert "only in records that were abandoned" in item["findings"][0]["why"]


def test_journals_with_rubbish_in_them(home):
    records = records_of(STORY)
    rubbish = [{"kind": "failed"}, {"kind": "failed", "id": 7, "index": "x"}, {**KNEW, "attempt": "1"}]
    c = home("c", records, journal=rubbish)
    with Path(c, "state/journal/journal.jsonl").open("ab") as file:
        file.write(b'\xff\xfe\n[[[[\n{"kind":"fai')
    assert findings(aligned(home("a", records), c)[0]) == []


def test_what_cannot_be_compared(home, tmp_path):
    a = home("a", records_of(STORY))
    recording = tmp_path / "events.bin"
    recording.write_bytes(b"\0\0\0\x0f\x81\xa9TestEvent\x80")
    for paths, says in [((a, f"{a}/data/.."), "twice"), ((a, str(recording)), "recordings"), ((a, "-"), "pipe")]:
        with pytest.raises(UsageError, match=says):
            aligned(*paths)
