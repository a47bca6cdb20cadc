"""The log of a real node through all that can happen to it: nothing is found in it, and what is spliced in is."""

from datetime import timedelta

import pytest

from exo_cli.engine.core.events import (
    InstanceCreated,
    InstanceDeleted,
    NodeGatheredInfo,
    NodeJoined,
    NodeTimedOut,
    Record,
    RunnerStatusUpdated,
    TaskCreated,
)
from exo_cli.engine.core.tasks import TaskStatus
from exo_cli.engine.core.wire import decode_line, encode_record
from exo_cli.engine.log.scan import scan
from exo_cli.engine.replaying import replay
from tests.builders import a_node, a_status, a_task, an_instance
from tests.e2e.cluster import wait_until


@pytest.fixture(scope="module")
def home(new_home, script):
    """A node that placed, answered, lost a runner, was killed, came back, and deleted."""
    home = new_home()
    engine = script('token "a"')
    home.start(engine=engine, name="own")
    instance_id = home.place("tiny", engine)
    home.exo("chat", "-m", "tiny", "hello", "--no-stdin").ok()
    [process] = home.runner_processes()
    process.kill()
    wait_until(lambda: home.runner_processes() not in ([], [process]), "another process")
    wait_until(lambda: is_ready(home), "a runner that is ready again", 20)
    home.exo("chat", "-m", "tiny", "hello again", "--no-stdin").ok()
    home.kill()
    home.start(engine=engine, name="own")
    wait_until(lambda: is_ready(home), "a runner that is ready after the restart", 20)
    home.delete(instance_id)
    home.stop()
    home.start(engine=engine, name="own")
    home.delete(home.place("tiny", engine))
    home.stop()
    return home


def is_ready(home):
    return [each["status"] for each in home.runners()] == ["RunnerReady"]


@pytest.fixture(scope="module")
def lines(home):
    """The header and the records of its log."""
    seen = [each.line for each in scan(home.paths.log)]
    return seen[0], [each for each in seen if isinstance(each, Record)]


def found(path):
    answer = replay(str(path), check=True)
    kinds = [(each["kind"], each["id"], each["since_index"]) for each in answer["item"]["findings"]]
    return kinds, answer["exit_code"]


def test_nothing_is_found_in_it(home, lines):
    assert found(home.path) == ([], 0)
    _, records = lines
    assert {"InstanceCreated", "RunnerStatusUpdated", "TaskCreated", "InstanceDeleted"} <= {
        each.event.type for each in records
    }
    assert any(each.event.runner_status.type == "RunnerFailed" for each in records if is_status(each))
    checked = home.exo("replay", home.path, "--check", "--strict")
    checked.ok()


def is_status(record):
    return isinstance(record.event, RunnerStatusUpdated)


# What is spliced in --------------------------------------------------------------------------------------------------


def behind(records, *events):
    """The records, and behind them some events; a number lets so many seconds pass."""
    result, at = list(records), records[-1].at
    for event in events:
        if isinstance(event, int):
            at += timedelta(seconds=event)
        else:
            result.append(records[-1].model_copy(update={"index": result[-1].index + 1, "at": at, "event": event}))
    return result


def a_late_status(records):
    first = next(each.event for each in records if is_status(each))
    late = RunnerStatusUpdated(runner_id=first.runner_id, runner_status=a_status("Idle"), attempt=99)
    return behind(records, late), [("stale_runner", first.runner_id, records[-1].index + 1)]


def a_lost_node_without_clean_up(records):
    events = [
        NodeJoined(node_id="ghost", facts=a_node("ghost"), incarnation=1),
        InstanceCreated(instance=an_instance("i-spliced", ("ghost",))),
        RunnerStatusUpdated(runner_id="i-spliced-0", runner_status=a_status("Ready"), attempt=1),
        NodeTimedOut(node_id="ghost"),
        InstanceDeleted(instance_id="i-spliced"),
    ]
    return behind(records, *events, 61, facts(records)), [("stale_runner", "i-spliced-0", records[-1].index + 4)]


def an_orphan_task(records):
    placed = next(each.event.instance for each in records if isinstance(each.event, InstanceCreated))
    task = a_task("t-spliced", placed.instance_id, TaskStatus.RUNNING)
    created = TaskCreated(task_id="t-spliced", task=task)
    return behind(records, created, 61, facts(records)), [("orphan_task", "t-spliced", records[-1].index + 1)]


def facts(records):
    joined = next(each.event for each in records if isinstance(each.event, NodeJoined))
    return NodeGatheredInfo(node_id=joined.node_id, facts=joined.facts)


def an_index_gap(records):
    index = records[-1].index + 3
    return [*records[:-1], records[-1].model_copy(update={"index": index})], [("index_gap", "log", index)]


def an_older_term(records):
    last = records[-1]
    assert last.term > 0
    older = last.model_copy(update={"index": last.index + 1, "term": last.term - 1, "event": facts(records)})
    return [*records, older], [("term_regression", "log", last.index + 1)]


def an_illegal_transition(records):
    ready = next(each for each in records if is_status(each) and each.event.runner_status.type == "RunnerReady")
    place = records.index(ready) + 1
    wrong = ready.event.model_copy(update={"runner_status": a_status("Loading")})
    moved = [each.model_copy(update={"index": each.index + 1}) for each in records[place:]]
    spliced = ready.model_copy(update={"index": ready.index + 1, "event": wrong})
    return [*records[:place], spliced, *moved], [("illegal_transition", ready.event.runner_id, spliced.index)]


@pytest.mark.parametrize(
    "splice",
    [a_late_status, a_lost_node_without_clean_up, an_orphan_task, an_index_gap, an_older_term, an_illegal_transition],
)
def test_what_is_spliced_in_is_exactly_what_is_found(tmp_path, home, lines, splice):
    _, records = lines
    first = next(iter(sorted(home.paths.log.glob("*.log")))).read_bytes().splitlines(keepends=True)[0]
    assert decode_line(first).base_index == -1
    spliced, expected = splice(records)
    (tmp_path / "spliced.log").write_bytes(first + b"".join(map(encode_record, spliced)))
    assert found(tmp_path / "spliced.log") == (expected, 1)
