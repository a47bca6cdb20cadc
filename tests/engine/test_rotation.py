"""Rotation: segments are closed, packed and dropped, whatever a crash leaves; and any suffix of them replays alone."""

import errno
import shutil
from pathlib import Path

import pytest
import zstandard

from exo_cli.engine.core.events import InstanceCreated, InstanceDeleted, NodeJoined, RunnerStatusUpdated
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.state import State
from exo_cli.engine.core.wire import Closing, Header
from exo_cli.engine.log import rotation
from exo_cli.engine.log.disk import DiskLog
from exo_cli.engine.log.rotation import Limits
from exo_cli.engine.log.scan import segments_of
from exo_cli.engine.replaying import replay
from tests.builders import a_node, a_record, a_status, an_instance

LIMITS = Limits(segment_bytes=4000, total_bytes=1 << 20)


def header(state):
    return Header(
        version="1",
        cluster_id="c",
        node_id="a",
        base_index=state.index,
        base_term=state.term,
        state_hash=state.hash(),
        state=state.dump(),
    )


def events():
    yield NodeJoined(node_id="a", facts=a_node("a"), incarnation=1)
    for number in range(40):
        name = f"i{number}"
        yield InstanceCreated(instance=an_instance(name))
        for status in ("Idle", "Ready", "Shutdown"):
            yield RunnerStatusUpdated(runner_id=f"{name}-0", runner_status=a_status(status), attempt=1)
        yield InstanceDeleted(instance_id=name)


def written(folder, limits=LIMITS):
    """A log of some segments, and the state after each record, as a node writes them."""
    state = State()
    log = DiskLog.open_or_create(folder, lambda: header(State()), sync=False, limits=limits)
    hashes = []
    for index, event in enumerate(events()):
        record = a_record(event, index, seconds=index)
        log.append([record])
        apply(state, record)
        hashes.append(state.hash())
        if log.is_full:
            log.rotate(header(state))
    log.close(Closing(index=state.index, term=state.term, state_hash=state.hash()))
    assert log.warnings == []
    return hashes


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "log"


def test_closed_segments_are_packed_but_for_the_newest(folder):
    hashes = written(folder)
    names = [path.name for path in segments_of(folder)]
    assert len(names) > 5
    assert [name.endswith(".zst") for name in names] == [True] * (len(names) - 2) + [False] * 2
    answer = replay(str(folder), check=True, strict=True)
    assert (answer["revision"], answer["exit_code"]) == (len(hashes) - 1, 0)
    assert (answer["item"]["first_index"], answer["item"]["findings"]) == (0, [])
    assert answer["item"]["state_hash"] == hashes[-1]


def test_any_suffix_of_the_segments_replays_alone(folder):
    hashes = written(folder)
    while len(paths := segments_of(folder)) > 1:
        paths[0].unlink()
        answer = replay(str(folder), check=True)
        assert (answer["item"]["state_hash"], answer["exit_code"]) == (hashes[-1], 0)
        first = int(segments_of(folder)[0].name[:20])
        assert replay(str(folder), at=first + 3)["item"]["state_hash"] == hashes[first + 3]


def test_one_packed_segment_replays_alone(folder):
    hashes = written(folder)
    first, second = segments_of(folder)[:2]
    last = int(second.name[:20]) - 1
    assert replay(str(first), strict=True)["item"]["state_hash"] == hashes[last]


def test_what_is_too_much_goes_from_the_old_end(folder):
    hashes = written(folder, Limits(segment_bytes=4000, total_bytes=12_000))
    assert sum(path.stat().st_size for path in segments_of(folder)) < 12_000 + 4500
    assert int(segments_of(folder)[0].name[:20]) > 0
    assert replay(str(folder), check=True)["item"]["state_hash"] == hashes[-1]


def test_a_node_goes_on_behind_packed_segments(folder):
    hashes = written(folder)
    seen = []
    log = DiskLog.open_or_create(folder, lambda: pytest.fail("there is one"), visit=seen.append, limits=LIMITS)
    assert (log.last_index, log.first_index) == (len(hashes) - 1, int(segments_of(folder)[-2].name[:20]))
    state = State()
    log.restart(header(state))
    log.close()
    [abandoned] = (folder / "abandoned").iterdir()
    assert len(segments_of(abandoned)) > 5
    assert len(segments_of(folder)) == 1


@pytest.mark.parametrize("left", ["draft", "both"])
def test_what_a_crash_in_the_middle_of_packing_left(folder, left):
    hashes = written(folder)
    packed = segments_of(folder)[2]
    plain = packed.with_suffix("")
    if left == "draft":
        (folder / f"{packed.name}.tmp").write_bytes(packed.read_bytes()[:100])
    else:
        with packed.open("rb") as file, plain.open("wb") as unpacked:
            zstandard.ZstdDecompressor().copy_stream(file, unpacked)
    before = replay(str(folder))["item"]["state_hash"]
    assert before == hashes[-1]
    DiskLog.open_or_create(folder, lambda: pytest.fail("there is one"), limits=LIMITS).close()
    assert not list(folder.glob("*.tmp"))
    assert plain.exists() != packed.exists()
    assert replay(str(folder))["item"]["state_hash"] == hashes[-1]


def test_a_disk_that_does_not_take_the_new_segment_costs_nothing(folder, monkeypatch):
    state = State()
    log = DiskLog.open_or_create(folder, lambda: header(state), limits=LIMITS)
    record = a_record(next(events()), 0)
    log.append([record])
    apply(state, record)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("exo_cli.engine.log.disk.write_file", full)
        with pytest.raises(OSError, match="No space"):
            log.rotate(header(state))
    log.append([a_record(NodeJoined(node_id="b", facts=a_node("b"), incarnation=1), 1)])
    log.close()
    assert replay(str(folder))["revision"] == 1


def test_what_cannot_be_packed_stays_plain_and_is_warned_of(folder, monkeypatch):
    written(folder)
    shutil.copy(segments_of(folder)[-1], folder / f"{10**6:020}.log")

    def broken(_path: Path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(rotation, "pack", broken)
    assert list(rotation.tidy(folder, LIMITS)) == [
        f"segments in {folder} could not be packed or dropped: Input/output error"
    ]
