"""Recordings of the public system: the faults they were made with are found, and the state is what its own reducer had.

What is expected comes from how each log was made (its README) and from the state beside it, never from our output.
"""

import io
import json
import random
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import msgpack
import pytest
import zstandard

from exo_cli.engine.core.errors import BadDataError
from exo_cli.engine.core.foreign.kinds import KINDS
from exo_cli.engine.core.foreign.translator import Translator, UnknownKindError
from exo_cli.engine.replaying import replay

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
LLAMA = "mlx-community/Llama-3.2-1B-Instruct-4bit"
LOST = "d23f0824128b2f330c5c7fd0a6a3a450"
EXPECTED = {
    "clean.bin": [],
    "stale-after-crash.bin": [("stale_runner", "runner-2217beaddbc496cb", 74)],
    "node-lost.bin.zst": [
        ("stale_runner", "runner-795e8229451abd81", 96),
        ("orphan_task", "task-48db40af72158370", 97),
        ("ghost_download", f"{LOST}/{LLAMA}", 100),
    ],
    "late-status.bin": [("stale_runner", "runner-8ca8181166d22876", 46)],
}


def frames(events):
    bodies = [msgpack.packb(event) for event in events]
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def events_in(name):
    raw = (RECORDINGS / name).read_bytes()
    raw = zstandard.ZstdDecompressor().decompressobj().decompress(raw) if name.endswith(".zst") else raw
    events, at = [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "big")
        events.append(msgpack.unpackb(raw[at + 4 : at + 4 + size]))
        at += 4 + size
    return events


def findings(answer):
    return [(each["kind"], each["id"], each["since_index"]) for each in answer["item"]["findings"]]


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items())
def test_the_faults_of_a_recording_are_found_and_nothing_else(name, expected):
    answer = replay(str(RECORDINGS / name), check=True)
    assert findings(answer) == expected
    assert answer["exit_code"] == (1 if expected else 0)
    assert all(each["until_index"] is None for each in answer["item"]["findings"])
    assert all(each["remedy"].startswith("curl ") for each in answer["item"]["findings"])


@pytest.mark.parametrize("name", EXPECTED)
def test_the_state_is_what_its_own_reducer_made(name):
    answer = replay(str(RECORDINGS / name))
    assert ours(answer["item"]["state"]) == theirs(json.loads(final_state(name).read_text()))
    assert answer["revision"] == json.loads(final_state(name).read_text())["lastEventAppliedIdx"]


def final_state(name):
    return RECORDINGS / f"{name.split('.')[0]}.final-state.json"


def ours(state):
    return {
        "runners": {
            runner_id: (each["status"]["type"], each["status"].get("error_message"))
            for runner_id, each in state["runners"].items()
        },
        "instances": {
            instance_id: (
                each["model_card"]["model_id"],
                {s["node_id"]: (s["runner_id"], s["start_layer"], s["end_layer"]) for s in each["shards"]},
            )
            for instance_id, each in state["instances"].items()
        },
        "downloads": {
            (node_id, model_id): (each["kind"], each["downloaded_bytes"], each["total_bytes"])
            for node_id, models in state["downloads"].items()
            for model_id, each in models.items()
        },
        "tasks": {
            task_id: (each["type"], each["task_status"], each["instance_id"])
            for task_id, each in state["tasks"].items()
        },
        "nodes": set(state["nodes"]),
    }


