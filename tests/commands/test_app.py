"""The root command: one exit for every end, help without weight, options anywhere, signals that really end it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from exo_cli import app as app_module
from exo_cli.app import main
from exo_cli.commands import TABLE
from exo_cli.engine.core.errors import BadDataError, NotFoundError
from exo_cli.manual import children, tree
from tests.fakes_control import error, result, script

RUNNERS = {"revision": 5, "items": []}
HEAVY = {"trio", "mlx", "mlx_lm", "transformers", "pynng", "pydantic", "rich", "asyncio", "exo_cli.engine.node"}


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["chat", "-h"], ["node", "start", "--help"], ["plugin", "-h"]])
def test_help_is_an_answer(exo, words):
    ended = exo(*words)
    assert ended.code == 0
    assert ended.out.startswith("Usage: exo")
    assert ended.err == ""


def test_help_lists_the_table_in_its_order(exo):
    listed = exo("--help").out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == [row.name for row in TABLE]
    assert [line.split(maxsplit=1)[1] for line in listed] == [row.summary for row in TABLE]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["chat", "--help"],
        ["runners", "-o", "json"],
        ["chat", "hi", "--no-start", "--temperature", "0", "--stop", "x", "-o", "json"],
        ["__complete", "bash", "exo pl"],
    ],
)
def test_nothing_heavy_is_imported(words):
    code = "import sys; from exo_cli.__main__ import main; main()\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0
    loaded = set(done.stderr.split())
    assert "exo_cli" in loaded
    assert loaded.isdisjoint(HEAVY), loaded & HEAVY


def test_the_version_is_answered_by_both_ways(exo, program):
    assert program("--version").out == exo("--version").out
    assert exo("--version", "--color", "never").out.startswith("exo 0.")


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["bogus"], "there is no command 'bogus'", "exo --help"),
        (["plac"], "there is no command 'plac'", "exo place --help"),
        ([], "a command is missing", "exo --help"),
        (["node"], "a command is missing", "exo node --help"),
        (["place"], "missing argument 'MODEL'", "exo place --help"),
        (["place", "x", "--min-nodes", "q"], "should be a valid integer", "exo place --help"),
        (["place", "x", "--timeout", "inf"], "a number with an end is needed", "exo place --help"),
        (["place", "x", "--timeout", "nan"], "a number with an end is needed", "exo place --help"),
        (["place", "x", "--strategy", "ring"], "'ring' is not one of", "exo place --help"),
        (["chat", "x", "--temperature", "11"], "less than or equal to 10", "exo chat --help"),
        (["place", "x", "--min-nodes", "0"], "invalid value for '--min-nodes'", "exo place --help"),
        (["runners", "-o", "yaml"], "'yaml' is not one of", "exo runners --help"),
        (["runners", "--bogus"], "no such option: --bogus", "exo runners --help"),
        (["runners", "-w", "logs", "x"], "--watch belongs to the list", "exo runners --watch"),
        (["runners", "--endpoint", "nowhere"], "'nowhere' (from --endpoint) is neither", "exo node show"),
        (["--endpoint", "h:99999", "runners"], "is neither HOST:PORT", "exo node show"),
        (["delete", ""], "an instance id is empty", "exo runners"),
        (["b\x1b[31mad"], "there is no command 'b\\x1b[31mad'", "exo --help"),
    ],
)
def test_what_is_mistyped_is_said_and_mended(exo, words, said, hint):
    ended = exo(*words)
    assert ended.code == 2
    assert ended.out == ""
    first, *hints = ended.err.splitlines()
    assert first.startswith("error: ")
    assert said in first
    assert f"hint: {hint}" in hints
    assert "pydantic" not in ended.err
    assert ended.err.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "words",
    [
        ["-o", "json", "bogus"],
        ["runners", "-o", "json", "--bogus"],
        ["runners", "--bogus", "-o", "json"],
        ["runners", "--output=jsonl", "extra"],
        ["-ojson", "place"],
    ],
)
def test_errors_are_json_where_a_machine_reads_even_of_the_parser(exo, words):
    ended = exo(*words)
    assert (ended.code, ended.out) == (2, "")
    written = json.loads(ended.err)["error"]
    assert written.keys() == {"code", "exit", "message", "hints", "details"}
    assert (written["code"], written["exit"]) == ("usage", 2)


def test_json_after_the_end_of_options_is_not_meant(exo):
    assert exo("delete", "--", "-o", "json").err.startswith("error: ")


@pytest.mark.parametrize("words", [["-o", "json", "runners"], ["runners", "-o", "json"], ["runners", "list", "-ojson"]])
def test_options_work_before_and_after_the_command(exo, node, words):
    node(runners=result(RUNNERS))
    ended = exo(*words)
    assert json.loads(ended.out) == {"kind": "RunnerList", "schema": 1, **RUNNERS}
    assert (ended.code, ended.err) == (0, "")


def test_every_leaf_has_the_common_options_and_readers_have_all():
    def leaves(command, context, path):
        below = list(children(command, context))
        if not below:
            yield path, {each.name: each for each in command.params}
        for name, child, inner in below:
            yield from leaves(child, inner, (*path, name))

    found = dict(leaves(*tree(), ()))
    assert all("color" in options for options in found.values())
    for path in (
        ("node", "list"),
        ("node", "show"),
        ("place",),
        ("delete",),
        ("runners", "list"),
        ("runners", "restart"),
    ):
        assert {"output", "endpoint"} <= found[path].keys(), path


def test_an_endpoint_that_is_not_there_says_who_chose_it(exo, monkeypatch, tmp_path):
    by_flag = exo("runners", "--endpoint", f"unix:{tmp_path}/a")
    assert by_flag.code == 5
    assert f"unix:{tmp_path}/a (from --endpoint)" in by_flag.err
    monkeypatch.setenv("EXO_ENDPOINT", f"unix:{tmp_path}/b")
    by_variable = exo("runners")
    assert f"unix:{tmp_path}/b (from EXO_ENDPOINT)" in by_variable.err
    assert "hint: unset EXO_ENDPOINT" in by_variable.err
    assert f"unix:{tmp_path}/c (from --endpoint)" in exo("--endpoint", f"unix:{tmp_path}/c", "runners").err


def test_no_node_at_all_says_how_to_start_one(exo):
    ended = exo("node", "list")
    assert (ended.code, ended.out) == (5, "")
    assert "hint: exo node start --detach" in ended.err


def test_an_error_of_the_node_shows_its_evidence_and_two_hints(exo, node):
    reason = NotFoundError("no such thing\n  it was \x1b[2J here", "exo runners", "exo node list", "exo a third")
    node(runners=error(reason))
    ended = exo("runners")
    assert ended.code == 3
    assert ended.err == "error: no such thing\n  it was \\x1b[2J here\nhint: exo runners\nhint: exo node list\n"


def test_a_bug_leaves_a_report_and_no_traceback(exo, monkeypatch, home):
    def boom(*_: object) -> int:
        raise ValueError("unforeseen")

    monkeypatch.setattr(app_module, "run", boom)
    ended = exo("runners")
    assert ended.code == 70
    assert "Traceback" not in ended.err
    report = next((home / "state").glob("crash-*.log"))
    assert str(report) in ended.err
    assert "ValueError: unforeseen" in report.read_text()
    assert report.stat().st_mode & 0o077 == 0


def test_a_bug_is_reported_even_where_nothing_can_be_written(exo, monkeypatch, home):
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_text("a file where a folder should be")
    monkeypatch.setattr(app_module, "run", lambda *_: 1 / 0)
    ended = exo("runners")
    assert ended.code == 70
    assert "no report could be written" in ended.err


def test_a_relative_home_is_a_usage_error(exo, monkeypatch):
    monkeypatch.setenv("EXO_HOME", "here")
    ended = exo("runners")
    assert ended.code == 2
    assert "EXO_HOME" in ended.err


def test_ctrl_c_ends_by_the_signal_after_one_line(node, start_program):
    node(watch=script({"type": "changed", "revision": 1, "items": []}, ends=None))
    process = start_program("runners", "--watch", "-o", "jsonl")
    assert b"SYNCED" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=5)
    assert process.returncode == -signal.SIGINT
    assert said == b"interrupted\n"


def test_a_shell_loop_stops_with_it(node, program_path, tmp_path):
    node(watch=script({"type": "changed", "revision": 1, "items": []}, ends=None))
    loop = 'for i in 1 2; do echo "$i" >> "$1"; "$2" runners --watch; done'
    shell = subprocess.Popen(
        ["bash", "-c", loop, "loop", str(tmp_path / "turns"), program_path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    shell.stdout.readline()
    os.killpg(shell.pid, signal.SIGINT)
    shell.communicate(timeout=5)
    assert (tmp_path / "turns").read_text() == "1\n"


def test_a_reader_that_went_away_is_no_failure_to_speak_of(node, start_program):
    items = [{"runner_id": f"i-{number}-0", "status": "RunnerReady"} for number in range(5000)]
    node(runners=result({"revision": 1, "items": items}))
    process = start_program("runners")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=5) == -signal.SIGPIPE
    assert process.stderr.read() == b""


def test_a_full_disk_is_an_error_of_one_line(node, program_path):
    node(runners=result(RUNNERS))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [program_path, "runners"],
            stdout=full,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr


def test_output_in_an_encoding_of_few_letters_does_not_fail(node, program):
    node(runners=result({"revision": 1, "items": [{"runner_id": "i-1-0", "model": "日本"}]}))
    ended = program("runners", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ended.code == 0
    assert "\\u65e5" in ended.out


def test_typers_own_ends_are_kept(monkeypatch, capsys):
    def leave(*_: object) -> int:
        raise BadDataError("torn")

    monkeypatch.setattr(app_module, "run", leave)
    assert main(["runners"]) == 12
    assert typer.Exit(9).exit_code == 9
    assert "torn" in capsys.readouterr().err


def test_starting_up_takes_little(program):
    """A wide bar here against gross mistakes; bench measures the real ones."""
    began = time.monotonic()
    program("--help")
    assert time.monotonic() - began < 3
