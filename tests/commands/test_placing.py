"""place and delete: the id on stdout, progress on stderr, and 0 only when it is really so."""

import json
import signal
from pathlib import Path

import pytest

from exo_cli.engine.core.errors import (
    BadStateError,
    ConflictError,
    FailedError,
    InfeasibleError,
    NotFoundError,
    WaitTimeoutError,
)
from tests.fakes_control import error, result, script

ITEM = {
    "instance_id": "i-abc",
    "model": "smollm2",
    "status": "loading",
    "strategy": "pipeline",
    "runners": ["i-abc-0"],
    "nodes": ["n-a"],
    "progress": "3 of 30 layers",
    "error": None,
}
PLACED = result({"revision": 8, "item": {**ITEM, "changed": "created"}})
READY = {"item": {**ITEM, "status": "ready"}}
BECOMES_READY = script({"type": "progress", "item": ITEM}, ends=READY)


def test_place_prints_the_id_alone(exo, node):
    asked = node(place=PLACED, wait=BECOMES_READY).asked
    ended = exo("place", "smollm2", "--min-nodes", "2", "--strategy", "pipeline", "--nodes", "node/n-a,n-b")
    assert (ended.code, ended.out) == (0, "i-abc\n")
    assert ended.err == "smollm2: loading, 3 of 30 layers\nsmollm2: ready\n"
    params = asked[0]["params"]
    assert params.pop("command_id").startswith("c-")
    assert params.pop("client").startswith("exo/")
    assert params.pop("user")
    assert params == {
        "model": "smollm2",
        "strategy": "pipeline",
        "min_nodes": 2,
        "nodes": ["n-a", "n-b"],
        "context_tokens": None,
        "new": False,
        "force": False,
        "dry_run": False,
    }
    assert asked[1]["params"] == {"instance_id": "i-abc", "for": "ready", "timeout_seconds": 600.0}


def test_place_as_a_document(exo, node):
    node(place=PLACED, wait=BECOMES_READY)
    document = json.loads(exo("place", "smollm2", "-o", "json").out)
    assert document["kind"] == "Instance"
    assert (document["item"]["status"], document["item"]["changed"]) == ("ready", "created")
    assert exo("place", "smollm2", "-o", "name").out == "instance/i-abc\n"


def test_what_is_there_already_is_not_waited_for(exo, node):
    asked = node(place=result({"revision": 8, "item": {**READY["item"], "changed": "unchanged"}})).asked
    assert exo("place", "smollm2").out == "i-abc\n"
    assert len(asked) == 1


def test_no_wait_ends_at_once(exo, node):
    asked = node(place=PLACED).asked
    assert exo("place", "smollm2", "--no-wait").out == "i-abc\n"
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("org/name", "org/name"),
        ("model/smollm2", "smollm2"),
        ("./folder", "{cwd}/folder"),
        ("../file.gguf", "{above}/file.gguf"),
        ("~/m", "{home}/m"),
        ("/abs", "/abs"),
    ],
)
def test_a_path_is_of_where_it_was_typed(exo, node, tmp_path, monkeypatch, given, sent):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    asked = node(place=PLACED).asked
    exo("place", given, "--no-wait")
    meant = sent.format(cwd=tmp_path / "here", above=tmp_path, home=Path.home())
    assert asked[0]["params"]["model"] == meant


def test_a_dry_run_shows_the_plan(exo, node):
    asked = node(place=PLACED).asked
    assert json.loads(exo("place", "smollm2", "--dry-run", "-o", "json").out)["item"]["nodes"] == ["n-a"]
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("reason", "code"), [(BadStateError("the runner died"), 7), (WaitTimeoutError("still loading"), 6)]
)
def test_what_does_not_become_ready_is_no_success(exo, node, reason, code):
    node(place=PLACED, wait=script({"type": "progress", "item": ITEM}, ends=reason))
    ended = exo("place", "smollm2")
    assert (ended.code, ended.out) == (code, "i-abc\n")
    assert ended.err.splitlines()[-3:] == [
        f"error: {reason.message}",
        "hint: exo runners",
        "hint: exo delete i-abc",
    ]
    assert exo("place", "smollm2", "-o", "json").out == ""


