"""Parts: folded side by side a log is what it is when it is folded from one end to the other, whatever is in it."""

import os
import shutil

import pytest

from bench.logs import events_of, write
from exo_cli.engine import replaying
from exo_cli.engine.core.errors import ExoError
from exo_cli.engine.core.wire import decode_line, encode_closing, encode_header
from exo_cli.engine.log.rotation import Limits
from exo_cli.engine.replaying import parts, replay
from exo_cli.engine.replaying.source import Source


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Segments, packed and not."""
    return write(tmp_path_factory.mktemp("log") / "log", events_of(5000), Limits(segment_bytes=1 << 17))


@pytest.fixture
def log(whole, tmp_path, monkeypatch):
    """A copy in which something can be changed, taken for long enough."""
    monkeypatch.setattr(parts, "LONG_BYTES", 0)
    monkeypatch.setattr(parts, "cores", lambda: 3)
    return shutil.copytree(whole, tmp_path / "log")


def plain(log):
    return sorted(log.glob("*.log"))


def nothing(log):
    pass


def a_torn_end(log):
    with plain(log)[-1].open("ab") as file:
        file.write(b'{"index":5')


def an_empty_segment_at_the_end(log):
    header = decode_line(plain(log)[-1].read_bytes().splitlines()[0])
    state = replay(str(log))["item"]
    base = {"base_index": 4999, "state": state["state"], "state_hash": state["state_hash"]}
    (log / f"{5000:020}.log").write_bytes(encode_header(header.model_copy(update=base)))


def a_torn_middle(log):
    plain(log)[0].write_bytes(plain(log)[0].read_bytes()[:-5])


def a_wrong_closing(log):
    *lines, last = plain(log)[0].read_bytes().splitlines(keepends=True)
    wrong = encode_closing(decode_line(last).model_copy(update={"state_hash": "0" * 64}))
    plain(log)[0].write_bytes(b"".join(lines) + wrong)


def a_missing_segment(log):
    sorted(log.iterdir())[3].unlink()


def damage(log):
    raw = bytearray(plain(log)[0].read_bytes())
    raw[len(raw) // 2] ^= 1
    plain(log)[0].write_bytes(raw)


FITTING = [nothing, a_torn_end, an_empty_segment_at_the_end]
OTHERS = [a_torn_middle, a_wrong_closing, a_missing_segment, damage]


def told(log):
    try:
        return replay(str(log))
    except ExoError as error:
        return error.message


@pytest.mark.parametrize("change", [*FITTING, *OTHERS])
def test_it_is_what_one_fold_says(log, monkeypatch, change):
    change(log)
    with Source(str(log)) as source:
        assert (parts.fold_in_parts(source) is not None) == (change in FITTING)
    side_by_side = told(log)
    monkeypatch.setattr(replaying, "fold_in_parts", lambda _source: None)
    assert side_by_side == told(log)


def test_where_no_process_can_be_had_it_is_one_fold(log, monkeypatch):
    monkeypatch.setattr(parts.sys, "executable", "/nonexistent")
    with Source(str(log)) as source:
        assert parts.fold_in_parts(source) is None


def test_somebody_is_told_how_far_it_is(monkeypatch):
    told = []
    monkeypatch.setattr(Source, "on_progress", staticmethod(lambda lines, part: told.append((lines, part))))
    ticks, tick = os.pipe()
    os.write(tick, b"...")
    os.close(tick)
    parts._tell_progress(ticks)
    os.close(ticks)
    assert told == [(3 * 4096, None)]


def test_a_short_log_is_not_worth_it(whole):
    with Source(str(whole)) as source:
        assert parts.fold_in_parts(source) is None
