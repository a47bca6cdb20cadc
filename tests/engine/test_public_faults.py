"""What the public system's reducer lets through: each gap as a small recording, and the finding or the note that it is.

The numbers are those of the list of what its reducer does not enforce. What no log can show is said in
exo-recordings(7).
"""

import copy
import json

import pytest

from exo_cli.engine.replaying import replay
from tests.engine.test_recordings import LLAMA, LOST, events_in, frames

CLEAN = events_in("clean.bin")
UP, BUSY = CLEAN[:41], CLEAN[:45]  # both runners are ready; a chat runs on them
A, B = "6513270e269e0d37f2a74de452e6b438", LOST
FIRST, SECOND = "runner-1738f7d93d9c1724", "runner-6cad4a268d116ece"  # on A, on B
INSTANCE, CHAT = "instance-11e20b8f6b0d549b", "task-a09f76b5a170b338"
PLACED, ON_B, EDGE, TASK = CLEAN[8], CLEAN[26], CLEAN[6], CLEAN[41]


def status(runner_id, name, **fields):
    return {"RunnerStatusUpdated": {"runner_id": runner_id, "runner_status": {name: fields}}}


def failed(runner_id):
    return status(runner_id, "RunnerFailed", error_message="Terminated (signal 9)")


def gone(*runners):
    return [status(each, name) for each in runners for name in ("RunnerShuttingDown", "RunnerShutdown")]


def task(name):
    return {"TaskStatusUpdated": {"task_id": CHAT, "task_status": name}}


def changed(event, old, new):
    return json.loads(json.dumps(event).replace(old, new))


DELETED = {"InstanceDeleted": {"instance_id": INSTANCE}}
TIMED_OUT = {"NodeTimedOut": {"node_id": B}}
FINDINGS = {
    "S1: a failed runner outlives its instance": (
        [*BUSY, failed(FIRST), task("Cancelled"), DELETED, *gone(SECOND)],
        [("stale_runner", FIRST, 47)],
    ),
    "S2: the runners of a lost node stay": (
        [*UP, TIMED_OUT, DELETED, *gone(FIRST)],
        [("stale_runner", SECOND, 41)],
    ),
    "S4: a chat of an instance that the master ended stays": (
        [*BUSY, TIMED_OUT, DELETED, *gone(FIRST), status(SECOND, "RunnerShutdown")],
        [("orphan_task", CHAT, 46)],
    ),
    "S6: a chat of a runner that failed stays": ([*BUSY, failed(FIRST)], [("orphan_task", CHAT, 45)]),
    "S7: a late status brings a runner back": (
        [*UP, DELETED, *gone(FIRST, SECOND), status(FIRST, "RunnerIdle")],
        [("stale_runner", FIRST, 46)],
    ),
    "S7: a late progress brings a download back": (
        [*UP, DELETED, *gone(FIRST, SECOND), TIMED_OUT, ON_B],
        [("ghost_download", f"{B}/{LLAMA}", 47)],
    ),
    "S7: a late edge brings a node back": (
        [*UP, DELETED, *gone(FIRST, SECOND), TIMED_OUT, EDGE],
        [("ghost_node", B, 47)],
    ),
    "S9: an instance is created over itself": ([*UP, PLACED], [("overwritten_instance", INSTANCE, 41)]),
    "S9: a task names an instance that never was": (
        [*UP, changed(TASK, INSTANCE, "instance-none")],
        [("orphan_task", CHAT, 41)],
    ),
    "S9: a status names a runner of no instance": (
        [*UP, status("runner-none", "RunnerIdle")],
        [("stale_runner", "runner-none", 41)],
    ),
    "S10: a runner goes back": ([*UP, status(FIRST, "RunnerLoading")], [("illegal_transition", FIRST, 41)]),
    "S10: a task goes on after its end": (
        [*BUSY, task("Complete"), task("Running"), task("Complete")],
        [("illegal_transition", CHAT, 46)],
    ),
}
OTHER_SHARD = copy.deepcopy(ON_B)
NOTES = {
    "S3: identities of lost nodes stay": ([*UP, DELETED, *gone(FIRST, SECOND), TIMED_OUT], "identities_left", 1),
    "S5: the worker's own tasks stay": (UP, "worker_tasks", 2),
    "S11: downloads of two shards are one entry": (
        [*UP, changed(OTHER_SHARD, '"start_layer": 8', '"start_layer": 4')],
        "downloads_merged",
        1,
    ),
    "S13: the port of a runner that is ready again stays": (
        [
            *UP,
            status(FIRST, "RunnerRunning"),
            status(FIRST, "RunnerReady", prefill_server_port=5000),
            status(FIRST, "RunnerRunning"),
            status(FIRST, "RunnerReady"),
        ],
        "ports_left",
        1,
    ),
    "S14: cancelled chats stay": ([*BUSY, task("Cancelled")], "cancelled_tasks", 1),
}


def answer_to(tmp_path, events):
    path = tmp_path / "events.bin"
    path.write_bytes(frames(events))
    return replay(str(path), check=True)


@pytest.mark.parametrize(("events", "expected"), FINDINGS.values(), ids=FINDINGS)
def test_a_gap_is_a_finding(tmp_path, events, expected):
    answer = answer_to(tmp_path, events)
    assert [(each["kind"], each["id"], each["since_index"]) for each in answer["item"]["findings"]] == expected
    assert answer["exit_code"] == 1


@pytest.mark.parametrize(("events", "note", "n_times"), NOTES.values(), ids=NOTES)
def test_a_gap_that_harms_nobody_is_a_note(tmp_path, events, note, n_times):
    answer = answer_to(tmp_path, events)
    assert answer["item"]["notes"][note] == n_times
    assert (answer["item"]["findings"], answer["exit_code"]) == ([], 0)


@pytest.mark.parametrize("events", [UP, BUSY, CLEAN], ids=["up", "busy", "whole"])
def test_what_they_are_made_of_is_clean(tmp_path, events):
    assert answer_to(tmp_path, events)["item"]["findings"] == []
