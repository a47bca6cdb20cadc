"""Runner statuses: the table is complete, and within an attempt everything moves forwards."""

from typing import get_args

import pytest

from exo_cli.engine.core.runners import REACHABLE, SERVING, TRANSITIONS, RunnerStatus, may_follow

NAMES = [each.__name__ for each in get_args(get_args(RunnerStatus)[0])]
ENDS = {"RunnerShutdown"}
WAY_UP = ["Idle", "Connecting", "Connected", "Loading", "Loaded", "WarmingUp", "Ready", "Running"]


def test_every_status_has_its_row():
    assert set(TRANSITIONS) == set(NAMES)
    assert {after for row in TRANSITIONS.values() for after in row} <= set(NAMES)
    assert all(len(set(row)) == len(row) for row in TRANSITIONS.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_status_but_the_ends_can_be_left(name):
    assert bool(TRANSITIONS[name]) == (name not in ENDS)
    assert name in ENDS or "RunnerShutdown" in REACHABLE[name]


def test_tags_are_the_names_of_the_classes():
    assert [each.model_fields["type"].default for each in get_args(get_args(RunnerStatus)[0])] == NAMES


@pytest.mark.parametrize("earlier", range(len(WAY_UP)))
@pytest.mark.parametrize("later", range(len(WAY_UP)))
def test_forwards_only_and_steps_may_be_missing(earlier, later):
    one, other = f"Runner{WAY_UP[earlier]}", f"Runner{WAY_UP[later]}"
    to_and_fro = {one, other} <= SERVING
    assert may_follow(one, other) == (later > earlier or to_and_fro or one == other == "RunnerLoading")


@pytest.mark.parametrize("name", NAMES)
def test_any_living_runner_can_fail_or_end(name):
    for end in ("RunnerFailed", "RunnerShuttingDown", "RunnerShutdown"):
        if name not in {"RunnerShutdown", "RunnerFailed", end}:
            assert may_follow(name, end)
        assert not may_follow("RunnerShutdown", name)


def test_a_failed_runner_does_not_come_back():
    assert not REACHABLE["RunnerFailed"] & {f"Runner{each}" for each in WAY_UP}
