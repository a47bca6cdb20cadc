"""The decider: what follows from a command, and the one place where a stale report is turned down."""

import pytest

from exo_cli.engine.core.decider import decide
from exo_cli.engine.core.errors import ExitCode, Refused
from exo_cli.engine.core.intents import (
    DeleteInstance,
    ForgetRunner,
    ReportDownload,
    ReportNode,
    ReportRunner,
    ReportSilence,
    ReportTask,
    RestartInstance,
)
from exo_cli.engine.core.reducer import applied
from exo_cli.engine.core.state import Failures, State
from exo_cli.engine.core.tasks import OPEN, TaskStatus
from tests.builders import MIB, a_card, a_download, a_node, a_record, a_state, a_status, a_task, a_wish, an_instance


def told(decision):
    """A decision in a few words."""
    if isinstance(decision, Refused):
        return f"refused {decision.code}"
    return [_told(event) for event in decision]


def _told(event):
    words = [event.type]
    for name in ("instance_id", "runner_id", "task_id", "node_id"):
        words += [value] if (value := getattr(event, name, None)) else []
    if (status := getattr(event, "runner_status", None)) is not None:
        words += [status.type.removeprefix("Runner"), f"@{event.attempt}"]
    if (status := getattr(event, "task_status", None)) is not None:
        words.append(str(status))
    return " ".join(words)


def say(state, command, command_id="c"):
    return told(decide(state, command, command_id))


def grown(state, command, command_id="c"):
    """The state after a command."""
    decision = decide(state, command, command_id)
    assert not isinstance(decision, Refused), decision
    for event in decision:
        state = applied(state, a_record(event, state.index + 1))
    return state


def report(name, runner_id="i-0", attempt=1, node_id="a", **fields):
    return ReportRunner(node_id=node_id, runner_id=runner_id, attempt=attempt, status=a_status(name, **fields))


ONE, TWO = an_instance("i", ("a",)), an_instance("i", ("a", "b"))

# Place and delete ----------------------------------------------------------------------------------------------------


def test_place_then_again_is_unchanged():
    state = grown(a_state(), a_wish())
    (instance,) = state.instances.values()
    assert say(state, a_wish()) == []
    assert say(state, a_wish(), "other id") == []
    assert say(state, a_wish(new=True), "other id") != []
    assert say(state, a_wish(min_nodes=2), "other id") != [], "the one that is there does not fit this wish"
    assert instance.shards[0].runner_id == f"{instance.instance_id}-0"


def test_the_same_command_names_the_same_instance():
    first, again = decide(a_state(), a_wish(), "c"), decide(a_state(), a_wish(), "c")
    assert first == again
    assert first != decide(a_state(), a_wish(), "d")


def test_place_that_does_not_fit_is_refused_with_figures():
    refused = decide(a_state(), a_wish(a_card(layer_bytes=1 << 40)), "c")
    assert isinstance(refused, Refused)
    assert refused.exit_code == ExitCode.INFEASIBLE
    assert {"needed_bytes", "usable_bytes", "missing_bytes"} <= refused.details.keys()


def test_two_places_at_once_do_not_share_memory():
    """The second is decided on what the first will take, though its runners do not exist yet."""
    state = a_state(nodes={"a": a_node("a", memory_bytes=600 * MIB)})
    card = a_card(layer_bytes=20 * MIB)
    assert say(grown(state, a_wish(card), "first"), a_wish(card, new=True), "second") == "refused infeasible"


def test_delete_of_an_unknown_id():
    refused = decide(a_state(), DeleteInstance(instance_id="i"), "c")
    assert isinstance(refused, Refused)
    assert (refused.code, refused.exit_code) == ("not_found", ExitCode.NOT_FOUND)


@pytest.mark.parametrize("status", sorted(OPEN))
def test_l12_delete_cancels_open_tasks_first(status):
    state = a_state(instances=[ONE], tasks=[a_task(status=status)])
    assert say(state, DeleteInstance(instance_id="i")) == ["TaskStatusUpdated t Cancelled", "InstanceDeleted i"]


@pytest.mark.parametrize("status", sorted(set(TaskStatus) - OPEN))
def test_l13_ended_tasks_are_left_alone(status):
    state = a_state(instances=[ONE], tasks=[a_task(status=status)])
    assert say(state, DeleteInstance(instance_id="i")) == ["InstanceDeleted i"]


def test_l14_tasks_of_other_instances_are_left_alone():
    state = a_state(
        instances=[ONE, an_instance("j", ("a",))],
        tasks=[a_task("t1", "i", TaskStatus.RUNNING), a_task("t2", "j", TaskStatus.RUNNING)],
    )
    assert say(state, DeleteInstance(instance_id="i")) == ["TaskStatusUpdated t1 Cancelled", "InstanceDeleted i"]
    assert say(grown(state, DeleteInstance(instance_id="i")), DeleteInstance(instance_id="i")) == "refused not_found"


