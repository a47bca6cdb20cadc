"""The terminal: hostile text is made visible once, colour follows its rules, tables fit or are whole."""

import io
import json

import pytest

from exo_cli.console import PROSE, Console, Table, json_text, visible, wants_color

HOSTILE = {
    "escape": "\x1b[31mred\x1b[0m",
    "c1": "\x9b31m",
    "newline": "two\nlines\r\n",
    "bell": "\x07\x08",
    "rtl override": "\u202egnp.exe",
    "isolate": "\u2066a\u2069",
    "zero width": "a\u200bb\ufeff",
    "tag": "\U000e0041",
    "surrogate": "\udcff",
    "line separator": "a\u2028b",
    "hangul filler": "\u3164",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_written_out(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert "\\" in shown
    assert visible(shown) == shown


@pytest.mark.parametrize("text", ["plain", "日本語", "é", "Zürich-1", "🙂", "[red]markup[/red]", "$(touch x) `y`"])
def test_honest_text_stays(text: str) -> None:
    assert visible(text) == text


def test_prose_keeps_lines_and_joined_letters_but_no_sequences() -> None:
    assert visible("a\n\tb 👩\u200d💻", PROSE) == "a\n\tb 👩\u200d💻"
    assert visible("a\x1b[2J\u202e", PROSE) == "a\\x1b[2J\\u202e"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("indent", [None, 2])
def test_json_carries_hostile_text_without_sending_it(text: str, indent: int | None) -> None:
    written = json_text({"name": text, text: [1]}, indent=indent)
    assert written.replace("\n", "").isprintable()
    assert json.loads(written) == {"name": text, text: [1]}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("when", "environ", "on_terminal", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, False, False),
        ("auto", {"CLICOLOR_FORCE": "1"}, False, True),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_color_follows_its_rules(when: str, environ: dict[str, str], on_terminal: bool, expected: bool) -> None:
    stream = _Terminal() if on_terminal else io.StringIO()
    assert wants_color(stream, when, environ) is expected


def _drawn(table: Table, monkeypatch: pytest.MonkeyPatch, *, on_terminal: bool, width: int = 30) -> list[str]:
    console = Console()
    console.out = _Terminal() if on_terminal else io.StringIO()
    monkeypatch.setattr(console, "_width", lambda: width)
    monkeypatch.setenv("NO_COLOR", "1")
    console.table(table)
    return console.out.getvalue().splitlines()


def test_a_table_is_whole_in_a_pipe_and_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(("ID", "ERROR"), (("i-123456789012", "x" * 60),), frozenset({1}))
    assert _drawn(table, monkeypatch, on_terminal=False)[1] == "i-123456789012  " + "x" * 60
    drawn = _drawn(table, monkeypatch, on_terminal=True)
    assert [len(line) <= 30 for line in drawn] == [True, True]
    assert drawn[1].startswith("i-123456789012  x")
    assert drawn[1].endswith("…")


def test_wide_letters_keep_columns_straight(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = _drawn(Table(("NAME", "N"), (("日本", "1"), ("e\u0301", "2"))), monkeypatch, on_terminal=False)
    assert drawn == ["NAME  N", "日本  1", "e\u0301     2"]


def test_progress_is_one_line_a_change_without_sequences_off_a_terminal() -> None:
    console = Console()
    console.err = io.StringIO()
    for line in ("loading", "loading", "warming up"):
        console.progress(line)
    console.end_progress()
    assert console.err.getvalue() == "loading\nwarming up\n"


def test_progress_leaves_nothing_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console()
    console.err = _Terminal()
    monkeypatch.setattr(console, "_width", lambda: 10)
    console.progress("a long line of progress")
    console.end_progress()
    assert console.err.getvalue() == "a long li\r\x1b[K"
