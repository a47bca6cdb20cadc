"""The timeline: what stands in which column, what is marked in it, and what may not be asked beside it."""

import json

import pytest

from exo_cli import replay_timeline
from exo_cli.replay_lanes import drawn_findings, stretches
from tests.commands.test_replay_asked import LOST, STALE

STALE_SINCE_4 = {"kind": "stale_runner", "id": "r", "since_index": 4, "until_index": None, "why": "w", "remedy": "x"}


def a_span(status, begin, end=None, *findings):
    return {"status": status, "from_index": begin, "to_index": end, "findings": findings}


def a_lane(*spans, sort="runner", name="r", of=None, refused=()):
    marks = [{"index": index, "why": "late"} for index in refused]
    return {"sort": sort, "id": name, "of": of, "spans": spans, "refused": marks}


def lanes(*drawn, first=0, last=9, **other):
    times = {"first_at": None, "last_at": None, "left_out": 0}
    return {"first_index": first, "last_index": last, "lanes": list(drawn), **times, **other}


def held(since, until=None, kind="stale_runner"):
    return {"kind": kind, "since_index": since, "until_index": until}


@pytest.mark.parametrize(
    ("span", "cut"),
    [
        (a_span("Ready", 2, 5), [(2, 5, ())]),
        (a_span("Ready", 2), [(2, 10, ())]),
        (a_span("Ready", 12), []),
        (a_span("Ready", -3, 0), []),
        (a_span("Ready", 2, None, held(4)), [(2, 4, ()), (4, 10, ("stale_runner",))]),
        (a_span("Ready", 2, 8, held(4, 6)), [(2, 4, ()), (4, 6, ("stale_runner",)), (6, 8, ())]),
        (a_span("Ready", 2, 8, held(4, 4)), [(2, 4, ()), (4, 5, ("stale_runner",)), (5, 8, ())]),
        (a_span("Ready", 2, 8, held(1, 20)), [(2, 8, ("stale_runner",))]),
        (a_span("Ready", 2, 8, held(1, None, "a"), held(6, None, "b")), [(2, 6, ("a",)), (6, 8, ("a", "b"))]),
        (a_span("Ready", 2, 8, held(1), held(1)), [(2, 8, ("stale_runner",))]),
    ],
)  # fmt: skip
def test_spans_are_cut_where_a_finding_begins_or_ends(span, cut):
    assert [(each.begin, each.end, each.stale) for each in stretches(lanes(), a_lane(span))] == cut


@pytest.mark.parametrize(
    ("lane", "row"),
    [
        (a_lane(a_span("Idle", 0, 5), a_span("Ready", 5)), "iiiiiiiiiirrrrrrrrrr"),
        (a_lane(a_span("Idle", 2, 4)), "    iiii"),
        (a_lane(a_span("Strange", 8)), " " * 16 + "????"),
        (a_lane(a_span("Running", 0, None, held(5))), "RRRRRRRRRR!R!R!R!R!R"),
        (a_lane(a_span("Ready", 0), refused=[9, 0]), "orrrrrrrrrrrrrrrrror"),
        (a_lane(a_span("Present", 0), sort="node"), "===================="),
    ],
)
def test_rows(lane, row):
    name = "node r" if lane["sort"] == "node" else "r"
    first, *_ = replay_timeline.timeline(lanes(lane), (), width=len(name) + 22, color=False)
    assert first == f"{name}  {row}"


@pytest.mark.parametrize(
    ("spans", "letter"),
    [
        ([a_span("Ready", 0, 3), a_span("Running", 3, 100)], "R"),
        ([a_span("Ready", 0, 3), a_span("Failed", 3, 4), a_span("Idle", 4, 100)], "F"),
        ([a_span("Ready", 0, 3, held(1, 2)), a_span("Failed", 3, 4)], "!"),
    ],
)
def test_of_what_shares_a_column_the_most_is_seen_and_what_is_wrong_never_hidden(spans, letter):
    first, *_ = replay_timeline.timeline(lanes(a_lane(*spans), last=1999), (), width=23, color=False)
    assert first[3] == letter


def test_runners_stand_indented_below_their_instance_and_names_are_harmless():
    drawn = lanes(a_lane(sort="instance", name="i"), a_lane(name="\x1b[2J\u202er", of="i"))
    lines = list(replay_timeline.timeline(drawn, (), width=60, color=False))
    assert lines[:2] == ["i", "  \\x1b[2J\\u202er"]


