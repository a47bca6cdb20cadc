"""The transcripts: commands in, effects out, one file a story. `pytest tests/scripts --rewrite`, then read the diff.

A line that begins with `> ` is a command to the stage, one that begins with `# ` is told to the reader; all others are
what came of the command above them.
"""

from pathlib import Path

import pytest

from tests.scripts.stage import Stage

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


def play(text: str) -> str:
    """The same story with what follows from its commands today."""
    stage, told = Stage(), []
    for line in text.splitlines():
        if line.startswith("> "):
            told += [line, *stage.do(line[2:])]
        elif line.startswith("#") or not line:
            told.append(line)
    return "\n".join(told) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path, request):
    written = path.read_text()
    played = play(written)
    if request.config.getoption("--rewrite"):
        path.write_text(played)
    else:
        assert played == written, f"{path.name} tells another story: pytest tests/scripts --rewrite, then read the diff"


def test_there_are_stories():
    names = {path.stem for path in SCRIPTS}
    assert {"place", "delete", "crash", "late-status", "join", "node-lost"} <= names


def test_every_verb_is_played():
    verbs = {name.removeprefix("do_") for name in vars(Stage) if name.startswith("do_")}
    used = {line.split()[1] for path in SCRIPTS for line in path.read_text().splitlines() if line.startswith("> ")}
    assert used == verbs
