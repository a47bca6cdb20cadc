"""Reasons: for every planner case that comes to nothing the fact that stops it; and a dead-lock is no progress."""

import pytest

from exo_cli.engine.core.planner import RULES
from exo_cli.engine.core.reasons import is_stuck, reasons
from exo_cli.engine.core.state import Failures
from tests.builders import a_download, a_state, a_task, an_instance, at
from tests.core.test_planner import CASES, ONE, THREE, TWO

IDLE = [case for case in CASES if case.expected == "None" and case.instance is not None]
LAST = "the last rank connects last"
FACTS = {
    "P4": ("load model", "node b has reported nothing of tiny"),
    "P8": ("forward pending tasks", "no task of it is open"),
    "P11": ("forward pending tasks", "waits for i-1 on node b, which is RunnerLoaded"),
    "P14": ("forward pending tasks", "no task of it is open"),
    "P18": ("warm up", "waits for i-1 on node b, which is RunnerLoaded"),
    "P20": ("warm up", "waits for i-1 on node b, which is RunnerLoading"),
    "P21": ("warm up", "waits for i-1 on node b, which is RunnerLoaded"),
    "connect 1 of 2, too early": (
        "connect group",
        "the last rank connects last: waits for i-0 on node a, which is RunnerIdle",
    ),
    "sibling failed, mine never was": ("create runner", "waits for i-1 on node b, which is RunnerFailed"),
    "sibling missing from the state": ("connect group", "waits for i-1 on node b, which is not in the state"),
    "last waits for all": ("connect group", f"{LAST}: waits for i-1 on node b, which is RunnerIdle"),
}


def verdicts(case):
    state = a_state(
        instances=[case.instance],
        runners={**case.mine, **case.others},
        downloads=[a_download(node_id) for node_id in case.have],
        tasks=[a_task(task_id, status=status) for task_id, status in case.admitted.items()],
    )
    for runner_id in case.others:
        state.runners[runner_id].since_index = 1
    shard = case.instance.shard_on(case.node)
    return {} if shard is None else {each.rule: each for each in reasons(state, shard.runner_id, at(0))}


@pytest.mark.parametrize("case", [case for case in IDLE if case.instance.shard_on(case.node)], ids=lambda case: case.id)
def test_the_fact_that_stops_it_is_named(case):
    rule, fact = FACTS[case.id]
    found = verdicts(case)
    assert list(found) == list(RULES)
    assert fact in found[rule].why
    assert not any(each.acts for each in found.values())


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.instance and case.expected != "None" and case.mine],
    ids=lambda case: case.id,
)
def test_what_is_next_is_what_the_planner_does(case):
    acting = [each for each in verdicts(case).values() if each.acts]
    assert acting[0].why == f"{case.expected.split()[0]} is next"


def test_a_back_off_and_the_last_of_too_many_failures():
    state = a_state(instances=[ONE])
    state.failures["i"] = Failures(count=3, last_index=9, last_at=at(0), last_error="no room", runner_id="i-0")
    create = {each.rule: each.why for each in reasons(state, "i-0", at(0.5))}["create runner"]
    assert create == "the next try is in 1.5 s, after: no room"
    state.failures["i"] = state.failures["i"].model_copy(update={"count": 5, "terminal": True})
    create = {each.rule: each.why for each in reasons(state, "i-0", at(0.5))}["create runner"]
    assert create == "instance i failed 5 times in a row, the last time: no room"


def test_a_download_that_failed_for_good_is_named():
    failed = a_download("b", "tiny", "Failed", error_message="404", permanent=True)
    state = a_state(instances=[TWO], runners={"i-0": "Connected", "i-1": "Idle"}, downloads=[a_download("a"), failed])
    found = {each.rule: each.why for each in reasons(state, "i-0", at(0))}
    assert found["load model"].startswith("waits for node b: i-1 on node b is RunnerIdle since record 0; ")
    assert found["load model"].endswith("DownloadFailed, 0 of 0: 404")


def test_the_dead_lock_of_the_public_system_is_no_progress():
    state = a_state(instances=[TWO], runners={"i-0": "Ready", "i-1": "Idle"}, downloads=map(a_download, "ab"))
    state.runners["i-1"].since_index = 1
    assert is_stuck(state, TWO, None, foreign=True)
    assert not is_stuck(state, TWO, at(0)), "our own planner ends the one that was left behind"


@pytest.mark.parametrize(
    ("instance", "runners", "have"),
    [
        (ONE, {"i-0": "Ready"}, "a"),
        (ONE, {}, ""),
        (ONE, {"i-0": "Idle"}, ""),
        (TWO, {"i-0": "Connecting", "i-1": "Idle"}, "ab"),
        (TWO, {"i-0": "Ready", "i-1": "WarmingUp"}, "ab"),
        (THREE, {"i-0": "Ready", "i-1": "Failed", "i-2": "Idle"}, "abc"),
    ],
)
def test_what_moves_or_serves_is_not_stuck(instance, runners, have):
    state = a_state(instances=[instance], runners=runners, downloads=map(a_download, have))
    assert not is_stuck(state, instance, at(0))
    assert not is_stuck(state, instance, None, foreign=True)


def test_of_what_is_not_placed_nothing_is_told():
    assert reasons(a_state(runners={"j-0": "Ready"}), "j-0", at(0)) == []
    assert reasons(a_state(instances=[an_instance("i")]), "k-0", at(0)) == []