def test_only_color_makes_escapes():
    drawn = lanes(a_lane(a_span("Ready", 0, None, held(5))))
    plain, colored = ("\n".join(replay_timeline.timeline(drawn, (), width=40, color=color)) for color in (False, True))
    assert "\x1b" not in plain
    assert "\x1b[32mrrr" in colored
    assert "\x1b[7;31m!\x1b[0m\x1b[32mr" in colored
    assert "\x1b[7;31m!\x1b[0m stale" in colored


def test_axis_legend_findings_and_what_is_left_out():
    over = {**STALE_SINCE_4, "until_index": 7}
    past = {**STALE_SINCE_4, "since_index": 20}
    drawn = lanes(
        a_lane(a_span("Ready", 0, None, held(4))), left_out=3, first_at="2026-01-01T00:00:00Z", last_at="then"
    )
    lines = list(replay_timeline.timeline(drawn, [STALE_SINCE_4, over, past], width=40, color=False))
    assert lines[2] == "   0" + " " * 35 + "9"
    assert lines[3].split() == ["2026-01-01T00:00:00Z", "then"]
    assert "r Ready  ! stale" in lines
    text = "\n".join(lines)
    assert "findings: 2\n  stale_runner r, since record 4: w\n    remedy: x\n" in text
    assert "since record 4: w, until 7" in text
    assert "findings outside of these records: 1" in text
    assert "left out: the 3 oldest spans" in text


@pytest.mark.parametrize(
    ("since", "until", "is_drawn"), [(0, 2, False), (0, 6, True), (9, None, True), (10, None, False), (5, 5, True)]
)
def test_findings_of_what_is_drawn(since, until, is_drawn):
    assert bool(drawn_findings(lanes(first=5), [held(since, until)])) is is_drawn


def test_no_line_of_a_drawing_is_wider_than_asked():
    every = [a_span(name, index, index + 1) for index, name in enumerate(replay_timeline.INKS)]
    drawn = lanes(*(a_lane(*every, name="n" * size) for size in (3, 300)), last=11)
    for width in (20, 40, 80, 100, 200):
        lines = list(replay_timeline.timeline(drawn, (), width=width, color=False))
        assert max(map(len, lines)) <= width


def test_the_real_program_draws_a_recording(exo):
    ended = exo("replay", LOST, "--timeline")
    rows = ended.out.splitlines()
    assert (ended.code, ended.err) == (0, "")
    assert max(map(len, rows[:10])) == replay_timeline.PIPE_COLUMNS
    [stale] = [row for row in rows[:8] if "!" in row]
    assert stale.startswith("  runner-795e8229451abd81 ")
    assert exo("replay", LOST, "--timeline", "--check").code == 1
    assert "\x1b[32mr" in exo("--color", "always", "replay", LOST, "--timeline").out


def test_from_and_to_clip_and_json_has_the_lanes(exo):
    ended = exo("replay", STALE, "--timeline", "--from", "-23", "--to", "90", "-o", "json")
    told = json.loads(ended.out)
    assert told["kind"] == "Lanes"
    assert (told["item"]["first_index"], told["item"]["last_index"]) == (74, 90)
    assert [each["id"] for each in told["item"]["findings"]] == ["runner-2217beaddbc496cb"]
    assert json.loads(exo("replay", STALE, "--timeline", "--at", "50", "-o", "json").out)["item"]["last_index"] == 50
    assert exo("replay", STALE, "--timeline", "--from", "97").code == 3
    assert exo("replay", STALE, "--timeline", "--from", "9", "--to", "8").code == 3


@pytest.mark.parametrize(
    "words",
    [
        ["--show", "runners"],
        ["--explain", "x"],
        ["--why", "x"],
        ["--stats"],
        ["--events"],
        ["--filter", "type=NodeTimedOut"],
        ["--follow"],
        ["--shrink", "orphan_task"],
        [LOST],
    ],
)
def test_what_makes_no_sense_with_it_is_refused(exo, words):
    ended = exo("replay", STALE, "--timeline", *words)
    assert (ended.code, ended.out) == (2, "")
    assert "error: " in ended.err