def theirs(state):
    def only(tagged):
        [(kind, inner)] = tagged.items()
        return kind, inner

    def shards(instance):
        assigned = instance["shardAssignments"]
        for node_id, runner_id in assigned["nodeToRunner"].items():
            _, shard = only(assigned["runnerToShard"][runner_id])
            yield node_id, (runner_id, shard["startLayer"], shard["endLayer"])

    def bytes_of(kind, inner):
        total = inner.get("downloadProgress", inner)["total"]["inBytes"]
        done = total if kind == "DownloadCompleted" else inner.get("downloadProgress", inner)["downloaded"]["inBytes"]
        return (kind, done, total)

    downloads = [(node, *only(each)) for node, all_of_it in state["downloads"].items() for each in all_of_it]
    return {
        "runners": {
            runner_id: (only(each)[0], only(each)[1].get("errorMessage"))
            for runner_id, each in state["runners"].items()
        },
        "instances": {
            instance_id: (only(each)[1]["shardAssignments"]["modelId"], dict(shards(only(each)[1])))
            for instance_id, each in state["instances"].items()
        },
        "downloads": {
            (node, only(inner["shardMetadata"])[1]["modelCard"]["modelId"]): bytes_of(kind, inner)
            for node, kind, inner in downloads
        },
        "tasks": {
            task_id: (only(each)[0], only(each)[1]["taskStatus"], only(each)[1]["instanceId"])
            for task_id, each in state["tasks"].items()
        },
        "nodes": set(state["topology"]["nodes"]),
    }


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("form", ["array", "pretty array", "packed array", "packed frames", "two frames", "piped"])
def test_the_same_however_it_comes(name, form, tmp_path, monkeypatch):
    events = events_in(name)
    text = json.dumps(events, indent=2 if form == "pretty array" else None).encode()
    packed = frames(events)
    halves = [zstandard.compress(packed[: len(packed) // 3]), zstandard.compress(packed[len(packed) // 3 :])]
    contents = {
        "array": text, "pretty array": text, "packed array": zstandard.compress(text),
        "packed frames": zstandard.compress(packed), "two frames": b"".join(halves), "piped": packed,
    }[form]  # fmt: skip
    path = tmp_path / "whatever.txt"
    path.write_bytes(contents)
    if form == "piped":
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(contents))))
    answer = replay("-" if form == "piped" else str(path), check=True)
    whole = replay(str(RECORDINGS / name), check=True)
    assert (findings(answer), answer["item"]["state_hash"]) == (EXPECTED[name], whole["item"]["state_hash"])


def test_every_kind_of_the_public_system_is_known():
    assert len(KINDS) == 23, "22 of version 0.3.70, and RunnerDeleted of older logs"
    translator = Translator()
    for kind, (use, _) in KINDS.items():
        if use == "counted":
            assert translator.translate(kind, {}) is None
            assert translator.notes[f"{kind}_events"] == 1
        else:
            with pytest.raises(ValueError, match=kind):
                translator.translate(kind, {})
    with pytest.raises(UnknownKindError):
        translator.translate("Moon", {})


def test_the_deletion_of_a_runner_in_old_logs_is_its_shutdown(tmp_path):
    events = events_in("stale-after-crash.bin")
    path = tmp_path / "events.bin"
    path.write_bytes(frames([*events, {"RunnerDeleted": {"runner_id": "runner-2217beaddbc496cb"}}]))
    answer = replay(str(path), check=True)
    assert answer["item"]["state"]["runners"] == {}
    assert (answer["item"]["findings"], answer["exit_code"]) == ([], 0)


def test_what_has_no_place_in_our_state_is_counted():
    notes = replay(str(RECORDINGS / "node-lost.bin.zst"), check=True)["item"]["notes"]
    assert (notes["identities_left"], notes["ChunkGenerated_events"], notes["worker_tasks"]) == (1, 20, 3)


def test_unknown_kinds_are_counted_and_refused_when_asked(tmp_path):
    path = tmp_path / "events.bin"
    path.write_bytes(frames([*events_in("clean.bin")[:5], {"Moon": {}}, *events_in("clean.bin")[5:]]))
    answer = replay(str(path), check=True)
    assert (answer["item"]["notes"]["unknown_events"], answer["revision"]) == (1, 78)
    with pytest.raises(BadDataError, match=r"record 5 .*'Moon'"):
        replay(str(path), strict=True)


def test_at_each_index_it_is_the_fold_to_there(tmp_path):
    events = events_in("node-lost.bin.zst")
    path = tmp_path / "cut.bin"
    for index in range(0, len(events), 7):
        path.write_bytes(frames(events[: index + 1]))
        at = replay(str(RECORDINGS / "node-lost.bin.zst"), at=index)["item"]
        assert at["state_hash"] == replay(str(path))["item"]["state_hash"]


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 100])
def test_a_cut_end_is_torn_and_what_came_before_is_used(tmp_path, cut):
    events = events_in("clean.bin")
    path = tmp_path / "events.bin"
    path.write_bytes(frames(events) + frames(events[:1])[:cut])
    item = replay(str(path))["item"]
    assert (item["events"], item["torn_tail"]["bytes"]) == (78, cut)
    path.write_bytes(json.dumps(events).encode()[: -cut - 1])
    assert replay(str(path))["item"]["torn_tail"] is not None


