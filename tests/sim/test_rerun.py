"""Recordings of the simulation, through faults and fail-over, stepped again: no difference, and a planted one found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from exo_cli.engine.core import planner
from exo_cli.engine.core.errors import ExitCode
from exo_cli.engine.replaying.rerunning import rerun
from tests.sim.story import run

ROOT = Path(__file__).parents[2]
SEEDS = (1, 2, 5, 9, 16)
# What each rule answers with, and no other does.
ANSWERS = {
    "cancel tasks": "CancelTask",
    "kill runner": "Shutdown",
    "create runner": "CreateRunner",
    "download model": "DownloadModel",
    "connect group": "ConnectToGroup",
    "load model": "LoadModel",
    "warm up": "StartWarmup",
    "forward pending tasks": "TextGeneration",
}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Every life of every node of some seeds."""
    folders = []
    for seed in SEEDS:
        folders.append(tmp_path_factory.mktemp(f"seed-{seed}-"))
        run(seed, folders[-1])
    return [file for folder in folders for file in sorted(folder.iterdir())]


def inputs_of(file):
    return [json.loads(line) for line in file.read_bytes().splitlines()[1:]]


def test_they_hold_what_can_happen(recordings):
    seen = {each["input"]["type"] for file in recordings for each in inputs_of(file)}
    assert seen >= {"Start", "Tick", "Appended", "AppendFailed", "Submitted", "Heard", "Asked", "Replied"}
    assert seen >= {"RunnerChanged", "DownloadChanged", "ChatAdmitted", "ChatCancelled", "ChatEnded"}
    parts = {part for file in recordings for each in inputs_of(file) for part in each["effects"]}
    assert parts >= {"note", "restart", "append", "send", "act", "answer"}


def test_stepped_again_they_have_no_difference(recordings):
    for file in recordings:
        told = rerun(str(file))
        assert told["exit_code"] == ExitCode.OK, told["item"]["difference"]
        assert told["item"]["inputs"] == len(inputs_of(file))


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_nor_in_a_process_whose_sets_have_another_order(recordings, hash_seed):
    script = "import sys; from exo_cli.engine.replaying.rerunning import rerun\n"
    script += "sys.exit(sum(rerun(file)['exit_code'] for file in sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, recordings)],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert done.returncode == 0


def test_every_rule_is_tried():
    assert ANSWERS.keys() == planner.RULES.keys()


@pytest.mark.parametrize("rule", ANSWERS)
def test_a_changed_rule_of_the_planner_is_named_by_its_first_input(recordings, monkeypatch, rule):
    """Without a rule everything is as it was until that rule had something to say."""
    monkeypatch.setitem(planner.RULES, rule, lambda view: iter(()))
    found = 0
    for file in recordings:
        acts = [[act["type"] for act in each["effects"].get("act", ())] for each in inputs_of(file)]
        expected = next((number for number, each in enumerate(acts, 1) if ANSWERS[rule] in each), None)
        told = rerun(str(file))
        difference = told["item"]["difference"]
        assert (difference and difference["input"]) == expected, (file, difference)
        assert told["exit_code"] == (ExitCode.OK if expected is None else ExitCode.DIFFERS)
        if difference:
            found += 1
            place = acts[expected - 1].index(ANSWERS[rule])
            assert any(each["path"].startswith(("act", f"act[{place}]")) for each in difference["changes"])
            assert difference["type"] == inputs_of(file)[expected - 1]["input"]["type"]
    assert found
