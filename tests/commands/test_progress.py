"""How far the reading of a long log is: parts that only grow, and nothing where nobody looks."""

import os
import pty
import select
import subprocess
import time

import pytest

from bench.logs import events_of, write
from exo_cli.commands.replay.progress import progress_line
from exo_cli.engine.log.rotation import Limits
from exo_cli.engine.replaying import replay
from exo_cli.engine.replaying.source import Source


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Packed segments and plain ones."""
    return write(tmp_path_factory.mktemp("log") / "log", events_of(30_000), Limits(segment_bytes=1 << 20))


def test_the_parts_of_a_log_grow(log, monkeypatch):
    told = []
    monkeypatch.setattr(Source, "on_progress", staticmethod(lambda lines, part: told.append((lines, part))))
    replay(str(log))
    assert len(list(log.glob("*.zst"))) > 1
    assert told == sorted(told)
    assert told[0] == (0, 0.0)
    assert 0.8 < told[-1][1] <= 1
    assert [lines for lines, _ in told] == list(range(0, told[-1][0] + 1, 4096))


@pytest.mark.parametrize("name", ["late-status.bin", "node-lost.bin.zst"])
def test_of_a_stream_only_the_records_are_known(name, monkeypatch):
    told = []
    monkeypatch.setattr(Source, "on_progress", staticmethod(lambda lines, part: told.append((lines, part))))
    replay(f"tests/data/recordings/{name}")
    assert told == [(0, None if name.endswith(".zst") else 0.0)]


@pytest.mark.parametrize(
    ("lines", "part", "text"),
    [
        (4096, None, "4,096 records read"),
        (4096, 0.5, "###############                 50%  4,096 records read"),
        (1_000_000, 1.0, "############################## 100%  1,000,000 records read"),
    ],
)
def test_the_line(lines, part, text):
    assert progress_line(lines, part) == text


@pytest.mark.long
def test_a_person_sees_it_and_a_pipe_does_not(program_path, tmp_path):
    long = write(tmp_path / "long", events_of(150_000), Limits(segment_bytes=8 << 20))
    words = [program_path, "replay", str(long), "--check"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as seen:
        said, end = "", time.monotonic() + 60
        while (seen.poll() is None or select.select([ours], [], [], 0)[0]) and time.monotonic() < end:
            if select.select([ours], [], [], 0.1)[0]:
                said += os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    assert "records read" in said
    assert said.endswith("\r\x1b[K"), "nothing of it stays"
    assert subprocess.run(words, capture_output=True, check=True).stderr == b""