GARBAGE = {
    "four gigabytes": b"\xff\xff\xff\xff\x81\xa4",
    "zero": b"\x00\x00\x00\x00\x81\xa4",
    "png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10,
    "deep": b"[" + b"[" * 100_000,
    "deep object": b'[{"TaskDeleted":' * 50_000,
    "deep msgpack": (50_000).to_bytes(4, "big") + b"\x81" * 50_000,
    "a map as a key": (3).to_bytes(4, "big") + b"\x81\x80\x01",
    "numbers": b"[1, 2, 3]",
    "not utf-8": b'[{"TestEvent": "\xff\xfe"}]',
    "no comma": b'[{"TestEvent": {}} {"TestEvent": {}}]',
    "truncated zstd": zstandard.compress(bytes(1000))[:-5],
    "damaged zstd": b"\x28\xb5\x2f\xfd" + b"\xff" * 100,
    "a state": b'{"lastEventAppliedIdx": 5}',
    "newer": b'{"kind":"exo-log","format":99,"crc":"00000000"}\n',
    "bad id": frames([{"TaskDeleted": {"task_id": "\x1b[31m"}}]),
}


@pytest.mark.parametrize("raw", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_refused_in_one_line(tmp_path, raw):
    path = tmp_path / "log"
    path.write_bytes(raw)
    with pytest.raises(BadDataError) as caught:
        replay(str(path), check=True, strict=True)
    assert caught.value.exit_code == 12
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 2000


def test_a_bomb_costs_little_memory(tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(zstandard.compress(bytes(1 << 30)))
    import tracemalloc

    tracemalloc.start()
    try:
        with pytest.raises(BadDataError):
            replay(str(path))
        assert tracemalloc.get_traced_memory()[1] < 320 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("seed", range(60))
def test_no_bytes_bring_it_down(tmp_path, seed):
    rng = random.Random(seed)
    whole = frames(events_in("late-status.bin")) if seed % 3 else json.dumps(events_in("clean.bin")).encode()
    raw = bytearray(whole if seed % 4 else zstandard.compress(whole))
    for _ in range(rng.randint(1, 8)):
        start = rng.randrange(len(raw))
        match rng.randrange(4):
            case 0:
                raw[start] ^= 1 << rng.randrange(8)
            case 1:
                del raw[start : start + rng.randrange(50)]
            case 2:
                raw[start:start] = rng.randbytes(rng.randrange(20))
            case _:
                del raw[max(start, 8) :]
    path = tmp_path / "log"
    path.write_bytes(raw)
    with suppress(BadDataError):
        replay(str(path), check=True)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_comes_up_is_never_taken_for_stuck(name):
    last = replay(str(RECORDINGS / name))["revision"]
    for index in range(last + 1):
        found = replay(str(RECORDINGS / name), at=index, check=True)["item"]["findings"]
        assert "no_progress" not in {each["kind"] for each in found}, index


def test_the_dead_lock_of_the_planner_is_found(tmp_path):
    """Its section 4: a sibling that failed began anew while this one was busy; no rule ever fires again."""
    events = events_in("stale-after-crash.bin")[:73]
    runner = "runner-2217beaddbc496cb"
    idle = {"RunnerStatusUpdated": {"runner_id": runner, "runner_status": {"RunnerIdle": {}}}}
    shutdown = {"RunnerStatusUpdated": {"runner_id": runner, "runner_status": {"RunnerShutdown": {}}}}
    path = tmp_path / "events.bin"
    path.write_bytes(frames([*events, shutdown, idle]))
    answer = replay(str(path), check=True)
    assert [(each["kind"], each["id"]) for each in answer["item"]["findings"]] == [
        ("no_progress", "instance-3898d190f9ebdacc")
    ]
    assert answer["exit_code"] == 1
