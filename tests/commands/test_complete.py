"""A TAB: the right words, in the shells themselves, from a node that is there, hangs, is gone, or lies."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from exo_cli import complete
from exo_cli.complete import candidates, split
from exo_cli.manual import children, tree
from tests.fakes_control import FakeNode, result

COMPLETIONS = Path(__file__).parents[2] / "completions"
EVIL = [
    "$(touch {})\tx",
    "`touch {}`\tx",
    "\\$(touch {})\tx",
    "a;touch {}\tx",
    "'\tx",
    '"\tx',
    "a b\tx",
    "-rf\tx",
    "é\tx",
]


def _offers(*words: str) -> list[str] | None:
    found, prefix = candidates(list(words[:-1]), words[-1], list)
    return None if found is None else [prefix + value for value, _ in found]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pl"], ["place", "plugin"]),
        (["node", "s"], ["start", "stop", "show"]),
        (["place", "--mi"], ["--min-nodes"]),
        (["place", "--strategy", ""], ["pipeline", "tensor"]),
        (["place", "--strategy=t"], ["--strategy=tensor"]),
        (["runners", "-o", "js"], ["json", "jsonl"]),
        (["-o", "json", "nod"], ["node"]),
        (["runners", "--color", "never", "lo"], ["logs"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["nonsense", ""], []),
        (["chat", "--", "-"], []),
        (["place", "--timeout", ""], []),
    ],
)
def test_words_of_the_table(words, expected):
    assert _offers(*words) == expected


@pytest.mark.parametrize("words", [["replay", ""], ["replay", "x"], ["replay", "--check", "x"]])
def test_files_are_the_shells_to_list(words):
    assert _offers(*words) is None


def test_short_options_come_only_for_a_single_dash():
    assert "-o" in (_offers("runners", "-") or ())
    assert "-o" not in (_offers("runners", "--") or ())


@pytest.mark.parametrize(
    ("line", "words", "current"),
    [
        ("exo pl", ["exo"], "pl"),
        ("exo place ", ["exo", "place"], ""),
        ("exo 'a b' c", ["exo", "a b"], "c"),
        (r"exo a\ b", ["exo"], "a b"),
        ('exo "a\\"b', ["exo"], 'a"b'),
        ("exo '' x", ["exo", ""], "x"),
        ("", [], ""),
    ],
)
def test_a_line_is_split_as_a_shell_would(line, words, current):
    assert split(line) == (words, current)


def test_the_table_has_every_command_and_option():
    def check(entry, command, context):
        shown = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
        names = {name for each in shown for name in (*each.opts, *each.secondary_opts) if name.startswith("-")}
        assert entry["options"].keys() == names
        below = list(children(command, context))
        assert list(entry["commands"]) == [name for name, _, _ in below]
        for name, child, inner in below:
            check(entry["commands"][name], child, inner)

    from exo_cli._command_table import TABLE

    check(TABLE, *tree())


# -- names from the node ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["delete", ""], "instance"),
        (["delete", "i-a", ""], "instance"),
        (["node", "show", ""], "node"),
        (["runners", "logs", ""], "runner"),
        (["place", ""], "model"),
        (["chat", "-m", ""], "model"),
    ],
)
def test_names_are_asked_of_the_node(node, words, kind):
    fake = node(complete=result({"lines": ["one\tfirst", "two\tsecond"]}))
    assert _offers(*words) == ["one", "two"]
    assert fake.asked[0]["params"] == {"kind": kind}


def test_the_last_answer_counts_when_the_node_is_gone(node):
    fake = node(complete=result({"lines": ["i-a\tsmollm2"]}))
    assert _offers("delete", "") == ["i-a"]
    fake.close()
    assert _offers("delete", "") == ["i-a"]


def test_a_node_that_hangs_costs_its_budget_and_no_more(node, monkeypatch):
    node().hello = None
    began = time.monotonic()
    assert _offers("delete", "") == []
    assert time.monotonic() - began < complete.BUDGET_SECONDS + 0.5


@pytest.mark.parametrize("lines", [["x" * 300] * 500, "no list", None, [1, None, {}]])
def test_a_node_that_lies_breaks_nothing(node, lines):
    node(complete=result({"lines": lines}))
    assert len(_offers("delete", "") or []) <= complete.MOST


def test_no_node_no_names(home):
    assert _offers("delete", "") == []
    assert not home.exists()


def test_hostile_names_are_not_offered(node):
    node(complete=result({"lines": [*EVIL, "n-good\te\x1b[31mvil\u202e"]}))
    assert _offers("node", "show", "") == ["n-good"]


def test_it_never_fails(capsys):
    assert complete.run([]) == 1
    assert complete.run(["bash"]) == 1
    assert capsys.readouterr() == ("", "")


# -- in the shells ----------------------------------------------------------------------------------------------------


def _bash(line: str, program_path: Path, breaks: str = " \t\n\"'><=;|&(:") -> list[str]:
    """What bash's own machinery would be given for this line."""
    ask = (
        f'source "{COMPLETIONS}/exo.bash"\n'
        'COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$2\n_exo "$3"\n'
        'for each in "${COMPREPLY[@]}"; do printf "%s|\\n" "$each"; done'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", ask, "bash", line, breaks, str(program_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("exo pl", ["place |", "plugin |"]),
        ("exo runners --output=js", ["json |", "jsonl |"]),
        ("exo runners -o ", ["table |", "plain |", "wide |", "json |", "jsonl |", "name |"]),
    ],
)
def test_bash(line, expected, program_path):
    assert _bash(line, program_path) == expected


