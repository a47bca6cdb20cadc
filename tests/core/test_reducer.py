"""The reducer: what each event does, as plain as the log (A1 to A15 as far as the events exist here)."""

from typing import get_args

import pytest

from exo_cli.engine.core.events import (
    DeleteReason,
    Event,
    InstanceCreated,
    InstanceDeleted,
    NodeDownloadProgress,
    NodeGatheredInfo,
    NodeJoined,
    NodeTimedOut,
    RunnerStatusUpdated,
    TaskCreated,
    TaskDeleted,
    TaskStatusUpdated,
    TermStarted,
    TopologyEdgeCreated,
    TopologyEdgeDeleted,
    VotersChanged,
)
from exo_cli.engine.core.reducer import _FOLDS, FAILURES_MAX, applied, apply
from exo_cli.engine.core.runners import TRANSITIONS
from exo_cli.engine.core.state import OUTCOMES_KEPT, State, load
from exo_cli.engine.core.tasks import CreateRunner, TaskStatus
from exo_cli.engine.core.topology import Edge
from tests.builders import a_download, a_node, a_record, a_state, a_status, a_task, an_instance


def status(name, runner_id="i-0", attempt=1, **fields):
    return RunnerStatusUpdated(runner_id=runner_id, runner_status=a_status(name, **fields), attempt=attempt)


def fold(state, *events, seconds=0.0, step=1.0, **by):
    for number, event in enumerate(events):
        apply(state, a_record(event, state.index + 1, seconds=seconds + number * step, **by))
    return state


# Runners -------------------------------------------------------------------------------------------------------------


def test_a1_shutdown_removes_the_runner():
    state = a_state(runners={"i-0": "Idle", "j-0": "Ready"})
    assert list(fold(state, status("Shutdown")).runners) == ["j-0"]


def test_a2_any_other_status_adds_or_updates_it():
    assert list(fold(State(), status("Idle")).runners) == ["i-0"]
    for name in TRANSITIONS.keys() - {"RunnerShutdown"}:
        state = fold(State(), status("Idle"), status(name.removeprefix("Runner")))
        assert state.runners["i-0"].status.type == name


def test_shutdown_of_one_that_is_unknown_changes_nothing():
    assert fold(a_state(), status("Shutdown")).runners == {}


def test_foreign_logs_fold_backwards_too():
    """The reducer judges nothing, so that stale state shows: a runner revived after its end, or without an instance."""
    state = fold(State(), status("Ready"), status("Shutdown"), status("Loading"), status("Idle", attempt=None))
    assert state.runners["i-0"].status.type == "RunnerIdle"
    assert state.runners["i-0"].attempt is None


def test_since_is_when_the_status_began():
    state = fold(State(), status("Loading", layers_loaded=1), status("Loading", layers_loaded=2), status("Loaded"))
    assert state.runners["i-0"].since_index == 2
    state = fold(State(), status("Loading", layers_loaded=1), status("Loading", layers_loaded=2))
    assert state.runners["i-0"].since_index == 0
    assert fold(state, status("Loading", attempt=2)).runners["i-0"].since_index == 2


def test_the_ring_endpoint_stays_known_within_an_attempt():
    state = fold(State(), status("Idle", ring_endpoint="h:1"), status("Connecting"))
    assert state.runners["i-0"].ring_endpoint == "h:1"
    assert fold(state, status("Idle", attempt=2)).runners["i-0"].ring_endpoint is None


# Failures ------------------------------------------------------------------------------------------------------------


def failed(runner_id="i-0", attempt=1):
    return status("Failed", runner_id, attempt, error_message="boom", phase="RunnerLoading")


