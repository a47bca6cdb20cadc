"""`exo replay` of what cannot be asked: one line, a hint that can be run, the code, and nothing on standard output."""

import os
import shlex
import shutil
from pathlib import Path

import pytest
import zstandard

STALE = str(Path("tests/data/recordings/stale-after-crash.bin").resolve())
DEEP = "[" * 100_000
MODULE = """
import sys

class Mute(Exception):
    def __str__(self):
        raise RuntimeError

def leaves(state, record):
    sys.exit(3)

def mute(state, record):
    raise Mute

def prints(state, record):
    from exo_cli.engine.core.reducer import apply
    print("said by the reducer")
    apply(state, record)
"""


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A folder with a pipe, a bomb, a deep event, an event without end, a reducer, and a log with a bad name."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkfifo("pipe2")
    Path("bomb.zst").write_bytes(zstandard.ZstdCompressor().compress(bytes(1 << 28)))
    Path("deep.json").write_text(DEEP)
    Path("hostile_reducers.py").write_text(MODULE)
    shutil.copy(STALE, "a b;$(c).bin")
    Path("own").mkdir()
    Path("own/00000000000000000000.log").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("pipe", "--at", "-1"), 2, "needs a file, not a pipe"),
        (("pipe", "--from", "-1", "--events"), 2, "needs a file, not a pipe"),
        (("/dev/zero", "--at", "-1"), 2, "needs a file, not a pipe"),
        (("pipe", "pipe2", "--check"), 2, "a pipe cannot be"),
        (("pipe", "--follow"), 2, "can be followed"),
        (("bomb.zst", "--at", "-1"), 12, "no event log"),
        (("bomb.zst",), 12, "bomb.zst"),
        ((STALE, "--at", "-99999"), 3, "has no 99999 records"),
        ((STALE, "--with", "3=deep.json"), 12, "holds no event"),
        ((STALE, "--with", "3=/dev/zero"), 12, "it is longer than"),
        ((STALE, "--bisect", f"term == {DEEP}"), 3, "holds nowhere"),
        (("http://[::1",), 2, "no host in"),
        ((STALE, "--reducer", "hostile_reducers:leaves"), 1, "SystemExit"),
        ((STALE, "--reducer", "hostile_reducers:mute"), 1, "raised at record 0: Mute"),
        ((STALE, "--node", "x"), 2, "--node belongs to --why"),
        ((STALE, "--show", "runners", "--explain", "x"), 2, "do not go together"),
        ((STALE, "--export", "own/x.log"), 2, "nothing else belongs there"),
        ((STALE, "--html", "own/x.html"), 2, "nothing else belongs there"),
        (("a b;$(c).bin", "--at", "-99999"), 3, "a b;$(c).bin"),
    ],
)
def test_it_is_refused_in_one_line(exo, there, words, code, said):
    ended = exo("replay", *words)
    assert (ended.code, ended.out) == (code, "")
    first, *hints = ended.err.splitlines()
    assert first.startswith("error: ")
    assert said in ended.err
    assert hints
    assert all(each.startswith("hint: ") for each in hints)
    assert all(shlex.split(each.removeprefix("hint: ")) for each in hints)
    assert not {"a", "b;$(c).bin"} & set(shlex.split(hints[0]))


def test_what_a_reducer_prints_is_no_answer(exo, there):
    ended = exo("replay", STALE, "--reducer", "hostile_reducers:prints", "-o", "json")
    assert (ended.code, ended.out[:1]) == (0, "{")
    assert "said by the reducer" in ended.err


def test_two_values_of_a_filter_are_either_of_them(exo):
    def told(*kinds):
        return exo("replay", STALE, *(word for each in kinds for word in ("--filter", f"type={each}"))).out.splitlines()

    both = told("InstanceCreated", "InstanceDeleted")
    assert len(both) == len(told("InstanceCreated")) + len(told("InstanceDeleted")) == 2


def test_what_is_asked_together_is_told_together(exo):
    runner = "runner-2217beaddbc496cb"
    out = exo("replay", STALE, "--at", "33", "--explain", runner, "--why", runner, "--stats").out
    for words in (("--at", "33", "--explain", runner), ("--at", "33", "--why", runner), ("--at", "33", "--stats")):
        assert exo("replay", STALE, *words).out.strip() in out
