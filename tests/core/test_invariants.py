"""Invariants: each kind of finding from a small log, healthy logs without any, and the laws of the pairs."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exo_cli.engine.core import intents
from exo_cli.engine.core.decider import decide
from exo_cli.engine.core.errors import Refused
from exo_cli.engine.core.events import (
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
)
from exo_cli.engine.core.invariants.checks import SETTLED, Checks
from exo_cli.engine.core.invariants.findings import FINDINGS_KEPT, Findings
from exo_cli.engine.core.invariants.links import Links
from exo_cli.engine.core.invariants.rules import RULES, broken
from exo_cli.engine.core.invariants.stories import ENDED_KEPT, STORY_KEPT, Stories
from exo_cli.engine.core.mastery import SETTLE_SECONDS
from exo_cli.engine.core.reducer import apply, fold_event
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import CreateRunner, Shutdown, TaskStatus
from exo_cli.engine.core.topology import Edge
from tests.builders import a_download, a_node, a_record, a_status, a_task, a_wish, an_instance
from tests.builders import at as time_at

LONG = SETTLED.total_seconds() + 1


def joined(node_id="a", incarnation=1):
    return NodeJoined(node_id=node_id, facts=a_node(node_id), incarnation=incarnation)


def gathered(node_id="a"):
    return NodeGatheredInfo(node_id=node_id, facts=a_node(node_id))


def placed(instance_id="i", nodes=("a",)):
    return InstanceCreated(instance=an_instance(instance_id, nodes))


def status(name, runner_id="i-0", attempt=1):
    return RunnerStatusUpdated(runner_id=runner_id, runner_status=a_status(name), attempt=attempt)


def deleted(instance_id="i"):
    return InstanceDeleted(instance_id=instance_id)


def task(task_id="t", instance_id="i", state=TaskStatus.RUNNING):
    return TaskCreated(task_id=task_id, task=a_task(task_id, instance_id, state))


def ended(task_id="t", state=TaskStatus.COMPLETE):
    return TaskStatusUpdated(task_id=task_id, task_status=state)


def download(node_id="a", kind="Ongoing"):
    return NodeDownloadProgress(download_progress=a_download(node_id, kind=kind))


def edge(source="a", sink="b", kind=TopologyEdgeCreated):
    return kind(edge=Edge(source=source, sink=sink, address=f"{sink}:7101"))


def lost(node_id="a"):
    return NodeTimedOut(node_id=node_id)


def checked(*events, timed=True, state=None):
    """Findings of a log, as (kind, id, since, until). A number among the events lets so many seconds pass."""
    return [
        (each.kind, each.id, each.since_index, each.until_index)
        for each in findings_of(*events, timed=timed, state=state).in_order()
    ]


def findings_of(*events, timed=True, state=None):
    state = state or State()
    findings = Findings()
    checks = Checks(state, findings, timed=timed)
    seconds = 0.0
    for event in events:
        if isinstance(event, int | float):
            seconds += event
            continue
        index, at = state.index + 1, time_at(seconds) if timed else None
        touched = checks.before(state, event, index, at)
        state.index = index
        fold_event(state, event, index, at)
        checks.after(state, touched, event, index, at)
        assert checks.broken == broken(state)
    checks.end(state)
    return findings


UP = [joined("a"), joined("b"), placed(), status("Ready")]  # records 0 to 3

LASTING = {
    "a runner that failed and never shut down": (
        [*UP, status("Failed"), deleted(), LONG, gathered()],
        ("stale_runner", "i-0", 5, None),
    ),
    "a runner whose node was lost and never spoken for": (
        [*UP, lost("a"), deleted(), LONG, gathered("b")],
        ("stale_runner", "i-0", 4, None),
    ),
    "a runner that comes back when all is over": (
        [*UP, deleted(), status("Shutdown"), status("Idle")],
        ("stale_runner", "i-0", 6, None),
    ),
    "a runner that nothing explains": ([joined(), status("Ready", "x-0")], ("stale_runner", "x-0", 1, None)),
    "a runner that was asked to end and does not": (
        [*UP, status("ShuttingDown"), LONG, gathered()],
        ("overdue_runner", "i-0", 4, None),
    ),
    "a task whose instance went": (
        [*UP, task(), deleted(), status("Shutdown"), LONG, gathered()],
        ("orphan_task", "t", 5, None),
    ),
    "a task whose runner failed and that nobody ended": (
        [*UP, task(), status("Failed"), LONG, gathered()],
        ("orphan_task", "t", 5, None),
    ),
    "a task on an instance that never was": ([*UP, task(instance_id="j")], ("orphan_task", "t", 4, None)),
    "a record of a node that is gone": (
        [joined("a"), joined("b"), download(), lost(), download(), LONG, gathered("b")],
        ("ghost_download", "a/tiny", 4, None),
    ),
    "facts of a node that is gone": ([joined("a"), joined("b"), lost(), gathered()], ("ghost_node", "a", 3, None)),
    "a connection to a node that is gone": (
        [joined("a"), joined("b"), lost("b"), edge(), LONG, gathered()],
        ("ghost_node", "b", 3, None),
    ),
}


@pytest.mark.parametrize(("log", "finding"), LASTING.values(), ids=LASTING)
def test_what_lasts_is_one_finding(log, finding):
    assert checked(*log) == [finding]


HARD = {
    "backwards": ([*UP, status("Idle")], ("illegal_transition", "i-0", 4, 4)),
    "to life": ([*UP, status("Failed"), status("Ready")], ("illegal_transition", "i-0", 5, 5)),
    "an older attempt": ([*UP, status("Ready", attempt=2), status("Ready")], ("attempt_regression", "i-0", 5, 5)),
    "a task that had ended": (
        [*UP, task(), ended(), ended(state=TaskStatus.RUNNING)],
        ("illegal_transition", "t", 6, 6),
    ),
    "over itself": ([*UP, placed()], ("overwritten_instance", "i", 4, 4)),
}


@pytest.mark.parametrize(("log", "finding"), HARD.values(), ids=HARD)
def test_a_wrong_event_is_a_finding_at_its_index(log, finding):
    findings = findings_of(*log)
    assert [(each.kind, each.id, each.since_index, each.until_index) for each in findings.in_order()] == [finding]
    assert findings.is_grave


HEALTHY = {
    "a delete, whose runners end after it": [
        *UP,
        task(),
        ended(state=TaskStatus.CANCELLED),
        deleted(),
        30,
        status("Shutdown"),
        LONG,
        gathered(),
    ],
    "a delete that the log ends behind": [*UP, deleted(), 59, gathered()],
    "a delete that the master finishes after it came back": [
        *UP,
        deleted(),
        86400,
        TermStarted(master="a", cluster_id="c"),
        35,
        status("Shutdown"),
        gathered(),
    ],
    "a lost node, in one batch": [*UP, lost(), status("Shutdown"), deleted()],
    "a chat told late, when its instance is gone": [
        *UP,
        deleted(),
        status("Shutdown"),
        task(),
        ended(),
        TaskDeleted(task_id="t"),
        LONG,
        gathered(),
    ],
    "reports that skip steps": [
        joined(),
        placed(),
        status("Idle"),
        status("Ready"),
        status("Ready"),
        status("Failed"),
        status("Shutdown"),
    ],
    "a new attempt": [*UP, status("Failed"), status("Idle", attempt=2), LONG, gathered()],
    "a restart": [*UP, status("ShuttingDown"), 8, status("Shutdown"), status("Idle", attempt=2), LONG, gathered()],
    "a node that comes back": [
        *UP,
        download(),
        lost(),
        status("Shutdown"),
        deleted(),
        LONG,
        joined(incarnation=2),
        download(),
        LONG,
        gathered(),
    ],
    "connections that end": [joined("a"), joined("b"), edge(), edge("b", "a"), lost("b"), LONG, gathered()],
}


@pytest.mark.parametrize("log", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_log_has_no_findings(log):
    assert checked(*log) == []


def test_what_was_late_is_over_and_fails_no_check():
    findings = findings_of(*UP, deleted(), LONG, gathered(), status("Shutdown"))
    (finding,) = findings.in_order()
    assert (finding.kind, finding.since_index, finding.until_index) == ("stale_runner", 4, 6)
    assert not findings.is_grave


def test_a_finding_says_which_events_name_it_why_and_what_to_run():
    findings = findings_of(*UP, status("Failed"), deleted(), LONG, gathered())
    assert findings.in_order()[0].item() == {
        "kind": "stale_runner",
        "id": "i-0",
        "since_index": 5,
        "until_index": None,
        "events": [2, 3, 4],
        "why": "runner i-0 is RunnerFailed since record 4, but its instance is gone; "
        "wrong since record 5 (InstanceDeleted)",
        "remedy": "exo runners forget i-0",
    }


def test_what_comes_back_has_its_past_with_it():
    (finding,) = findings_of(*UP, deleted(), status("Shutdown"), status("Idle")).in_order()
    assert finding.events == [2, 3, 5, 6]


def test_the_kind_follows_what_is_wrong_now():
    log = [*UP, status("ShuttingDown"), LONG, deleted(), LONG, gathered()]
    assert checked(*log) == [("overdue_runner", "i-0", 4, 5), ("stale_runner", "i-0", 5, None)]


def test_every_remedy_is_one_command_of_the_house():
    for log, _ in [*LASTING.values(), *HARD.values()]:
        for finding in findings_of(*log).in_order():
            assert finding.remedy.startswith("exo ")
            assert "{" not in finding.remedy


# Logs without times --------------------------------------------------------------------------------------------------

TIMELESS = {
    "a proper delete": ([*UP, deleted(), status("ShuttingDown"), status("Shutdown")], []),
    "a delete that is on its way": ([*UP, deleted(), status("ShuttingDown")], []),
    "another status instead": ([*UP, deleted(), status("Failed")], [("stale_runner", "i-0", 4, None)]),
    "another status after": (
        [*UP, deleted(), status("ShuttingDown"), status("Failed")],
        [("stale_runner", "i-0", 4, None)],
    ),
    "nothing more": ([*UP, deleted()], [("stale_runner", "i-0", 4, None)]),
    "a finding that mends": ([*UP, deleted(), status("Failed"), status("Shutdown")], [("stale_runner", "i-0", 4, 6)]),
    "asked to end at the end": ([*UP, status("ShuttingDown")], []),
    "an open task at the end": (
        [*UP, task(), deleted(), status("Shutdown")],
        [("orphan_task", "t", 5, None)],
    ),
    "a worker's task at the end": (
        [*UP, TaskCreated(task_id="t", task=Shutdown(instance_id="i", runner_id="i-0")), deleted(), status("Shutdown")],
        [],
    ),
    "a node known by its facts": ([gathered("a"), placed(), status("Idle", attempt=None)], []),
    "a process started again": (
        [joined(), placed(), status("Failed", attempt=None), status("Idle", attempt=None)],
        [],
    ),
}


@pytest.mark.parametrize(("log", "findings"), TIMELESS.values(), ids=TIMELESS)
def test_without_times_the_next_status_decides(log, findings):
    assert checked(*log, timed=False) == findings


# Where a log begins --------------------------------------------------------------------------------------------------


def test_what_was_wrong_before_the_log_has_its_deadline_from_its_first_record():
    base = State()
    findings_of(*UP, deleted(), state=base)
    assert checked(state=base) == []
    assert checked(gathered(), 59, gathered(), state=base) == []
    assert checked(gathered(), LONG, gathered(), state=base) == [("stale_runner", "i-0", 6, None)]


def test_another_state_ends_what_it_does_not_have():
    findings, state = Findings(), State()
    checks = Checks(state, findings)
    for index, event in enumerate([joined(), status("Ready", "x-0"), gathered("z")]):
        touched = checks.before(state, event, index, time_at(0))
        apply(state, a_record(event, index))
        checks.after(state, touched, event, index, time_at(0))
    assert len(findings.lasting) == 2
    checks.adopt(State(index=9))
    assert not findings.lasting
    assert [each.until_index for each in findings.in_order()] == [9, 9]


# Memory --------------------------------------------------------------------------------------------------------------


def test_findings_that_are_over_are_kept_up_to_a_number_and_counted_from_there():
    findings = findings_of(*UP, *[status("Idle"), status("Ready")] * (FINDINGS_KEPT + 5))
    assert len(findings.over) == FINDINGS_KEPT
    assert findings.left_out == 5
    assert findings.is_grave


def test_a_story_keeps_its_beginning_and_its_end():
    stories = Stories()
    for index in range(10_000):
        stories.add(("runner", "r"), index)
    story = stories.of(("runner", "r"))
    assert len(story) <= STORY_KEPT
    assert story[:16] == list(range(16))
    assert story[-32:] == list(range(10_000 - 32, 10_000))


def test_only_the_last_ended_stories_are_remembered():
    stories = Stories()
    for number in range(ENDED_KEPT + 10):
        stories.add(("task", str(number)), number)
        stories.end(("task", str(number)))
    assert stories.of(("task", "9")) == []
    assert stories.of(("task", "10")) == [10]
    stories.add(("task", "10"), 5000)
    assert stories.of(("task", "10")) == [10, 5000]


# Laws ----------------------------------------------------------------------------------------------------------------

NODES, INSTANCES = ("a", "b"), ("i", "j")
STATUSES = ("Idle", "Loading", "Ready", "Failed", "ShuttingDown", "Shutdown")
RUNNERS = st.sampled_from([f"{each}-{rank}" for each in INSTANCES for rank in range(2)])
TASKS = st.sampled_from(["t", "u"])
ANY_EVENT = st.one_of(
    st.builds(joined, st.sampled_from(NODES)),
    st.builds(gathered, st.sampled_from(NODES)),
    st.builds(lost, st.sampled_from(NODES)),
    st.builds(placed, st.sampled_from(INSTANCES), st.sampled_from([("a",), ("b",), ("a", "b"), ("b", "a")])),
    st.builds(deleted, st.sampled_from(INSTANCES)),
    st.builds(status, st.sampled_from(STATUSES), RUNNERS, st.sampled_from([None, 1, 2])),
    st.builds(task, TASKS, st.sampled_from([*INSTANCES, "k"]), st.sampled_from(list(TaskStatus))),
    st.builds(ended, TASKS, st.sampled_from(list(TaskStatus))),
    st.builds(TaskDeleted, task_id=TASKS),
    st.builds(TaskCreated, task_id=TASKS, task=st.builds(CreateRunner, instance_id=st.sampled_from(INSTANCES))),
    st.builds(download, st.sampled_from(NODES), st.sampled_from(["Ongoing", "Completed"])),
    st.builds(
        edge,
        st.sampled_from(NODES),
        st.sampled_from(NODES),
        st.sampled_from([TopologyEdgeCreated, TopologyEdgeDeleted]),
    ),
)


@settings(max_examples=150, deadline=None, database=None)
@given(st.lists(ANY_EVENT | st.integers(1, 90), max_size=40), st.booleans())
def test_what_is_touched_and_the_full_scan_agree_after_every_event(log, timed):
    state = State()
    findings = findings_of(*log, timed=timed, state=state)
    of_the_state = {key for key in findings.lasting if key in broken(state)}
    by_facts_alone = {key for key in findings.lasting if key[0] == "ghost_node"}
    assert set(findings.lasting) <= of_the_state | by_facts_alone, "only what is still wrong lasts"
    links, read = Links(State()), Links(state)
    follow = State()
    for event in log:
        if not isinstance(event, int):
            links.follow(follow, event)
            fold_event(follow, event, 0, None)
    assert links.tasks_of == read.tasks_of
    assert links.runners_on == read.runners_on


SOME = "i-which"
REPORTS = st.builds(
    lambda rank, node, attempt, name: intents.ReportRunner(
        node_id=node, runner_id=f"{SOME}-{rank}", attempt=attempt, status=a_status(name)
    ),
    st.integers(0, 1),
    st.sampled_from(NODES),
    st.integers(1, 3),
    st.sampled_from([*STATUSES, "Ready", "Running"]),
)
WISHES = st.one_of(
    st.builds(lambda new: a_wish(new=new, min_nodes=1 + new), st.booleans()),
    st.just(intents.DeleteInstance(instance_id=SOME)),
    st.just(intents.RestartInstance(instance_id=SOME)),
    st.builds(
        lambda node, incarnation: intents.ReportNode(node_id=node, incarnation=incarnation, facts=a_node(node)),
        st.sampled_from(NODES),
        st.integers(1, 3),
    ),
    st.builds(lambda node: intents.ReportSilence(node_id=node), st.sampled_from(NODES)),
    st.builds(lambda node: intents.ReportDownload(progress=a_download(node)), st.sampled_from(NODES)),
    st.builds(
        lambda task_id, state, begins, ends: intents.ReportTask(
            task=a_task(task_id, SOME, state), begins=begins, ends=ends
        ),
        TASKS,
        st.sampled_from([TaskStatus.COMPLETE, TaskStatus.FAILED]),
        st.booleans(),
        st.booleans(),
    ),
)


@settings(max_examples=80, deadline=None, database=None)
@given(st.lists(st.tuples(REPORTS, REPORTS, WISHES, st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=40))
def test_no_log_of_our_decider_has_findings(steps):
    state, findings, numbers = State(), Findings(), count()
    checks = Checks(state, findings)
    seconds, since = 0.0, {}

    def say(command):
        decision = decide(state, command, f"c-{next(numbers)}")
        for event in () if isinstance(decision, Refused) else decision:
            record = a_record(event, state.index + 1, seconds=seconds)
            touched = checks.before(state, event, record.index, record.at)
            apply(state, record)
            checks.after(state, touched, event, record.index, record.at)

    for node in NODES:
        say(intents.ReportNode(node_id=node, incarnation=1, facts=a_node(node)))
    say(a_wish(min_nodes=2))
    for *commands, pause, pick in steps:
        seconds += pause
        # What the master and the supervisors see to: nothing stays on its way out for ever.
        going = {each for _, each in broken(state) if each in state.runners}
        since = {each: since.get(each, seconds) for each in going}
        for each, began in list(since.items()):
            if seconds - began > SETTLE_SECONDS and each in state.runners:
                instance = state.instance_of_runner(each)
                if instance is None:
                    say(intents.ForgetRunner(runner_id=each))
                else:
                    node_id, attempt = instance.shard_of(each).node_id, state.runners[each].attempt
                    say(
                        intents.ReportRunner(
                            node_id=node_id, runner_id=each, attempt=attempt, status=a_status("Shutdown")
                        )
                    )
        for command in commands:
            say(aimed(command, state, pick))
        assert not [each.item() for each in findings.in_order()]


def aimed(command, state, pick):
    """The command, for an instance that is or was there instead of SOME; a runner mostly reports from its own node."""
    known = [*state.instances, *state.instances, *state.past_instances] or ["i-none"]
    plain = type(command).model_validate_json(command.model_dump_json().replace(SOME, known[pick % len(known)]))
    if not isinstance(plain, intents.ReportRunner) or pick == 9:
        return plain
    instance = state.instance_of_runner(plain.runner_id)
    return plain.model_copy(update={"node_id": instance.shard_of(plain.runner_id).node_id}) if instance else plain


def test_the_master_settles_before_the_deadline():
    assert SETTLED.total_seconds() >= SETTLE_SECONDS * 2


def test_every_rule_can_be_found_by_a_table_above():
    assert {rule.kind for rule in RULES} <= {kind for _, (kind, *_) in LASTING.values()}
