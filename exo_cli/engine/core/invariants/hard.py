"""The hard rules: which events, and which places in the log, are wrong in the state that they meet. See the package."""

from typing import NamedTuple

from exo_cli.engine.core.events import Event, InstanceCreated, Record, RunnerStatusUpdated, TaskStatusUpdated
from exo_cli.engine.core.invariants.findings import Finding, Key
from exo_cli.engine.core.runners import RunnerFailed, RunnerIdle, may_follow
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import OPEN


class Wrong(NamedTuple):
    """A hard rule's verdict: the kind, what it is about, a sentence, and what to run."""

    kind: str
    about: Key
    why: str
    remedy: str


# The types of event that can be wrong.
JUDGED = frozenset({RunnerStatusUpdated, TaskStatusUpdated, InstanceCreated})


def wrong(state: State, event: Event) -> Wrong | None:
    """Why this event should not have happened in this state."""
    if type(event) is RunnerStatusUpdated:
        return _wrong_status(state, event)
    if isinstance(event, TaskStatusUpdated) and (task := state.tasks.get(event.task_id)) is not None:
        if task.task_status in OPEN or event.task_status not in OPEN:
            return None
        why = f"{event.task_status} cannot follow {task.task_status}"
        return Wrong("illegal_transition", ("task", event.task_id), why, "exo node list")
    if isinstance(event, InstanceCreated) and (known := event.instance.instance_id) in state.instances:
        why = f"instance {known} was created while it was there"
        return Wrong("overwritten_instance", ("instance", known), why, f"exo delete {known}")
    return None


def _wrong_status(state: State, event: RunnerStatusUpdated) -> Wrong | None:
    known = state.runners.get(event.runner_id)
    if known is None:
        return None
    earlier, later = known.status.type, event.runner_status.type
    if known.attempt == event.attempt or known.attempt is None or event.attempt is None:
        if may_follow(earlier, later) or known.status == event.runner_status:
            return None
        # Where attempts have no numbers, only this tells that a process was started again.
        if event.attempt is None and type(known.status) is RunnerFailed and type(event.runner_status) is RunnerIdle:
            return None
        kind, why = "illegal_transition", f"{later} cannot follow {earlier} in one attempt"
    elif event.attempt > known.attempt:
        return None
    else:
        why = f"{later} of attempt {event.attempt} came after {earlier} of attempt {known.attempt}"
        kind = "attempt_regression"
    return Wrong(kind, ("runner", event.runner_id), why, f"exo runners restart {event.runner_id}")


def misplaced(state: State, record: Record) -> list[Finding]:
    """What is wrong with the place of a record behind this state: the order of indexes, of terms."""
    found: list[Finding] = []
    if record.index != state.index + 1:
        found.append(gap(record.index, state.index, f"record {record.index} came"))
    if record.term < state.term:
        why = f"record {record.index} has term {record.term}, after term {state.term}"
        found.append(at_point("term_regression", record.index, why, "exo node list"))
    return found


def gap(index: int, last_index: int, what: str) -> Finding:
    """The log goes on at another index than the next one."""
    why = f"{what} where {last_index + 1} belongs"
    if index > last_index + 1:
        missing = (
            f"record {index - 1} is" if index == last_index + 2 else f"records {last_index + 1} to {index - 1} are"
        )
        why = f"{what} after record {last_index}: {missing} missing" if last_index >= 0 else f"{missing} missing"
    return at_point("index_gap", index, why, "exo node list")


def at_point(kind: str, index: int, why: str, remedy: str) -> Finding:
    """A finding about the log itself, at one index."""
    return Finding(kind, "log", index, why, remedy, until_index=index, events=[index])
