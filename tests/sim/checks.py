"""What must hold of a cluster that was left in peace: one history, everything answered, nothing stale, all at rest."""

from collections import Counter

from exo_cli.engine.core.events import (
    Event,
    InstanceCreated,
    InstanceDeleted,
    Record,
    TaskCreated,
    TaskStatusUpdated,
    TermStarted,
)
from exo_cli.engine.core.intents import DeleteInstance, PlaceInstance
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.runners import SERVING
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import State, load
from exo_cli.engine.core.tasks import OPEN
from exo_cli.engine.core.wire import decode_line
from tests.sim.load import Clients
from tests.sim.shell import Shell
from tests.sim.world import World


def check_all(world: World, clients: Clients) -> None:
    """Everything below, in this order."""
    events = one_history(world)
    every_answer_is_true(world, clients, events)
    tasks_end_once(world, events)
    nothing_is_stale(world)
    everything_is_served(world)
    nobody_waits(world)


def one_history(world: World) -> list[Event]:
    """All nodes hold the master's log and state; the log begins at 0, has no gap, and folds to that state."""
    master = next(iter(world.shells.values()))
    if not master.replica.is_master or master.disk.base_index != -1:
        world.fail("the first node is not the master of a log from 0")
    records = [decode_line(line) for line in master.disk.lines]
    state, events, term = State(), list[Event](), 0
    for index, record in enumerate(records):
        assert isinstance(record, Record)
        if record.index != index or record.term < term:
            world.fail(f"record {record.index} of term {record.term} stands at {index} behind term {term}")
        if (record.term > term) != isinstance(record.event, TermStarted):
            world.fail(f"record {index} of term {record.term} behind term {term} is a {record.event.type}")
        term = record.term
        apply(state, record)
        events.append(record.event)
        if index == len(records) // 2 and load(state.dump()).hash() != state.hash():
            world.fail(f"the snapshot at {index} is not the state")
    want = state.hash()
    for shell in world.shells.values():
        mine = shell.replica.state
        if mine.index != state.index:
            world.fail(f"{shell.name} has {mine.index} of {state.index} records ({shell.replica.follower.link})")
        if mine.hash() != want or shell.disk.fold().hash() != want:
            world.fail(f"{shell.name} has another state at {mine.index}")
    return events


def every_answer_is_true(world: World, clients: Clients, events: list[Event]) -> None:
    """Each command got its answer, and what was acknowledged is in the log exactly once."""
    created = Counter(each.instance.instance_id for each in events if isinstance(each, InstanceCreated))
    deleted = Counter(each.instance_id for each in events if isinstance(each, InstanceDeleted))
    for name, count in [*created.items(), *deleted.items()]:
        if count != 1:
            world.fail(f"instance {name} is created or deleted {count} times")
    for command_id, command in clients.commands.items():
        answer = clients.answers.get(command_id)
        if answer is None:
            world.fail(f"{command_id} has no answer")
        elif answer.status == "committed":
            if isinstance(command, PlaceInstance) and answer.subject not in created:
                world.fail(f"{command_id} placed {answer.subject}, which is not in the log")
            if isinstance(command, DeleteInstance) and command.instance_id not in deleted:
                world.fail(f"{command_id} deleted {command.instance_id}, which is not in the log")


def tasks_end_once(world: World, events: list[Event]) -> None:
    """Each task of the log is created once and has exactly one terminal status."""
    began = Counter(each.task_id for each in events if isinstance(each, TaskCreated))
    ended = Counter(
        each.task_id for each in events if isinstance(each, TaskStatusUpdated) and each.task_status not in OPEN
    )
    if set(began.values()) - {1} or set(ended.values()) - {1} or began.keys() != ended.keys():
        wrong = {each for each in began.keys() | ended.keys() if (began[each], ended[each]) != (1, 1)}
        world.fail(f"tasks without one beginning and one end: {sorted(wrong)}")


def nothing_is_stale(world: World) -> None:
    """No runner without its instance and its node, no task, no node that is gone; processes as the state says."""
    state = next(iter(world.shells.values())).replica.state
    if set(state.nodes) != set(world.shells):
        world.fail(f"the state knows the nodes {sorted(state.nodes)}")
    if state.tasks:
        world.fail(f"tasks are left: {sorted(state.tasks)}")
    for runner_id, runner in state.runners.items():
        instance = state.instance_of_runner(runner_id)
        if instance is None:
            world.fail(f"runner {runner_id} is {runner.status.type} without an instance")
    for shell in world.shells.values():
        for process in shell.hands.processes.values():
            told = state.runners.get(process.runner_id)
            if told is None or told.status.type != f"Runner{process.status}" or told.attempt != process.attempt:
                world.fail(f"{process.runner_id}@{process.attempt} is {process.status}, the state says {told}")
    listed = {each for shell in world.shells.values() for each in shell.hands.processes}
    for runner_id, runner in state.runners.items():
        if runner_id not in listed and runner.status.type != "RunnerFailed":
            world.fail(f"runner {runner_id} is {runner.status.type} without a process")


def everything_is_served(world: World) -> None:
    """What is placed is ready, or its failure is final and to be seen."""
    state = next(iter(world.shells.values())).replica.state
    for instance in state.instances.values():
        statuses = [state.runners[each].status.type if each in state.runners else None for each in instance.runner_ids]
        if not _is_settled(state, instance, statuses):
            world.fail(f"instance {instance.instance_id} ({instance.model_card.model_id}) is {statuses}")


def _is_settled(state: State, instance: Instance, statuses: list[str | None]) -> bool:
    model_id = instance.model_card.model_id
    failures = state.failures.get(instance.instance_id)
    if model_id == "bad-download":
        return all(status in {"RunnerIdle", "RunnerConnected"} for status in statuses)
    if model_id == "bad-load":
        seen = [status for status in statuses if status is not None]
        return failures is not None and failures.terminal and seen == ["RunnerFailed"]
    return all(status in SERVING for status in statuses)


def nobody_waits(world: World) -> None:
    """No question, report or chat is left over anywhere."""
    for shell in world.shells.values():
        replica = shell.replica
        if replica.follower.outbox or replica.consensus.tail or replica.tending.admitted:
            world.fail(f"{shell.name} still has {replica.follower.outbox} {replica.tending.admitted}")
        if leftover := waiting(shell):
            world.fail(f"{shell.name} still waits: {leftover}")
        if len(replica.follower._asked) > 1:
            world.fail(f"{shell.name} forgot questions: {replica.follower._asked}")


def waiting(shell: Shell) -> list[object]:
    """Who waits for an answer of a node."""
    return list(shell.replica.mastery._waiting)
