"""The sidecar of a long log: every answer that comes from it is the one that the whole fold gives."""

import os
import random
import shutil
import sqlite3
from contextlib import closing
from itertools import count

import pytest

from bench.logs import events_of, write
from exo_cli.engine.core.errors import ExoError
from exo_cli.engine.core.events import RunnerStatusUpdated
from exo_cli.engine.core.runners import RunnerShutdown
from exo_cli.engine.log.rotation import Limits
from exo_cli.engine.replaying import indexing, replay
from exo_cli.engine.replaying.questions import Questions

EVENTS = 3000


def is_shutdown(event):
    return isinstance(event, RunnerStatusUpdated) and isinstance(event.runner_status, RunnerShutdown)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return write(tmp_path_factory.mktemp("logs") / "log", events_of(EVENTS), Limits(segment_bytes=150_000))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """Every third runner never shuts down."""
    number = count()
    events = [each for each in events_of(EVENTS) if not is_shutdown(each) or next(number) % 3]
    return write(tmp_path_factory.mktemp("logs") / "log", events, Limits(segment_bytes=150_000))


@pytest.fixture(autouse=True)
def _short_logs_too(monkeypatch):
    monkeypatch.setattr(indexing, "LONG_BYTES", 0)
    monkeypatch.setattr(indexing, "QUIET_SECONDS", 0)
    monkeypatch.setattr(indexing, "STRIDE", 512)


def answer(path, cache, at=None, **asked):
    try:
        return replay(str(path), at=at, questions=Questions(**asked), cache=cache)
    except ExoError as error:
        return type(error), str(error), error.hints


def names_in(path):
    state = replay(str(path))["item"]["state"]
    return [*state["runners"], *state["instances"], *state["nodes"], *state["past_instances"]]


def test_every_answer_is_that_of_the_whole_fold(healthy, tmp_path):
    cache, dice = tmp_path / "cache", random.Random(1)
    for at in (0, 1, 511, 512, 513, EVENTS - 1, EVENTS, -1, -EVENTS, *dice.sample(range(EVENTS), 5)):
        assert answer(healthy, cache, at) == answer(healthy, None, at), at
    for at in ("2025-01-01T00:00:00Z", "2026-01-01T00:03:20.1Z", "2026-01-01T00:03:20.2Z", "2030-01-01"):
        assert answer(healthy, cache, at) == answer(healthy, None, at), at
    for name in [*dice.sample(names_in(healthy), 8), "tiny", "t-", "i-", "n-0", "t-000000000900", "nothing", ""]:
        assert answer(healthy, cache, explain=name) == answer(healthy, None, explain=name), name
        assert answer(healthy, cache, why=name) == answer(healthy, None, why=name), name
    bounded = {"explain": "n-0", "first": 100, "last": -100}
    assert answer(healthy, cache, **bounded) == answer(healthy, None, **bounded)
    assert [path.suffix for path in cache.iterdir()] == [".sqlite"]


def test_what_is_wrong_is_told_from_it_too(faulty, tmp_path):
    found = replay(str(faulty), check=True)["item"]["findings"]
    assert found
    for each in found[:5]:
        told = answer(faulty, tmp_path, explain=each["id"])
        assert told == answer(faulty, None, explain=each["id"])
        assert told["item"]["story"]["findings"] == [each]


def test_a_log_with_a_hole_has_none(healthy, tmp_path):
    path, cache = tmp_path / "events.log", tmp_path / "cache"
    lines = max(healthy.iterdir()).read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:9] + lines[10:]))
    assert answer(path, cache, why="i-") == answer(path, None, why="i-")
    assert list(cache.iterdir()) == []


def test_it_is_made_anew_when_the_log_is_another(healthy, tmp_path):
    copy, cache = tmp_path / "log", tmp_path / "cache"
    shutil.copytree(healthy, copy)
    before = answer(copy, cache, -1)
    newest = max(copy.iterdir())
    lines = newest.read_bytes().splitlines(keepends=True)
    newest.write_bytes(b"".join(lines[:-20]))
    assert answer(copy, cache, -1) == answer(copy, None, -1) != before
    os.utime(newest, (1, 1))
    [sidecar] = cache.iterdir()
    made = sidecar.stat().st_ino
    answer(copy, cache, -1)
    assert [each.stat().st_ino for each in cache.iterdir()] != [made]


def test_a_sidecar_that_is_damaged_is_made_anew(healthy, tmp_path):
    cache = tmp_path / "cache"
    first = answer(healthy, cache, 2000)
    [sidecar] = cache.iterdir()
    for junk in (b"", b"junk" * 1000, sidecar.read_bytes()[:5000]):
        sidecar.write_bytes(junk)
        assert answer(healthy, cache, 2000) == first
    sidecar.unlink()
    assert answer(healthy, cache, 2000) == first


def test_one_that_is_damaged_in_the_middle_is_told_by_the_log_and_made_anew(healthy, tmp_path):
    cache = tmp_path / "cache"
    first = answer(healthy, cache, 2000)
    [sidecar] = cache.iterdir()
    with closing(sqlite3.connect(sidecar)) as base:
        [(state,)] = base.execute("SELECT state FROM checkpoint WHERE record <= 2000 ORDER BY record DESC LIMIT 1")
        base.execute("UPDATE checkpoint SET state = ?", (state[:-9] + bytes([state[-9] ^ 4]) + state[-8:],))
        base.commit()
    assert answer(healthy, cache, 2000) == first
    assert not sidecar.exists()
    assert answer(healthy, cache, 2000) == first
    assert sidecar.exists()


def test_a_log_of_which_only_a_part_can_be_read_has_none(healthy, tmp_path):
    broken, cache = shutil.copytree(healthy, tmp_path / "log"), tmp_path / "cache"
    last = max(broken.iterdir())
    last.write_bytes(last.read_bytes().replace(b'{"index":2990,', b'{"index":29x0,'))
    assert answer(broken, cache, 100) == answer(broken, None, 100)
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_costs_only_time(healthy, tmp_path):
    cache = tmp_path / "file"
    cache.write_text("no folder")
    assert answer(healthy, cache, 17) == answer(healthy, None, 17)


def test_a_log_that_was_just_written_to_is_folded(healthy, tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "QUIET_SECONDS", 1e9)
    assert answer(healthy, tmp_path / "cache", 17) == answer(healthy, None, 17)
    assert not (tmp_path / "cache").exists()