def test_delete_of_what_is_going_changes_nothing():
    assert say(a_state(runners={"i-0": "Ready"}), DeleteInstance(instance_id="i")) == []


# Runners -------------------------------------------------------------------------------------------------------------


def running(name="Ready", attempt=5, instance=TWO, **others):
    return a_state(instances=[instance], runners={"i-0": name, **others}, attempt=attempt)


@pytest.mark.parametrize(
    ("state", "said", "expected"),
    [
        # A first report, and the next ones.
        (a_state(instances=[TWO]), report("Idle"), ["RunnerStatusUpdated i-0 Idle @1"]),
        (running("Idle"), report("Loaded", attempt=5), ["RunnerStatusUpdated i-0 Loaded @5"]),
        (running("Loaded"), report("Failed", attempt=5), ["RunnerStatusUpdated i-0 Failed @5"]),
        (running("Failed"), report("Idle", attempt=6), ["RunnerStatusUpdated i-0 Idle @6"]),
        (running("Ready"), report("Shutdown", attempt=5), ["RunnerStatusUpdated i-0 Shutdown @5"]),
        # Twice.
        (running("Ready"), report("Ready", attempt=5), []),
        (running("Loading"), report("Loading", attempt=5), []),
        (running("Loading"), report("Loading", attempt=5, layers_loaded=3), ["RunnerStatusUpdated i-0 Loading @5"]),
        # Backwards, and what cannot follow.
        (running("Ready"), report("Loading", attempt=5), "refused stale"),
        (running("Failed"), report("Ready", attempt=5), "refused stale"),
        (running("ShuttingDown"), report("Ready", attempt=5), "refused stale"),
        # Of an older attempt, whatever it is.
        (running("Idle"), report("Ready", attempt=4), "refused stale"),
        (running("Idle"), report("Shutdown", attempt=4), "refused stale"),
        # Late: the instance or the node is gone.
        (a_state(), report("Idle"), "refused stale"),
        (a_state(runners={"i-0": "Ready"}), report("ShuttingDown"), "refused stale"),
        (a_state(runners={"i-0": "Ready"}), report("Shutdown"), ["RunnerStatusUpdated i-0 Shutdown @1"]),
        (a_state(), report("Shutdown"), "refused stale"),
        (a_state(nodes="bc", instances=[TWO]), report("Idle"), "refused stale"),
        # Of a node that does not have it.
        (a_state(instances=[TWO]), report("Idle", node_id="b"), "refused stale"),
    ],
)
def test_reports_of_runners(state, said, expected):
    assert say(state, said) == expected


def test_the_refusal_says_what_and_why():
    refused = decide(running("Ready"), report("Loading", attempt=5), "c")
    assert isinstance(refused, Refused)
    assert "RunnerLoading" in refused.reason
    assert "RunnerReady" in refused.reason
    assert "i-0" in refused.reason


def test_restart_shuts_down_what_runs_and_clears_what_failed():
    state = running("Ready", instance=TWO, **{"i-1": "Failed"})
    assert say(state, RestartInstance(instance_id="i")) == [
        "RunnerStatusUpdated i-0 ShuttingDown @5",
        "RunnerStatusUpdated i-1 Shutdown @5",
    ]
    assert say(grown(state, RestartInstance(instance_id="i")), RestartInstance(instance_id="i"), "again") == []
    assert say(a_state(), RestartInstance(instance_id="i")) == "refused not_found"


def test_restart_clears_a_terminal_failure():
    state = running("Failed", instance=ONE)
    state.failures["i"] = Failures(count=5, last_index=1, runner_id="i-0", terminal=True)
    assert grown(state, RestartInstance(instance_id="i")).failures == {}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (a_state(runners={"i-0": "Ready"}), ["RunnerStatusUpdated i-0 Shutdown @1"]),
        (running("Failed"), ["RunnerStatusUpdated i-0 Shutdown @5"]),
        (a_state(nodes="b", instances=[TWO], runners={"i-0": "Ready"}), ["RunnerStatusUpdated i-0 Shutdown @1"]),
        (running("Ready"), "refused conflict"),
        (a_state(), "refused not_found"),
    ],
)
def test_forget(state, expected):
    assert say(state, ForgetRunner(runner_id="i-0")) == expected


# Nodes ---------------------------------------------------------------------------------------------------------------


def busy():
    """A split model at work: rank 0 on a, rank 1 on b; another one on b alone; a task on each."""
    return a_state(
        instances=[TWO, an_instance("j", ("b",))],
        runners={"i-0": "Running", "i-1": "Running", "j-0": "Ready"},
        downloads=[a_download("a"), a_download("b")],
        tasks=[a_task("t1", "i", TaskStatus.RUNNING), a_task("t2", "j", TaskStatus.RUNNING)],
    )


