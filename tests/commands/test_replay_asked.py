"""`exo replay` as people run it: what is told of a log, in which shape, and with which exit code."""

import json
from pathlib import Path

import pytest

from tests.engine.test_recordings import events_in, frames

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
STALE, LOST, CLEAN, LATE = (
    str(RECORDINGS / name) for name in ("stale-after-crash.bin", "node-lost.bin.zst", "clean.bin", "late-status.bin")
)
RUNNER = "runner-2217beaddbc496cb"


def test_a_check_ends_with_1_and_says_what_to_run(exo):
    ended = exo("replay", STALE, "--check")
    assert (ended.code, ended.err) == (1, "")
    assert f"\nstale_runner {RUNNER}, since record 74\n" in ended.out
    assert f"\n  story:  exo replay {STALE} --explain {RUNNER}\n" in ended.out
    assert "curl http://localhost:52415/" in ended.out
    assert exo("replay", CLEAN, "--check").code == 0


def test_a_story_ends_with_how_it_stands(exo):
    lines = exo("replay", STALE, "--explain", RUNNER).out.splitlines()
    assert lines[0].startswith("       8  instance instance-3898d190f9ebdacc of ")
    assert (
        f"{RUNNER}: it is RunnerFailed since record 72, its instance is gone, and no RunnerShutdown ever came" in lines
    )


def test_why_names_what_is_waited_for(exo):
    out = exo("replay", STALE, "--at", "33", "--why", "runner-8e81973e0becd7b0").out
    assert f"warm up                waits for {RUNNER} on node" in out
    ended = exo("replay", STALE, "--why", RUNNER)
    assert (ended.code, ended.out) == (3, "")
    assert f"--explain {RUNNER}" in ended.err


def test_events_are_lines_and_with_jsonl_objects(exo):
    told = [
        json.loads(line)
        for line in exo("replay", LOST, "--filter", "type=NodeTimedOut", "-o", "jsonl").out.splitlines()
    ]
    assert [each["index"] for each in told] == [96]
    assert len(exo("replay", LOST, "--events", "--from", "-5").out.splitlines()) <= 5


def test_a_part_of_the_state_is_json(exo):
    told = json.loads(exo("replay", STALE, "--show", f"runners.{RUNNER}.status").out)
    assert told["type"] == "RunnerFailed"
    ended = exo("replay", STALE, "--show", "rumours")
    assert (ended.code, ended.out) == (2, "")
    assert "there is index, term" in ended.err


def test_statistics_in_tables(exo):
    out = exo("replay", STALE, "--stats").out
    assert "RunnerStatusUpdated   25" in out
    assert "ChunkGenerated" in out


def test_a_cure_that_helps_ends_with_0_and_one_that_does_not_with_1(exo, tmp_path):
    event = tmp_path / "event.json"
    event.write_text(
        json.dumps({"RunnerStatusUpdated": {"runner_id": RUNNER, "runner_status": {"RunnerShutdown": {}}}})
    )
    ended = exo("replay", STALE, "--with", f"97={event}")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "vanished: 1")
    assert exo("replay", STALE, "--without", "73").code == 1
    assert exo("replay", STALE, "--with", "97").code == 2


def test_the_test_that_it_shrinks_to_is_the_answer(exo):
    ended = exo("replay", LOST, "--shrink", "orphan_task")
    assert (ended.code, ended.err) == (0, "orphan_task of task-48db40af72158370: 4 events are enough\n")
    compile(ended.out, "test_shrunk.py", "exec")


@pytest.mark.parametrize(
    ("condition", "code", "out"),
    [("stale_runner", 0, "74\n"), ("runners.count == 7", 3, ""), ("runners.count is 7", 2, "")],
)
def test_the_first_point_is_a_number(exo, condition, code, out):
    ended = exo("replay", STALE, "--bisect", condition)
    assert (ended.code, ended.out) == (code, out)


def test_without_an_argument_it_is_this_machines_log(exo, home):
    ended = exo("replay")
    assert (ended.code, ended.out) == (3, "")
    assert str(home) in ended.err


@pytest.mark.parametrize("words", [("--at", "soon"), ("--filter", "x"), ("--shrink", "a", "--bisect", "b")])
def test_what_makes_no_sense_is_a_usage_error(exo, words):
    ended = exo("replay", CLEAN, *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")


def test_what_a_log_is_mostly_about_is_said(exo, tmp_path):
    events = events_in("clean.bin")
    [progress] = [each for each in events if "NodeDownloadProgress" in each][2:3]
    (tmp_path / "flood.bin").write_bytes(frames([*events[:19], *[progress] * 3000, *events[19:]]))
    ended = exo("replay", str(tmp_path / "flood.bin"), "--check")
    assert ended.code == 0
    assert "events are about it (see --stats)" in ended.out
    item = json.loads(exo("replay", str(tmp_path / "flood.bin"), "--check", "-o", "json").out)["item"]
    assert item["notes"]["mostly"]["events"] == 3005
    assert "mostly" not in exo("replay", CLEAN, "--check").out


def test_what_ended_and_came_back_is_told_so(exo):
    runner = "runner-8ca8181166d22876"
    assert "and no RunnerShutdown came after that" in exo("replay", LATE, "--explain", runner).out


def test_the_story_of_a_node_has_the_findings_that_name_it(exo):
    story = exo("replay", LOST, "--explain", "d23f0824128b2f330c5c7fd0a6a3a450").out
    assert "finding: ghost_download" in story
