"""Laws of the core, over any events and any commands: folding, deciding and planning are functions and nothing else."""

from dataclasses import fields

from hypothesis import given, settings
from hypothesis import strategies as st

from exo_cli.engine.core import intents
from exo_cli.engine.core.decider import decide
from exo_cli.engine.core.errors import Refused
from exo_cli.engine.core.events import (
    InstanceCreated,
    InstanceDeleted,
    NodeJoined,
    Record,
    RunnerStatusUpdated,
    TaskCreated,
    TaskDeleted,
    TaskStatusUpdated,
)
from exo_cli.engine.core.planner import plan
from exo_cli.engine.core.reducer import applied, apply
from exo_cli.engine.core.runners import RunnerFailed, RunnerShutdown, may_follow
from exo_cli.engine.core.state import State, load
from exo_cli.engine.core.tasks import OPEN
from exo_cli.engine.core.tending import Tending
from exo_cli.engine.core.wire import decode_line, encode_record
from tests.builders import a_card, a_download, a_local, a_node, a_record, a_state, a_wish
from tests.strategies import EVENTS, FACTS, INSTANCE, LOGS, MODELS, NODE, NODES, PLACED, PROGRESS, RUNNER, STATUS, TASK

COMMANDS = st.one_of(
    st.builds(
        a_wish,
        st.sampled_from([a_card(each) for each in MODELS]),
        new=st.booleans(),
        min_nodes=st.integers(1, 2),
        nodes=st.sampled_from([(), (), ("a",), ("c", "b")]),
    ),
    st.builds(intents.DeleteInstance, instance_id=INSTANCE),
    st.builds(intents.RestartInstance, instance_id=INSTANCE),
    st.builds(intents.ForgetRunner, runner_id=RUNNER),
    st.builds(intents.ReportNode, node_id=NODE, incarnation=st.integers(0, 3), facts=FACTS),
    st.builds(intents.ReportSilence, node_id=NODE),
    st.builds(intents.ReportRunner, node_id=NODE, runner_id=RUNNER, attempt=st.integers(0, 3), status=STATUS),
    st.builds(intents.ReportDownload, progress=PROGRESS),
    st.builds(intents.ReportTask, task=TASK, begins=st.booleans(), ends=st.booleans()),
)
quick = settings(max_examples=60, deadline=None)


def fold(records: list[Record], state: State | None = None) -> State:
    state = state or State()
    for record in records:
        apply(state, record)
    return state


def same(one: State, other: State) -> bool:
    """Equal in every field, and in the order of every map."""
    pairs = [(getattr(one, each.name), getattr(other, each.name)) for each in fields(State)]
    return all(a == b and (not isinstance(a, dict) or list(a) == list(b)) for a, b in pairs)


def resolved(state: State, command: intents.Command, pick: int) -> intents.Command:
    """Commands name `i` and `j`; let them mean what the state has, so that they often hit."""
    known = [*state.instances, *state.past_instances]
    if not known:
        return command
    chosen = known[pick % len(known)]
    named = {"instance_id": chosen, "runner_id": f"{chosen}-{pick % 2}"}
    told = {name: value for name, value in named.items() if hasattr(command, name)}
    if isinstance(command, intents.ReportTask):
        told = {"task": command.task.model_copy(update={"instance_id": chosen})}
    return command.model_copy(update=told)


# Folding -------------------------------------------------------------------------------------------------------------


@quick
@given(LOGS, st.integers(0, 25))
def test_a_prefix_and_then_the_rest_is_the_whole(records, cut):
    assert same(fold(records[cut:], fold(records[:cut])), fold(records))


@quick
@given(LOGS, st.integers(0, 25))
def test_a_snapshot_and_the_tail_is_the_whole(records, cut):
    snapshot = load(fold(records[:cut]).dump())
    assert fold(records[cut:], snapshot).hash() == fold(records).hash()


@quick
@given(LOGS)
def test_dump_and_load_keep_everything_and_the_hash(records):
    state = fold(records)
    again = load(state.dump())
    assert same(again, state)
    assert again.hash() == state.hash() == state.copy().hash()
    assert again.dump() == state.dump()


@quick
@given(LOGS)
def test_what_is_written_folds_as_what_was_said(records):
    read = [decode_line(encode_record(record)) for record in records]
    assert same(fold([each for each in read if isinstance(each, Record)]), fold(records))


@quick
@given(LOGS)
def test_applied_leaves_its_input_alone(records):
    state = State()
    for record in records:
        before, copied = state.dump(), state.copy()
        after = applied(state, record)
        assert state.dump() == before
        apply(copied, record)
        assert same(copied, after)
        state = after


@quick
@given(LOGS, EVENTS)
def test_an_event_twice_changes_nothing_more(records, event):
    """What an event says is so, not how it changed. Failures alone count, which the sequencer never lets in twice."""
    once = applied(fold(records), a_record(event, 100))
    twice = applied(once, a_record(event, 100))
    is_failure = isinstance(event, RunnerStatusUpdated) and isinstance(event.runner_status, RunnerFailed)
    if not is_failure:
        assert same(once, twice)