def test_failures_are_counted_and_the_fifth_is_terminal():
    state = a_state(instances=[an_instance()])
    for attempt in range(1, FAILURES_MAX + 1):
        fold(state, status("Idle", attempt=attempt), failed(attempt=attempt))
        known = state.failures["i"]
        assert (known.count, known.terminal) == (attempt, attempt == FAILURES_MAX)
        assert (known.last_error, known.phase, known.runner_id) == ("boom", "RunnerLoading", "i-0")
        if attempt < FAILURES_MAX:
            fold(state, status("Shutdown", attempt=attempt))
            assert state.failures["i"].count == attempt, "a shutdown forgets nothing"
    assert "i" not in fold(state, status("Shutdown", attempt=5)).failures, "but that of a terminal one gives another go"


def test_a_sibling_does_not_clear_a_terminal_failure():
    """It is shut down because of it: clearing there made a split model fail for ever (sim seed 4)."""
    state = a_state(instances=[an_instance("i", ("a", "b"))])
    for attempt in range(1, FAILURES_MAX + 1):
        fold(state, failed("i-1", attempt), *([] if attempt == FAILURES_MAX else [status("Shutdown", "i-1", attempt)]))
    fold(state, status("Ready", "i-0"), status("Shutdown", "i-0"))
    assert state.failures["i"].terminal
    assert "i" not in fold(state, status("Shutdown", "i-1", 5)).failures


def test_one_fault_seen_by_two_ranks_counts_once():
    state = a_state(instances=[an_instance("i", ("a", "b"))])
    assert fold(state, failed("i-0"), failed("i-1")).failures["i"].count == 1


@pytest.mark.parametrize(("held", "count"), [(59.0, 2), (60.0, 1)])
def test_a_ready_held_for_a_minute_clears_what_went_before(held, count):
    state = a_state(instances=[an_instance()])
    fold(state, failed(), status("Shutdown"), status("Ready", attempt=2), seconds=0.0, step=0.0)
    fold(state, failed(attempt=2), seconds=held)
    assert state.failures["i"].count == count


def test_failures_of_an_unknown_instance_are_nobodys():
    assert fold(State(), failed()).failures == {}


# Instances, nodes, downloads ----------------------------------------------------------------------------------------


def test_instances_come_and_go():
    state = fold(State(), InstanceCreated(instance=an_instance()), failed())
    assert list(state.instances) == ["i"]
    fold(state, InstanceDeleted(instance_id="i", reason=DeleteReason.NODE_LOST))
    assert (state.instances, state.failures) == ({}, {})
    assert state.past_instances == {"i": 2}
    assert list(state.runners) == ["i-0"], "runners end by statuses of their own"


def test_past_instances_are_bounded():
    state = State()
    for number in range(OUTCOMES_KEPT + 5):
        fold(state, InstanceDeleted(instance_id=f"i{number}"))
    assert len(state.past_instances) == OUTCOMES_KEPT
    assert "i0" not in state.past_instances


def test_a9_a10_downloads_keep_their_order():
    state = State()
    for model_id in ("M_A", "M_B"):
        fold(state, NodeDownloadProgress(download_progress=a_download("node-1", model_id)))
    assert list(state.downloads["node-1"]) == ["M_A", "M_B"]
    fold(state, NodeDownloadProgress(download_progress=a_download("node-1", "M_A", "Failed")))
    assert list(state.downloads["node-1"]) == ["M_A", "M_B"]
    assert state.downloads["node-1"]["M_A"].kind == "DownloadFailed"


def test_nodes():
    state = fold(State(), NodeJoined(node_id="a", facts=a_node("a"), incarnation=3))
    assert state.nodes["a"].incarnation == 3
    fold(state, NodeGatheredInfo(node_id="a", facts=a_node("renamed")))
    assert (state.nodes["a"].facts.name, state.nodes["a"].incarnation) == ("renamed", 3)
    fold(state, NodeGatheredInfo(node_id="foreign", facts=a_node("foreign")))
    assert state.nodes["foreign"].incarnation == 0