def test_bash_completes_names_with_colons_and_slashes(node, program_path):
    node(complete=result({"lines": ["gemma3:270m\tx", "mlx-community/Qwen3\ty"]}))
    assert _bash("exo place gemma3:", program_path) == ["270m |"]
    assert _bash("exo place mlx-community/Q", program_path) == ["mlx-community/Qwen3 |"]


def test_bash_runs_nothing_that_a_node_says(node, program_path, tmp_path):
    trap = tmp_path / "ran"
    node(complete=result({"lines": [line.format(trap) for line in EVIL]}))
    assert _bash("exo delete ", program_path) == []
    assert not trap.exists()


@pytest.mark.parametrize("name", ["exo", "exo-cli"])
def test_both_names_of_the_program_are_completed(name):
    ask = f'source "{COMPLETIONS}/exo.bash"; complete -p {name}'
    assert "-F _exo" in subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("shell", "file"), [("bash", "exo.bash"), ("zsh", "_exo"), ("fish", "exo.fish")])
def test_the_scripts_are_printed(exo, shell, file):
    assert exo("completion", shell).out == (COMPLETIONS / file).read_text()


def _needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


@pytest.mark.system
@pytest.mark.parametrize(
    ("check", "file"),
    [(["zsh", "-n"], "_exo"), (["fish", "-n"], "exo.fish"), (["shellcheck", "-s", "bash"], "exo.bash")],
)
def test_the_scripts_are_sound(check, file):
    _needs(check[0])
    done = subprocess.run([*check, COMPLETIONS / file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _fake_program(folder: Path, program_path: Path) -> str:
    """A PATH whose `exo` is the program."""
    folder.mkdir()
    (folder / "exo").symlink_to(program_path)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.system
def test_fish(node, program_path, tmp_path):
    _needs("fish")
    trap = tmp_path / "ran"
    node(complete=result({"lines": ["i-a\tsmollm2", *(line.format(trap) for line in EVIL)]}))
    ask = f"source {COMPLETIONS}/exo.fish; complete -C 'exo pl'; complete -C 'exo delete '"
    environment = {"PATH": _fake_program(tmp_path / "bin", program_path), "HOME": str(tmp_path), **_home()}
    done = subprocess.run(["fish", "-N", "-c", ask], capture_output=True, text=True, check=True, env=environment)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["place", "plugin", "i-a"]
    assert not trap.exists()


@pytest.mark.system
def test_zsh_at_the_first_tab(node, program_path, tmp_path):
    """As `_exo` in fpath, through zsh's own line editor on a pseudo-terminal."""
    _needs("zsh")
    trap = tmp_path / "ran"
    node(complete=result({"lines": ["i-abc\tsmollm2", *(line.format(trap) for line in EVIL)]}))
    functions = tmp_path / "functions"
    functions.mkdir()
    (functions / "_exo").write_text((COMPLETIONS / "_exo").read_text())
    ask = (
        "zmodload zsh/zpty\n"
        "zpty tab zsh -f -i\n"
        f"zpty -w tab 'PS1=; fpath=({functions} $fpath); autoload -Uz compinit; compinit -u -D'\n"
        "zpty -w tab 'print -n REA; print DY'\n"
        "zpty -r tab line '*READY*'\n"
        "zpty -n -w tab $'exo delete i\\t'\n"
        "sleep 2\n"
        "zpty -r tab line '*i-abc*' && print -r -- \"$line\"\n"
    )
    environment = {
        "PATH": _fake_program(tmp_path / "bin", program_path),
        "HOME": str(tmp_path),
        "TERM": "dumb",
        **_home(),
    }
    done = subprocess.run(
        ["zsh", "-f", "-c", ask], capture_output=True, text=True, check=False, env=environment, timeout=30
    )
    assert "exo delete i-abc" in done.stdout
    assert not trap.exists()


def _home() -> dict[str, str]:
    import os

    return {"EXO_HOME": os.environ["EXO_HOME"]}


def test_the_fake_is_reached_at_the_homes_socket(node, home):
    assert isinstance(node(), FakeNode)
    assert (home / "run" / "control.sock").is_socket()
