"""The planner's cases by the ids of the field (P1 to P21), the extra ones, and what must never lock up."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from exo_cli.engine.core.actions import Action
from exo_cli.engine.core.planner import RULES, Local, plan
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import Failures, State
from exo_cli.engine.core.tasks import ImageEdits, ImageGeneration, TaskStatus
from tests.builders import a_card, a_download, a_local, a_state, a_status, a_task, an_instance

ONE = an_instance("i", ("a",))
TWO = an_instance("i", ("a", "b"))
THREE = an_instance("i", ("a", "b", "c"))


def told(action: Action | None) -> str:
    """An action in a few words."""
    if action is None:
        return "None"
    named = getattr(action, "runner_id", None) or getattr(action, "model_id", None) or action.task_id
    return f"{action.type} {named}"


@dataclass(frozen=True)
class Case:
    """`node` plans; `mine` are its processes, `state` the statuses in the state, `have` who has the model."""

    id: str
    instance: Instance | None
    node: str
    mine: Mapping[str, str]
    others: Mapping[str, str]
    have: Iterable[str]
    expected: str
    tasks: tuple[str, ...] = ()
    admitted: Mapping[str, TaskStatus] = field(default_factory=dict)

    def run(self) -> str:
        instances = [self.instance] if self.instance else []
        state = a_state(
            instances=instances,
            runners={**self.mine, **self.others},
            downloads=[a_download(node_id) for node_id in self.have],
        )
        local = a_local(self.node, state, self.mine)
        admitted = {task_id: a_task(task_id, status=status) for task_id, status in self.admitted.items()}
        return told(plan(local, state, admitted, now=1000.0))


PENDING = {"t": TaskStatus.PENDING}
CASES = [
    Case("P1", ONE, "a", {"i-0": "Idle"}, {}, "", "DownloadModel tiny"),
    Case("P2", TWO, "a", {"i-0": "Connected"}, {"i-1": "Connected"}, "ab", "LoadModel i-0"),
    Case("P3", ONE, "a", {"i-0": "Idle"}, {}, "a", "LoadModel i-0"),
    Case("P4", TWO, "a", {"i-0": "Connected"}, {"i-1": "Connected"}, "a", "None"),
    Case("P4 then", TWO, "a", {"i-0": "Connected"}, {"i-1": "Connected"}, "ab", "LoadModel i-0"),
    Case("P5", None, "a", {"i-0": "Ready"}, {}, "a", "Shutdown i-0"),
    Case("P6", TWO, "a", {"i-0": "Ready"}, {"i-1": "Failed"}, "ab", "Shutdown i-0"),
    Case("P7", ONE, "a", {}, {}, "", "CreateRunner i-0"),
    Case("P8", ONE, "a", {"i-0": "Ready"}, {}, "a", "None"),
    Case("P9", an_instance("i", ("b",)), "a", {}, {}, "", "None"),
    Case("P10", TWO, "a", {"i-0": "Ready"}, {"i-1": "Ready"}, "ab", "TextGeneration t", admitted=PENDING),
    Case("P11", TWO, "a", {"i-0": "Running"}, {"i-1": "Loaded"}, "ab", "None", admitted=PENDING),
    Case("P14", TWO, "a", {"i-0": "Running"}, {"i-1": "Running"}, "ab", "None"),
    Case("P15", THREE, "b", {"i-1": "Loaded"}, {"i-0": "Loaded", "i-2": "WarmingUp"}, "abc", "StartWarmup i-1"),
    Case("P16", TWO, "a", {"i-0": "Loaded"}, {"i-1": "WarmingUp"}, "ab", "StartWarmup i-0"),
    Case("P18", TWO, "a", {"i-0": "Loaded"}, {"i-1": "Loaded"}, "ab", "None"),
    Case("P18 then", TWO, "a", {"i-0": "Loaded"}, {"i-1": "WarmingUp"}, "ab", "StartWarmup i-0"),
    Case("P19", TWO, "b", {"i-1": "Loaded"}, {"i-0": "WarmingUp"}, "ab", "StartWarmup i-1"),
    Case("P20", TWO, "a", {"i-0": "Loaded"}, {"i-1": "Loading"}, "ab", "None"),
    Case("P21", TWO, "a", {"i-0": "Loaded"}, {"i-1": "Loaded"}, "ab", "None"),
    # The field's extra cases.
    Case("connect 0 of 2", TWO, "a", {"i-0": "Idle"}, {"i-1": "Idle"}, "ab", "ConnectToGroup i-0"),
    Case("connect 1 of 2, too early", TWO, "b", {"i-1": "Idle"}, {"i-0": "Idle"}, "ab", "None"),
    Case("connect 1 of 2", TWO, "b", {"i-1": "Idle"}, {"i-0": "Connecting"}, "ab", "ConnectToGroup i-1"),
    Case("sibling failed, mine never was", TWO, "a", {}, {"i-1": "Failed"}, "ab", "None"),
    Case("sibling failed, so did mine", TWO, "a", {}, {"i-0": "Failed", "i-1": "Failed"}, "ab", "CreateRunner i-0"),
    Case("sibling missing from the state", TWO, "a", {"i-0": "Idle"}, {}, "ab", "None"),
    Case("sibling missing, task waits", TWO, "a", {"i-0": "Connecting"}, {}, "ab", "Shutdown i-0", admitted=PENDING),
    Case("middle rank connects first", THREE, "b", {"i-1": "Idle"}, {"i-0": "Idle", "i-2": "Idle"}, "abc",
         "ConnectToGroup i-1"),
    Case("last waits for all", THREE, "c", {"i-2": "Idle"}, {"i-0": "Connecting", "i-1": "Idle"}, "abc", "None"),
    Case("load while a sibling loads", TWO, "b", {"i-1": "Connected"}, {"i-0": "Loaded"}, "ab", "LoadModel i-1"),
    Case("a download that is missing after connecting", TWO, "a", {"i-0": "Connected"}, {"i-1": "Connected"}, "b",
         "DownloadModel tiny"),
    # Where the public system locks up: a sibling began anew while this one is past its group.
    *(
        Case(f"left behind: {mine}, sibling {other}", TWO, "a", {"i-0": mine}, {"i-1": other}, "ab", "Shutdown i-0")
        for mine in ("Connected", "Loading", "Loaded", "WarmingUp", "Ready", "Running")
        for other in ("Idle", "ShuttingDown")
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_plan(case):
    assert case.run() == case.expected


def test_p5_p7_name_the_instance():
    state = a_state(instances=[ONE])
    action = plan(Local("a"), state, {}, 0.0)
    assert action is not None
    assert action.instance_id == "i"
    # Not of an instance in the state: still shut down under its own id.
    gone = plan(a_local("a", state, {"x-0": "Ready"}), a_state(), {}, 0.0)
    assert gone is not None
    assert (gone.type, gone.instance_id) == ("Shutdown", "x")


def ready_pair(node: str = "a") -> tuple[State, Local]:
    state = a_state(
        instances=[TWO], runners={"i-0": "Ready", "i-1": "Ready"}, downloads=[a_download("a"), a_download("b")]
    )
    return state, a_local(node, state, {"i-0" if node == "a" else "i-1": "Ready"})


@pytest.mark.parametrize("kind", [None, ImageGeneration, ImageEdits])
def test_p10_is_the_very_task(kind):
    state, local = ready_pair()
    task = kind(task_id="t", instance_id="i") if kind else a_task()
    assert plan(local, state, {"t": task}, 0.0) is task
    local.runners["i-0"].forwarded.add("t")
    assert plan(local, state, {"t": task}, 0.0) is None, "a task is forwarded once"


def test_p12_task_of_another_instance():
    state, local = ready_pair()
    assert plan(local, state, {"t": a_task(instance_id="j")}, 0.0) is None


def test_p13_only_open_tasks():
    state, local = ready_pair()
    ended = {
        str(status): a_task(str(status), status=status) for status in TaskStatus if status not in {"Pending", "Running"}
    }
    ended.pop("Cancelled")
    assert plan(local, state, ended, 0.0) is None


def test_p17_sibling_idle_means_the_group_is_gone():
    """P17 says None; there the public system then waits for ever, so here the loaded rank starts anew."""
    state = a_state(
        instances=[TWO], runners={"i-0": "Idle", "i-1": "Loaded"}, downloads=[a_download("a"), a_download("b")]
    )
    assert told(plan(a_local("b", state, {"i-1": "Loaded"}), state, {}, 0.0)) == "Shutdown i-1"


@pytest.mark.parametrize(("connected_to", "expected"), [(1, "None"), (0, "Shutdown i-0")])
def test_a_sibling_that_seems_idle_may_only_be_ahead_of_its_reports(connected_to, expected):
    """Its connecting was heard of at the other end of the ring before it was in the log."""
    state = a_state(
        instances=[TWO], runners={"i-0": "Connecting", "i-1": "Idle"}, downloads=[a_download("a"), a_download("b")]
    )
    local = a_local("a", state, {"i-0": "Connected"})
    local.runners["i-0"].group = {"i-1": connected_to}
    assert told(plan(local, state, {}, 0.0)) == expected


def test_cancel_comes_before_anything_else():
    state, local = ready_pair()
    state.instances["new"] = an_instance("new", ("a",))
    cancelled = {"t": a_task(status=TaskStatus.CANCELLED)}
    assert told(plan(local, state, cancelled, 0.0)) == "CreateRunner new-0", "it was never forwarded"
    local.runners["i-0"].forwarded.add("t")
    action = plan(local, state, cancelled, 0.0)
    assert action is not None
    assert action.type == "CancelTask"
    local.runners["i-0"].cancelled.add("t")
    assert told(plan(local, state, cancelled, 0.0)) == "CreateRunner new-0"


def test_rules_are_in_the_order_of_the_law():
    assert list(RULES) == [
        "cancel tasks",
        "kill runner",
        "create runner",
        "download model",
        "connect group",
        "load model",
        "warm up",
        "forward pending tasks",
    ]


@pytest.mark.parametrize("status", ["Idle", "Connected", "Loaded"])
def test_an_order_under_way_is_not_given_twice(status):
    instance = ONE if status != "Connected" else TWO
    state = a_state(
        instances=[instance],
        runners={f"i-{rank}": status for rank in range(len(instance.shards))},
        downloads=[a_download("a"), a_download("b")],
    )
    local = a_local("a", state, {"i-0": status})
    assert plan(local, state, {}, 0.0) is not None
    local.runners["i-0"].asked = "something"
    assert plan(local, state, {}, 0.0) is None


def test_the_process_here_knows_better_than_the_state():
    state = a_state(
        instances=[TWO], runners={"i-0": "Idle", "i-1": "Connecting"}, downloads=[a_download("a"), a_download("b")]
    )
    assert plan(a_local("a", state, {"i-0": "Connecting"}), state, {}, 0.0) is None


def test_a_starting_process_is_left_alone():
    state = a_state(instances=[ONE])
    assert plan(a_local("a", state, {"i-0": ""}), state, {}, 0.0) is None


def test_download_gate():
    state = a_state(instances=[ONE], runners={"i-0": "Idle"}, downloads=[a_download("a", kind="Failed")])
    local = a_local("a", state, {"i-0": "Idle"})
    assert told(plan(local, state, {}, 0.0)) == "DownloadModel tiny"
    local.downloading.add("tiny")
    assert plan(local, state, {}, 0.0) is None
    local.downloading.clear()
    local.downloads.record_failure("tiny", 0.0)
    assert plan(local, state, {}, 0.4) is None
    assert told(plan(local, state, {}, 0.5)) == "DownloadModel tiny"
    local.downloads.forbid("tiny")
    assert plan(local, state, {}, 1e9) is None


def test_two_instances_share_one_download():
    card = a_card()
    state = a_state(instances=[an_instance("i", ("a",), card), an_instance("j", ("a",), card)])
    local = a_local("a", state, {"i-0": "Idle", "j-0": "Idle"})
    assert told(plan(local, state, {}, 0.0)) == "DownloadModel tiny"
    local.downloading.add("tiny")
    assert plan(local, state, {}, 0.0) is None


def test_creation_waits_for_the_back_off():
    state = a_state(instances=[ONE])
    local = Local("a")
    local.starts.record_failure("i", 10.0)
    assert plan(local, state, {}, 10.4) is None
    assert told(plan(local, state, {}, 10.5)) == "CreateRunner i-0"


def failed_alone(count: int, unsettled: int = 0) -> tuple[State, Local]:
    state = a_state(instances=[ONE], runners={"i-0": a_status("Failed", error_message="boom")})
    state.failures["i"] = Failures(count=count, last_index=9, runner_id="i-0", terminal=count >= 5)
    local = a_local("a", state, {"i-0": "Failed"})
    local.runners["i-0"].unsettled = unsettled
    return state, local


def test_failed_is_shut_down_once_its_report_is_settled():
    state, local = failed_alone(1, unsettled=1)
    assert plan(local, state, {}, 0.0) is None
    local.runners["i-0"].unsettled = 0
    assert told(plan(local, state, {}, 0.0)) == "Shutdown i-0"


def test_the_fifth_failure_stays_to_be_seen():
    state, local = failed_alone(5)
    assert plan(local, state, {}, 1e9) is None
    local.runners.clear()
    assert plan(local, state, {}, 1e9) is None, "and is not created again"
    del state.failures["i"]
    assert told(plan(local, state, {}, 1e9)) == "CreateRunner i-0"


def test_siblings_of_a_terminal_failure_end_and_stay_away():
    state = a_state(instances=[TWO], runners={"i-0": "Ready", "i-1": "Failed"})
    state.failures["i"] = Failures(count=5, last_index=9, runner_id="i-1", terminal=True)
    local = a_local("a", state, {"i-0": "Ready"})
    assert told(plan(local, state, {}, 0.0)) == "Shutdown i-0"
    local.runners.clear()
    del state.runners["i-0"]
    assert plan(local, state, {}, 1e9) is None


def test_a_restart_is_obeyed_by_the_attempt_that_was_meant():
    state = a_state(instances=[ONE], runners={"i-0": "ShuttingDown"}, downloads=[a_download("a")])
    local = a_local("a", state, {"i-0": "Ready"})
    assert told(plan(local, state, {}, 0.0)) == "Shutdown i-0"
    local.runners["i-0"].attempt = 2
    assert plan(local, state, {}, 0.0) is None


def test_shutdown_is_asked_once():
    local = a_local("a", a_state(), {"i-0": "Ready"})
    local.runners["i-0"].asked = "Shutdown"
    assert plan(local, a_state(), {}, 0.0) is None


@pytest.mark.parametrize("instance", [ONE, TWO, THREE])
def test_idle_when_all_is_ready(instance):
    everybody = dict.fromkeys(instance.runner_ids, "Ready")
    state = a_state(instances=[instance], runners=everybody, downloads=[a_download(each) for each in instance.node_ids])
    for shard in instance.shards:
        assert plan(a_local(shard.node_id, state, {shard.runner_id: "Ready"}), state, {}, 0.0) is None