def test_a_lost_node_takes_everything_keyed_by_it():
    edges = [Edge(source=one, sink=other, address="x:1") for one, other in ("ab", "ba", "bc")]
    state = fold(
        a_state(nodes="abc", downloads=[a_download("a"), a_download("b")], instances=[an_instance()]),
        *(TopologyEdgeCreated(edge=edge) for edge in edges),
        NodeTimedOut(node_id="a"),
    )
    assert (list(state.nodes), list(state.downloads), len(state.edges)) == (["b", "c"], ["b"], 1)
    assert list(state.instances) == ["i"], "instances end by events of their own"
    fold(state, NodeTimedOut(node_id="never-seen"))


def test_a14_a15_edges():
    first = Edge(source="a", sink="b", address="x:1")
    second = Edge(source="a", sink="b", address="y:1")
    state = fold(State(), TopologyEdgeCreated(edge=first), TopologyEdgeCreated(edge=second))
    assert load(state.dump()).dump() == state.dump()
    fold(state, TopologyEdgeDeleted(edge=first), TopologyEdgeDeleted(edge=first))
    assert list(state.edges.values()) == [second]


def test_terms_and_voters():
    state = fold(State(), TermStarted(master="b", cluster_id="c-1"), VotersChanged(voters=("b", "c")))
    assert (state.master, state.cluster_id, state.voters, state.term, state.index) == ("b", "c-1", ("b", "c"), 1, 1)


# Tasks ---------------------------------------------------------------------------------------------------------------


def test_tasks():
    state = fold(State(), TaskCreated(task_id="t", task=a_task()))
    fold(state, TaskStatusUpdated(task_id="t", task_status=TaskStatus.COMPLETE, tokens=7, finish_reason="stop"))
    task = state.tasks["t"]
    assert (task.task_status, getattr(task, "tokens", None), getattr(task, "seconds", 0)) == ("Complete", 7, None)
    assert fold(state, TaskDeleted(task_id="t"), TaskDeleted(task_id="t")).tasks == {}


def test_a_status_of_an_unknown_task_changes_nothing():
    assert fold(State(), TaskStatusUpdated(task_id="t", task_status=TaskStatus.FAILED)).tasks == {}


def test_steps_of_foreign_logs_have_no_tokens():
    step = CreateRunner(instance_id="i", task_id="s", runner_id="i-0")
    state = fold(State(), TaskCreated(task_id="s", task=step))
    fold(state, TaskStatusUpdated(task_id="s", task_status=TaskStatus.COMPLETE, tokens=1))
    assert state.tasks["s"].task_status == "Complete"


# Outcomes, copies ----------------------------------------------------------------------------------------------------


def test_a_command_is_remembered_with_what_it_did():
    state = fold(State(), InstanceCreated(instance=an_instance()), command_id="c1")
    assert (state.outcomes["c1"].subject, state.outcomes["c1"].changed) == ("i", "created")
    fold(state, InstanceDeleted(instance_id="i"), command_id="c2")
    assert (state.outcomes["c2"].subject, state.outcomes["c2"].changed) == ("i", "deleted")
    fold(state, status("ShuttingDown"), command_id="c3")
    assert (state.outcomes["c3"].subject, state.outcomes["c3"].changed) == (None, "changed")
    fold(state, status("Ready"))
    assert list(state.outcomes) == ["c1", "c2", "c3"]


def test_outcomes_are_bounded():
    state = State()
    for number in range(OUTCOMES_KEPT + 3):
        fold(state, TaskDeleted(task_id="t"), command_id=f"c{number}")
    assert len(state.outcomes) == OUTCOMES_KEPT
    assert "c2" not in state.outcomes


def test_applied_leaves_its_input_alone():
    state = a_state(instances=[an_instance()], runners={"i-0": "Ready"}, downloads=[a_download("a")])
    before = state.dump()
    after = applied(state, a_record(status("Shutdown"), 101))
    assert state.dump() == before
    assert (after.index, after.runners) == (101, {})


def test_the_table_has_every_event():
    assert set(_FOLDS) == set(get_args(get_args(Event)[0]))
