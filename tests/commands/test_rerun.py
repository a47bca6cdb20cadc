"""`exo replay FILE --rerun` as people run it, and whatever is given to it in place of a recording."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exo_cli.app import main
from exo_cli.engine.core import planner
from tests.engine.test_recorder import live, recorded


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """A recording of a node that places a model."""
    file = tmp_path_factory.mktemp("recording") / "r"
    with recorded(file) as recorder:
        live(recorder)
    return file.read_bytes().splitlines(keepends=True)


@pytest.fixture
def recording(tmp_path):
    """A function that writes the pieces of one."""

    def write(*pieces):
        file = tmp_path / "r"
        file.write_bytes(b"".join(pieces))
        return str(file)

    return write


def with_changes(line, **changes):
    return json.dumps({**json.loads(line), **changes}).encode() + b"\n"


def test_no_difference_is_one_line(exo, recording, lines):
    ended = exo("replay", recording(*lines), "--rerun")
    assert (ended.code, ended.out, ended.err) == (0, f"{len(lines) - 1} inputs, no difference\n", "")
    assert exo("replay", recording(lines[0]), "--rerun").out == "0 inputs, no difference\n"


def test_the_document(exo, recording, lines):
    path = recording(*lines)
    document = json.loads(exo("replay", path, "--rerun", "-o", "json").out)
    assert document == {
        "kind": "Rerun",
        "schema": 1,
        "revision": None,
        "item": {
            "path": path,
            "format": "exo-record/1",
            "version": "1",
            "node_id": "a",
            "inputs": len(lines) - 1,
            "difference": None,
            "torn_tail": None,
        },
    }


def test_a_changed_rule_is_told_with_its_input(exo, recording, lines, monkeypatch):
    number = next(n for n, line in enumerate(lines[1:], 1) if b'"type":"CreateRunner"' in line)
    monkeypatch.setitem(planner.RULES, "create runner", lambda view: iter(()))
    ended = exo("replay", recording(*lines), "--rerun")
    assert (ended.code, ended.err) == (10, "")
    first, *rest = ended.out.splitlines()
    assert first.startswith(f"input {number} (line {number + 1}) at 2026-01-01T00:00:0")
    assert first.endswith("differs from what version 1 did: Appended")
    fields = {"upto": json.loads(lines[number])["input"]["upto"]}
    assert rest[0] == f"  upto: {fields['upto']}"
    assert rest[1] == "effects.act"
    assert rest[2].startswith('  recorded [{"instance_id": ')
    assert rest[3] == "  now      nothing"
    told = exo("replay", recording(*lines), "--rerun", "-o", "json")
    assert told.code == 10
    difference = json.loads(told.out)["item"]["difference"]
    assert (difference["input"], difference["fields"]) == (number, fields)


def test_of_many_changes_twenty_are_told(exo, recording, lines):
    effects = {"note": [{"type": "Note", "kind": str(number), "fields": {}} for number in range(30)], "act": []}
    path = recording(lines[0], with_changes(lines[1], effects=effects | {"send": None}))
    ended = exo("replay", path, "--rerun")
    assert ended.code == 10
    told = json.loads(exo("replay", path, "--rerun", "-o", "json").out)["item"]["difference"]
    assert len(told["changes"]) <= 20


def test_hostile_text_is_written_out(exo, recording, lines):
    hostile = "\x1b[31mred\u202e"
    effects = {"note": [{"type": "Note", "kind": hostile, "fields": {hostile: 1}}]}
    told = {"type": "AppendFailed", "error": hostile}
    ended = exo("replay", recording(*lines[:2], with_changes(lines[2], input=told, effects=effects)), "--rerun")
    assert ended.code == 10
    assert "\x1b" not in ended.out
    assert "\u202e" not in ended.out


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_what_a_kill_left_of_the_last_line_is_said_and_passed_over(exo, recording, lines, cut):
    ended = exo("replay", recording(*lines[:5], lines[5][:cut]), "--rerun")
    assert (ended.code, ended.out) == (0, "4 inputs, no difference\n")
    assert ended.err.startswith("warning: the recording ends in the middle of a line (line 6, ")


def test_it_comes_through_a_pipe(exo, lines):
    assert exo("replay", "-", "--rerun", stdin=b"".join(lines)).out == f"{len(lines) - 1} inputs, no difference\n"


def test_what_is_none_is_refused_in_one_line(exo, recording, lines, tmp_path):
    for pieces, says in (
        ((), "holds no recording"),
        ((b'{"kind":"exo-log","format":1}\n',), "line 1 cannot be used: it is no recording"),
        ((b"\x80\n",), "line 1 cannot be used"),
        ((lines[0], b"nonsense\n", lines[1]), "line 2 cannot be used"),
        ((lines[0], lines[1], b"\n"), "line 3 cannot be used"),
        ((with_changes(lines[0], state={"nodes": 1}),), "line 1 cannot be used: nodes"),
        ((lines[0][:50],), "line 1 cannot be used"),
    ):
        ended = exo("replay", recording(*pieces), "--rerun")
        assert (ended.code, ended.out) == (12, "")
        assert says in ended.err
        assert "hint: exo node start --record FILE" in ended.err
    assert exo("replay", str(tmp_path / "nothing"), "--rerun").code == 3
    assert exo("replay", str(tmp_path), "--rerun").code == 12


def test_without_the_option_it_is_named(exo, recording, lines):
    path = recording(*lines)
    for question in ((), ("--check",), ("--explain", "a")):
        ended = exo("replay", path, *question)
        assert (ended.code, ended.out) == (12, "")
        assert f"hint: exo replay {path} --rerun" in ended.err


def test_a_newer_one_asks_for_a_newer_program(exo, recording, lines):
    unheard_of = with_changes(lines[1], input={"type": "Novelty"})
    for pieces in ((with_changes(lines[0], format=2, novelty=1), *lines[1:]), (lines[0], unheard_of)):
        ended = exo("replay", recording(*pieces), "--rerun")
        assert (ended.code, ended.out) == (12, "")
        assert "hint: pip install --upgrade exo-cli" in ended.err


def test_a_line_without_end_is_not_read_to_its_end(exo, recording, lines, monkeypatch):
    monkeypatch.setattr("exo_cli.engine.replaying.rerunning.LIMIT_BYTES", 50_000)
    ended = exo("replay", recording(*lines[:2], b"[" * 60_000), "--rerun")
    assert (ended.code, ended.out) == (12, "")
    assert "longer than 50000 bytes" in ended.err


@pytest.mark.parametrize("other", [("--check",), ("--at", "3"), ("--events",), ("--follow",), ("--bisect", "x")])
def test_it_goes_with_no_other_question(exo, recording, lines, other):
    ended = exo("replay", recording(*lines), "--rerun", *other)
    assert (ended.code, ended.out) == (2, "")


def test_it_takes_one_recording(exo, recording, lines):
    path = recording(*lines)
    assert exo("replay", path, path, "--rerun").code == 2
    ended = exo("replay", "--rerun")
    assert (ended.code, ended.out) == (2, "")
    assert "hint: exo replay FILE --rerun" in ended.err


EDITS = st.tuples(st.integers(0, 1 << 16), st.integers(0, 40), st.binary(max_size=12))


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.lists(EDITS, min_size=1, max_size=3))
def test_whatever_it_reads_there_is_an_answer_and_no_traceback(lines, tmp_path, capsys, edits):
    text = b"".join(lines)
    if isinstance(edits, bytes):
        text = edits
    else:
        for place, length, put in edits:
            text = text[: place % len(text)] + put + text[place % len(text) + length :]
    (tmp_path / "r").write_bytes(text)
    code = main(["replay", str(tmp_path / "r"), "--rerun"])
    said = capsys.readouterr()
    assert code in {0, 10, 12}
    assert "Traceback" not in said.err
    assert "\x1b" not in said.out + said.err


VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just([]) | st.just({}) | st.just({"a": 1})


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_nor_when_a_value_in_it_is_another(lines, tmp_path, capsys, data):
    number = data.draw(st.integers(0, len(lines) - 1))
    changed = inner = json.loads(lines[number])
    while True:
        name = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
        if not isinstance(inner[name], dict | list) or not inner[name] or data.draw(st.booleans()):
            inner[name] = data.draw(VALUES)
            break
        inner = inner[name]
    lines = [*lines[:number], json.dumps(changed).encode() + b"\n", *lines[number + 1 :]]
    (tmp_path / "r").write_bytes(b"".join(lines))
    code = main(["replay", str(tmp_path / "r"), "--rerun"])
    said = capsys.readouterr()
    assert code in {0, 10, 12}
    assert "Traceback" not in said.err