def test_node_restart_ends_what_its_process_had_and_then_it_joins():
    assert say(busy(), ReportNode(node_id="a", incarnation=2, facts=a_node("a"))) == [
        "TaskStatusUpdated t1 Failed",
        "TaskDeleted t1",
        "RunnerStatusUpdated i-0 Shutdown @1",
        "NodeJoined a",
    ]


def test_node_lost_ends_its_runners_and_instances_and_then_it_goes():
    assert say(busy(), ReportSilence(node_id="b")) == [
        "TaskStatusUpdated t2 Failed",
        "TaskDeleted t2",
        "RunnerStatusUpdated i-1 Shutdown @1",
        "RunnerStatusUpdated j-0 Shutdown @1",
        "TaskStatusUpdated t1 Cancelled",
        "InstanceDeleted i",
        "InstanceDeleted j",
        "NodeTimedOut b",
    ]
    assert say(a_state(), ReportSilence(node_id="never-seen")) == []


@pytest.mark.parametrize(
    "command", [ReportNode(node_id="a", incarnation=2, facts=a_node("a")), ReportSilence(node_id="b")]
)
@pytest.mark.parametrize("kept", range(8))
def test_a_torn_batch_is_decided_again_and_ends_the_same(command, kept):
    """A power cut may keep only the first records of a batch; the same report then brings the rest."""
    whole, torn = grown(busy(), command), busy()
    decision = decide(torn, command, "c")
    assert not isinstance(decision, Refused)
    for event in decision[:kept]:
        torn = applied(torn, a_record(event, torn.index + 1))
    torn = grown(torn, command)
    assert {**torn.dump(), "outcomes": 0} == {**whole.dump(), "outcomes": 0}


def test_reports_of_a_node():
    known = a_state()
    assert say(known, ReportNode(node_id="new", incarnation=1, facts=a_node("new"))) == ["NodeJoined new"]
    assert say(known, ReportNode(node_id="a", incarnation=1, facts=a_node("a"))) == []
    assert say(known, ReportNode(node_id="a", incarnation=0, facts=a_node("a"))) == "refused stale"
    renamed = ReportNode(node_id="a", incarnation=1, facts=a_node("other"))
    assert say(known, renamed) == ["NodeGatheredInfo a"]
    assert say(grown(known, renamed), renamed) == []


@pytest.mark.parametrize(("available", "events"), [(8192 - 512, []), (8192 - 513, ["NodeGatheredInfo a"])])
def test_free_memory_is_news_from_a_sixteenth_on(available, events):
    facts = a_node("a", memory_available_bytes=available * MIB)
    assert say(a_state(), ReportNode(node_id="a", incarnation=1, facts=facts)) == events


def test_reports_of_downloads():
    state = a_state()
    progress = ReportDownload(progress=a_download("a", kind="Failed", error_message="no route"))
    assert say(state, progress) == ["NodeDownloadProgress"]
    assert say(grown(state, progress), progress) == [], "the same failure again is no news"
    assert say(state, ReportDownload(progress=a_download("gone"))) == "refused stale"


# Tasks ---------------------------------------------------------------------------------------------------------------


def chat(status, begins=True, ends=True, **fields):
    return ReportTask(task=a_task("t", "i", status, **fields), begins=begins, ends=ends)


BEGUN = chat(TaskStatus.RUNNING, ends=False)
DONE = chat(TaskStatus.COMPLETE, tokens=3)
REST = chat(TaskStatus.COMPLETE, begins=False, tokens=3)
WHOLE = ["TaskCreated t", "TaskStatusUpdated t Complete", "TaskDeleted t"]


def past(state):
    return grown(state, DeleteInstance(instance_id="i"), "delete")


def serving() -> State:
    return a_state(instances=[ONE], runners={"i-0": "Ready"})


def test_a_short_chat_is_one_batch():
    assert say(serving(), DONE) == WHOLE
    (created, *_) = decide(serving(), DONE, "c")
    assert (created.task.task_status, created.task.tokens) == ("Running", None)


def test_a_long_chat_begins_and_ends():
    assert say(serving(), BEGUN) == ["TaskCreated t"]
    assert say(grown(serving(), BEGUN), BEGUN) == []
    assert say(grown(serving(), BEGUN), REST) == WHOLE[1:]


def test_late_history_is_taken_with_its_end_only():
    assert say(past(serving()), DONE) == WHOLE
    assert say(past(serving()), BEGUN) == "refused stale"
    assert say(a_state(), DONE) == "refused stale", "of an instance that was never seen"


def test_exactly_one_terminal_status():
    state = past(grown(serving(), BEGUN))
    assert state.tasks["t"].task_status == "Cancelled"
    assert say(state, REST) == ["TaskDeleted t"]
    assert say(grown(state, REST), REST) == "refused stale"


def test_the_end_of_a_task_that_a_lost_node_had_is_not_told_twice():
    state = grown(grown(serving(), BEGUN), ReportNode(node_id="a", incarnation=2, facts=a_node("a")))
    assert state.tasks == {}
    assert say(state, REST) == "refused stale"