@quick
@given(LOGS)
def test_the_hash_does_not_hang_on_clocks(records):
    shifted = [each.model_copy(update={"at": each.at.replace(year=2031)}) for each in records]
    assert fold(records).hash() == fold(shifted).hash()


# Deciding ------------------------------------------------------------------------------------------------------------


@quick
@given(LOGS, COMMANDS, st.integers(0, 7))
def test_deciding_is_a_function_and_leaves_the_state_alone(records, command, pick):
    state = fold(records)
    command, before = resolved(state, command, pick), state.dump()
    first = decide(state, command, "c")
    assert first == decide(load(state.dump()), command, "c")
    assert state.dump() == before
    if isinstance(first, Refused):
        assert first.reason
        assert first.code


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(COMMANDS, st.integers(0, 7)), max_size=30))
def test_what_is_decided_never_makes_stale_state(commands):
    """From an empty cluster on, whatever is asked: only legal steps, and everything refers to something that is."""
    state = fold(
        [a_record(NodeJoined(node_id=each, facts=a_node(each), incarnation=0), at) for at, each in enumerate("ab")]
    )
    terminal: dict[str, int] = {}
    for number, (command, pick) in enumerate(commands):
        decision = decide(state, resolved(state, command, pick), f"c{number}")
        for event in () if isinstance(decision, Refused) else decision:
            _is_legal(state, event)
            if isinstance(event, TaskStatusUpdated) and event.task_status not in OPEN:
                terminal[event.task_id] = terminal.get(event.task_id, 0) + 1
            if isinstance(event, TaskCreated):
                terminal[event.task_id] = 0
            state = applied(state, a_record(event, state.index + 1))
        assert all(count <= 1 for count in terminal.values())
        assert all(set(each.node_ids) <= state.nodes.keys() for each in state.instances.values())
        assert state.failures.keys() <= state.instances.keys()
        assert state.downloads.keys() <= state.nodes.keys()
        open_tasks = [each for each in state.tasks.values() if each.task_status in OPEN]
        assert all(each.instance_id in state.instances for each in open_tasks)


def _is_legal(state: State, event: object) -> None:
    match event:
        case RunnerStatusUpdated():
            known = state.runners.get(event.runner_id)
            if isinstance(event.runner_status, RunnerShutdown):
                assert known is not None
                return
            assert state.instance_of_runner(event.runner_id) is not None
            if known is not None and known.attempt == event.attempt:
                assert may_follow(known.status.type, event.runner_status.type)
            elif known is not None and known.attempt is not None and event.attempt is not None:
                assert event.attempt > known.attempt
        case InstanceCreated():
            assert event.instance.instance_id not in state.instances
            assert event.instance.instance_id not in state.past_instances
        case InstanceDeleted():
            assert event.instance_id in state.instances
        case TaskCreated():
            assert event.task_id not in state.tasks
        case TaskStatusUpdated() | TaskDeleted():
            assert event.task_id in state.tasks
        case _:
            pass


@quick
@given(LOGS, COMMANDS, st.integers(0, 7))
def test_a_report_that_is_in_the_log_is_no_news(records, command, pick):
    """Deciding the same report again gives nothing more, or a refusal; never a second record."""
    state = fold(records)
    command = resolved(state, command, pick)
    if isinstance(command, intents.PlaceInstance | intents.ReportTask | intents.RestartInstance):
        return  # these are remembered by their id
    decision = decide(state, command, "c")
    if isinstance(decision, Refused):
        return
    for event in decision:
        state = applied(state, a_record(event, state.index + 1))
    again = decide(state, command, "c")
    assert isinstance(again, Refused) or again == ()


# Planning ------------------------------------------------------------------------------------------------------------


@quick
@given(LOGS, NODE, st.floats(0, 100))
def test_the_planner_comes_to_rest_on_any_state(records, node_id, now):
    """Whatever the state, a step asks for finitely many actions, each once, and leaves the state alone."""
    state = fold(records)
    before, tending = state.dump(), Tending(node_id)
    actions = []
    for action in tending.actions(state, now):
        actions.append(action)
        assert len(actions) < 20
    assert list(tending.actions(state, now)) == []
    assert state.dump() == before
    assert all(each.type == "CreateRunner" for each in actions)


@quick
@given(st.lists(PLACED, max_size=2, unique_by=lambda each: each.instance_id))
def test_the_planner_is_idle_when_all_is_ready(instances):
    state = a_state(
        instances=instances,
        runners={each: "Ready" for instance in instances for each in instance.runner_ids},
        downloads=[a_download(node_id, model_id) for node_id in NODES for model_id in MODELS],
    )
    for node_id in NODES:
        mine = [shard.runner_id for each in instances if (shard := each.shard_on(node_id))]
        assert plan(a_local(node_id, state, dict.fromkeys(mine, "Ready")), state, {}, 0.0) is None
