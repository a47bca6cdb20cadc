"""node list and show, runners with its formats, its watch and its logs: the same facts in every shape."""

import json

import pytest

from exo_cli import views
from exo_cli.engine.core.errors import NotFoundError
from tests.fakes_control import error, result, script

HOSTILE = "ev\x1b[31mil\u202e\n[red]$(touch /tmp/never)`x`"
NODE = {
    "node_id": "n-aaaaaaaaaaaa",
    "name": HOSTILE,
    "master": True,
    "voter": True,
    "state": "alive",
    "addresses": ["127.0.0.1:7101"],
    "memory_bytes": 8 << 30,
    "memory_available_bytes": 4 << 30,
    "backends": ["mlx_cpu"],
    "version": "0.1.0",
}
RUNNER = {
    "runner_id": "i-abc-0",
    "instance_id": "i-abc",
    "node_id": "n-aaaaaaaaaaaa",
    "model": "smollm2",
    "engine": "mlx",
    "strategy": "pipeline",
    "rank": 0,
    "world_size": 1,
    "layers": [0, 30],
    "status": "RunnerReady",
    "since": "2026-01-01T00:00:00Z",
    "error": None,
    "log_path": "/x",
}


def test_a_list_has_its_columns(exo, node):
    node(runners=result({"revision": 7, "items": [RUNNER]}))
    header, row = exo("runners").out.splitlines()
    assert header.split() == ["RUNNER", "STATUS", "MODEL", "NODE", "RANK", "LAYERS", "ERROR"]
    assert row.split() == ["i-abc-0", "RunnerReady", "smollm2", "n-aaaaaaaaaaaa", "0/1", "0-30", "-"]
    assert [line.split() for line in exo("runners", "--no-headers").out.splitlines()] == [row.split()]
    assert "2026-01-01T00:00:00Z" in exo("runners", "-o", "wide").out


def test_the_machine_shapes(exo, node):
    node(runners=result({"revision": 7, "items": [RUNNER, RUNNER]}))
    document = json.loads(exo("runners", "-o", "json").out)
    assert document == {"kind": "RunnerList", "schema": 1, "revision": 7, "items": [RUNNER, RUNNER]}
    assert [json.loads(line) for line in exo("runners", "-o", "jsonl").out.splitlines()] == [RUNNER, RUNNER]
    assert exo("runners", "-o", "name").out == "runner/i-abc-0\n" * 2


@pytest.mark.parametrize(
    ("shape", "out"),
    [
        ("json", '{"kind": "NodeList", "schema": 1, "revision": 7, "items": []}\n'),
        ("jsonl", ""),
        ("name", ""),
        ("plain", "NODE  NAME  STATE  MASTER  MEMORY  BACKENDS\n"),
    ],
)
def test_nothing_is_an_answer_too(exo, node, shape, out):
    node(nodes=result({"revision": 7, "items": []}))
    ended = exo("node", "list", "-o", shape)
    assert (ended.code, ended.out, ended.err) == (0, out, "")


@pytest.mark.parametrize("shape", ["table", "plain", "wide", "json", "jsonl", "name"])
@pytest.mark.parametrize("words", [["node", "list"], ["node", "show"]])
def test_hostile_names_do_no_harm_in_any_shape(exo, node, shape, words):
    hostile = {**NODE, "node_id": "n-\x1b[2J", "a\x1bkey": HOSTILE}
    node(nodes=result({"revision": 7, "items": [hostile]}), node=result({"revision": 7, "item": hostile}))
    ended = exo(*words, "-o", shape)
    assert ended.code == 0
    assert ended.out.replace("\n", "").isprintable()
    if shape == "json":
        document = json.loads(ended.out)
        assert (document.get("item") or document["items"][0])["name"] == HOSTILE


def test_show_is_a_row_for_each_field(exo, node):
    asked = node(node=result({"revision": 7, "item": NODE})).asked
    lines = exo("node", "show", "node/n-aa").out.splitlines()
    assert lines[0].split() == ["node_id", "n-aaaaaaaaaaaa"]
    assert "memory_bytes            8.0 GiB" in lines
    assert asked[0]["params"] == {"node_id": "n-aa"}
    assert json.loads(exo("node", "show", "-o", "json").out)["kind"] == "Node"
    assert asked[1]["params"] == {"node_id": None}


def test_a_watch_is_changes_then_never_ends_well(exo, node):
    second = {**RUNNER, "status": "RunnerFailed"}
    node(
        watch=script(
            {"type": "changed", "revision": 1, "items": [RUNNER]},
            {"type": "changed", "revision": 2, "items": [RUNNER]},
            {"type": "changed", "revision": 3, "items": [second]},
            {"type": "changed", "revision": 4, "items": []},
            ends={},
        )
    )
    ended = exo("runners", "-w", "-o", "jsonl")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [(line["type"], line["revision"]) for line in lines] == [
        ("ADDED", 1),
        ("SYNCED", 1),
        ("MODIFIED", 3),
        ("DELETED", 4),
    ]
    assert ended.code == 5
    plain = exo("runners", "-w").out.splitlines()
    assert [line.split()[1] for line in plain] == ["STATUS", "RunnerReady", "RunnerFailed", "gone"]


def test_logs_of_a_runner(exo, node):
    asked = node(runner_logs=script({"type": "line", "text": "one"}, {"type": "line", "text": "two"}, ends={})).asked
    assert exo("runners", "logs", "runner/i-abc-0", "-n", "2").out == "one\ntwo\n"
    assert asked[0]["params"] == {"runner_id": "i-abc-0", "lines": 2, "follow": False}


@pytest.mark.parametrize(
    ("given", "key", "name"),
    [
        ("i-abc-0", "runner_id", "i-abc-0"),
        ("runner/i-abc-0", "runner_id", "i-abc-0"),
        ("i-abc", "instance_id", "i-abc"),
        ("instance/i-abc", "instance_id", "i-abc"),
    ],
)
def test_restart_takes_a_runner_or_its_instance(exo, node, given, key, name):
    asked = node(
        restart=result({"revision": 9, "item": {"instance_id": "i-abc", "status": "loading"}}),
        wait=script(ends={"item": {"instance_id": "i-abc", "status": "ready"}}),
    ).asked
    ended = exo("runners", "restart", given, "-o", "json")
    assert json.loads(ended.out)["item"]["status"] == "ready"
    assert asked[0]["params"][key] == name


def test_forget(exo, node):
    node(forget=result({"revision": 9, "item": RUNNER}))
    assert exo("runners", "forget", "i-abc-0", "-o", "name").out == "runner/i-abc-0\n"


def test_an_unknown_runner_is_3(exo, node):
    node(runner_logs=error(NotFoundError("no runner x", "exo runners")))
    assert exo("runners", "logs", "x").code == 3


def test_node_logs_reads_this_machines_file(exo, home):
    assert exo("node", "logs").code == 3
    (home / "state").mkdir(parents=True)
    (home / "state" / "node.log").write_text("".join(f"line {number}\n" for number in range(100)))
    assert exo("node", "logs", "-n", "2").out == "line 98\nline 99\n"
    assert exo("node", "logs", "-n", "0").out == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "-"), (512, "512 B"), (4 << 30, "4.0 GiB"), (1536 << 10, "1.5 MiB"), (5 << 40, "5.0 TiB"), ("x", "-")],
)
def test_bytes_are_said_for_people(value, said):
    assert views.bytes_said(value) == said
