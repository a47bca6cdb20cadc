"""The watch: silence while something is owed, counted in ticks; progress of any kind begins it anew."""

import pytest

from exo_cli.engine.core.runners import (
    RunnerConnected,
    RunnerConnecting,
    RunnerIdle,
    RunnerLoaded,
    RunnerLoading,
    RunnerReady,
    RunnerRunning,
    RunnerWarmingUp,
)
from exo_cli.engine.core.tasks import ChatMessage, ChatParams
from exo_cli.engine.runner.frames import Assign, Connect, Done, Generate, Load, Memory, StatusReport, Step, Warmup
from exo_cli.engine.runner.watch import Patience, Watch
from tests.builders import an_instance

PARAMS = ChatParams(messages=(ChatMessage(role="user", content="hi"),))
PATIENCE = Patience(1, 2, 3, 4, 5, 6, 7)
ASSIGN = Assign(instance=an_instance(), runner_id="i-0", threads=1)


def silence(watch, *, most=50):
    """How many ticks of a second it takes, and what is said then."""
    for second in range(1, most + 1):
        if (fault := watch.passed(1.0)) is not None:
            return second, fault
    return None


@pytest.mark.parametrize(
    ("order", "seconds", "doing", "progress", "end"),
    [
        (ASSIGN, 1, "starting", None, RunnerIdle()),
        (Connect(ring=("a:1", "b:1")), 2, "connecting to its group", RunnerConnecting(), RunnerConnected()),
        (Load(model_path="m"), 3, "loading", RunnerLoading(layers_loaded=1, total_layers=2), RunnerLoaded()),
        (Warmup(), 4, "warming up", RunnerWarmingUp(), RunnerReady()),
    ],
)
def test_each_step_of_coming_up_has_its_patience(order, seconds, doing, progress, end):
    watch = Watch(PATIENCE)
    assert silence(watch) is None
    watch.ordered(order)
    assert silence(watch) == (seconds, f"no progress for {seconds} s while {doing}")
    watch = Watch(PATIENCE)
    watch.ordered(order)
    for _ in range(10):
        assert silence(watch, most=seconds - 1) is None
        if progress is None:
            break
        watch.heard(StatusReport(status=progress))
    watch.heard(StatusReport(status=end))
    assert silence(watch) is None


def test_a_prompt_and_a_token_have_theirs():
    watch = Watch(PATIENCE)
    watch.ordered(Generate(task_id="t", params=PARAMS))
    assert silence(watch) == (5, "no progress for 5 s while reading a prompt")
    watch.heard(Step(tokens=0))
    assert silence(watch, most=4) is None
    watch.heard(Step(tokens=1))
    assert silence(watch) == (6, "no progress for 6 s while decoding")
    watch.heard(Done(task_id="t", reason="stop"))
    assert silence(watch) is None


def test_who_waits_in_line_does_not_begin_it_anew():
    watch = Watch(PATIENCE)
    watch.ordered(Generate(task_id="t", params=PARAMS))
    assert silence(watch, most=4) is None
    watch.ordered(Generate(task_id="u", params=PARAMS))
    assert silence(watch) == (1, "no progress for 5 s while reading a prompt")
    watch.heard(Done(task_id="t", reason="stop"))
    assert silence(watch) == (5, "no progress for 5 s while reading a prompt")


def test_who_is_refused_in_line_is_no_sign_of_the_one_at_work():
    watch = Watch(PATIENCE)
    watch.ordered(Generate(task_id="t", params=PARAMS))
    watch.heard(Step(tokens=1))
    for number in range(5):
        watch.ordered(Generate(task_id=f"u{number}", params=PARAMS))
        watch.heard(Done(task_id=f"u{number}", reason="error", code="busy"))
        assert watch.passed(1.0) is None
    assert watch.passed(1.0) == "no progress for 6 s while decoding"


@pytest.mark.parametrize(("runner_id", "expected"), [("i-0", 5), ("i-1", None)])
def test_other_ranks_follow_in_silence(runner_id, expected):
    watch = Watch(PATIENCE)
    watch.ordered(Assign(instance=an_instance("i", ("a", "b")), runner_id=runner_id, threads=1))
    watch.heard(StatusReport(status=RunnerIdle()))
    watch.ordered(Generate(task_id="t", params=None))
    assert (silence(watch) or (None,))[0] == expected


@pytest.mark.parametrize(("runner_id", "working"), [("i-0", "reading a prompt"), ("i-1", None)])
def test_who_is_ready_takes_a_request_up_whatever_its_rank(runner_id, working):
    watch = Watch(PATIENCE)
    watch.ordered(Assign(instance=an_instance("i", ("a", "b")), runner_id=runner_id, threads=1))
    watch.heard(StatusReport(status=RunnerIdle()))
    watch.heard(StatusReport(status=RunnerReady()))
    assert silence(watch) is None
    watch.ordered(Generate(task_id="t", params=PARAMS))
    watch.heard(Memory(resident_bytes=1))
    assert silence(watch, most=4) is None
    watch.ordered(Generate(task_id="u", params=PARAMS))
    assert silence(watch) == (3, "no progress for 7 s while taking up a request")
    watch.heard(StatusReport(status=RunnerRunning()))
    assert (silence(watch) or (0, ""))[1].partition("while ")[2] == (working or "")


def test_a_request_behind_another_is_taken_up_without_a_word():
    watch = Watch(PATIENCE)
    watch.heard(StatusReport(status=RunnerReady()))
    watch.ordered(Generate(task_id="t", params=PARAMS))
    watch.heard(StatusReport(status=RunnerRunning()))
    watch.ordered(Generate(task_id="u", params=PARAMS))
    watch.heard(Done(task_id="t", reason="stop"))
    assert silence(watch) == (5, "no progress for 5 s while reading a prompt")


@pytest.mark.parametrize(
    ("value", "expected"),
    [("2", Patience(*[2] * 7)), ("2000", Patience(*[2000] * 7)), ("inf", Patience(*[float("inf")] * 7))]
    + [(text, Patience()) for text in ("", "x", "-1", "nan", "0")],
)
def test_the_environment_replaces_it(value, expected):
    assert Patience.of({"EXO_STALL_SECONDS": value}) == expected
    assert Patience.of({}) == Patience()