def test_what_does_not_fit_carries_its_figures(exo, node):
    details = {"needed_bytes": 5, "usable_bytes": {"n-a": 3}, "missing_bytes": 2}
    node(place=error(InfeasibleError("big needs 5 MiB; usable: n-a 3 MiB", "exo place big --force", details=details)))
    ended = exo("place", "big")
    assert ended.code == 9
    assert ended.err == "error: big needs 5 MiB; usable: n-a 3 MiB\nhint: exo place big --force\n"
    written = json.loads(exo("place", "big", "-o", "json").err)["error"]
    assert (written["code"], written["exit"], written["details"]) == ("infeasible", 9, details)


def test_interrupting_place_says_what_goes_on(node, start_program):
    node(place=PLACED, wait=script({"type": "progress", "item": ITEM}, ends=None))
    process = start_program("place", "smollm2")
    assert process.stdout.readline() == b"i-abc\n"
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=5)
    assert process.returncode == -signal.SIGINT
    assert said == b"interrupted; i-abc is still being placed (exo delete i-abc takes it off)\n"


def _deleting(refused=()):
    def method(params):
        name = params["instance_id"]
        if name in refused:
            raise refused[name]
        return {"revision": 9, "item": {"instance_id": f"{name}-whole", "status": "deleting"}}
        yield {}

    return method


def _waiting(refused=()):
    def method(params):
        if params["instance_id"] in refused:
            raise refused[params["instance_id"]]
        return {"item": {}}
        yield {}

    return method


def test_delete_says_so_when_they_are_gone(exo, node):
    asked = node(delete=_deleting(), wait=_waiting()).asked
    ended = exo("delete", "i-a", "instance/i-b", "i-a")
    assert (ended.code, ended.out) == (0, "deleted i-a-whole\ndeleted i-b-whole\n")
    assert ended.err == "deleting i-a-whole\ndeleting i-b-whole\n"
    assert [each["method"] for each in asked] == ["delete", "delete", "wait", "wait"]
    assert asked[2]["params"]["for"] == "deleted"
    assert asked[2]["params"]["timeout_seconds"] <= 60


def test_all_targets_are_tried_and_the_worst_decides(exo, node):
    refused = {
        "i-x": NotFoundError("no instance i-x", "exo runners"),
        "i-y": ConflictError("i-y changed", "exo runners"),
    }
    node(delete=_deleting(refused), wait=_waiting({"i-b-whole": WaitTimeoutError("i-b still there", "exo runners")}))
    ended = exo("delete", "i-x", "i-a", "i-y", "i-b")
    assert ended.code == 11
    assert ended.out == "deleted i-a-whole\n"
    assert ended.err.count("error: ") == 3
    document = json.loads(exo("delete", "i-x", "i-a", "-o", "json").out)
    assert [(each["instance_id"], each["deleted"]) for each in document["items"]] == [
        ("i-x", False),
        ("i-a-whole", True),
    ]
    assert document["items"][0]["error"]["code"] == "not_found"


def test_an_unknown_id_is_3_unless_it_may_be_gone(exo, node):
    node(delete=error(NotFoundError("no instance", "exo runners")))
    assert exo("delete", "i-x").code == 3
    ended = exo("delete", "i-x", "--ignore-not-found")
    assert (ended.code, ended.out) == (0, "deleted i-x\n")


def test_gone_while_it_is_waited_for_is_gone(exo, node):
    node(delete=_deleting(), wait=error(NotFoundError("no instance", "exo runners")))
    assert exo("delete", "i-a").code == 0


def test_no_wait_claims_nothing(exo, node):
    node(delete=_deleting())
    ended = exo("delete", "i-a", "--no-wait")
    assert (ended.code, ended.out, ended.err) == (0, "", "deleting i-a-whole\n")


def test_ids_come_from_stdin(exo, node):
    asked = node(delete=_deleting(), wait=_waiting()).asked
    ended = exo("delete", "-", stdin="instance/i-a\n\ni-b\n")
    assert ended.out == "deleted i-a-whole\ndeleted i-b-whole\n"
    asked.clear()
    assert exo("delete", "-", stdin="").code == 0
    assert asked == []


def test_a_node_that_does_not_understand(exo, node):
    node(delete=error(FailedError("the log is read-only: the disk is full", "df")))
    assert exo("delete", "i-a").code == 1
