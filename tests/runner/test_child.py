"""The runner child with the scripted engine: real processes, real pipes."""

import itertools
import signal
import socket
import subprocess
import sys
import time

import pytest

from exo_cli.engine.core.runners import TRANSITIONS
from exo_cli.engine.runner.frames import (
    Assign,
    Cancel,
    Connect,
    Done,
    Generate,
    Load,
    Memory,
    StatusReport,
    Step,
    Stop,
    Warmup,
    encode,
)
from exo_cli.engine.runner.inbox import WAITING_TASKS
from tests.runner.a_child import Child, a_chat, an_instance

ENDLESS = "rate 2000\nrepeat forever token x"


@pytest.fixture
def child():
    with Child() as process:
        yield process


@pytest.fixture
def script(tmp_path):
    def write(text):
        (tmp_path / "script").write_text(text)
        return f"scripted:{tmp_path / 'script'}"

    return write


def dones(child):
    return [(report.task_id, report.reason, report.code) for report in child.reports if isinstance(report, Done)]


def test_statuses_come_in_order_and_a_request_is_answered(child, script):
    child.send(Assign(instance=an_instance(script("token Hel\ntoken lo"), layers=2), runner_id="i-1-0", threads=1))
    child.send(Load(model_path="/none"), Warmup(), Generate(task_id="t-1", params=a_chat(seed=7)))
    done = child.until_done("t-1")
    child.until_status("RunnerReady")
    child.send(Stop())
    child.rest()
    assert child.wait() == 0
    assert child.statuses() == [
        "RunnerIdle", "RunnerLoading", "RunnerLoading", "RunnerLoading", "RunnerLoaded", "RunnerWarmingUp",
        "RunnerReady", "RunnerRunning", "RunnerReady", "RunnerShuttingDown", "RunnerShutdown",
    ]  # fmt: skip
    loading = [r.status for r in child.reports if isinstance(r, StatusReport) and r.status.type == "RunnerLoading"]
    assert [(status.layers_loaded, status.total_layers) for status in loading] == [(0, 2), (1, 2), (2, 2)]
    assert child.text_of("t-1") == "Hello"
    assert (done.reason, done.seed, done.usage.tokens, done.usage.prompt_tokens) == ("stop", 7, 2, 1)
    assert done.usage.first_token_seconds is not None
    assert sum(report.resident_bytes > 1_000_000 for report in child.reports if isinstance(report, Memory)) == 2


def test_each_step_of_statuses_is_in_the_table(child, script):
    child.make_ready(script("token a"), ranks=1)
    child.ask("t-1")
    child.ask("t-2")
    child.until_done("t-2")
    child.send(Stop())
    child.rest()
    names = ["RunnerReady", *child.statuses()]
    assert all(after in TRANSITIONS[before] for before, after in itertools.pairwise(names))


def test_a_rank_of_a_group_connects_first_and_the_others_follow(script):
    engine = script("token a")
    with socket.socket() as first, socket.socket() as second:
        for held in (first, second):
            held.bind(("127.0.0.1", 0))
        ring = tuple(f"127.0.0.1:{held.getsockname()[1]}" for held in (first, second))
    with Child() as lead, Child() as other:
        for child, runner in ((lead, "i-1-0"), (other, "i-1-1")):
            child.send(Assign(instance=an_instance(engine, ranks=2), runner_id=runner, threads=1))
            child.send(Connect(ring=ring), Load(model_path="/none"), Warmup())
        for child in (lead, other):
            child.until_status("RunnerReady")
            assert child.statuses()[:4] == ["RunnerIdle", "RunnerConnecting", "RunnerConnected", "RunnerLoading"]
        lead.send(Generate(task_id="t-1", params=a_chat()))
        other.send(Generate(task_id="t-1"))
        assert lead.until_done("t-1").reason == "stop"
        assert other.until_done("t-1").reason == "stop"
        assert other.text_of("t-1") == ""


def test_what_libraries_print_does_not_damage_reports(child, script):
    child.make_ready(script('print loud\ntoken a\nprint "{\\"type\\":\\"Done\\"}"\ntoken b\non load print early'))
    child.ask("t-1")
    assert child.until_done("t-1").reason == "stop"
    assert child.text_of("t-1") == "ab"
    child.send(Stop())
    child.rest()
    assert child.wait() == 0
    child.close()
    assert b"early" in child.errors
    assert b"loud" in child.errors


def test_a_request_that_fails_fails_alone(child, script):
    child.make_ready(script("token ok\nrequest 1:\nrepeat 6 token x\nraise at token seven"))
    child.ask("t-1")
    child.ask("t-2")
    child.ask("t-3")
    first = child.until_done("t-1")
    assert (first.reason, first.code, first.error) == ("error", "generation_failed", "RuntimeError: at token seven")
    assert child.text_of("t-1") == "xxxxxx"
    assert child.until_done("t-2").reason == "stop"
    assert child.until_done("t-3").reason == "stop"
    child.until_status("RunnerReady")
    assert child.alive()


def test_what_a_request_fails_with_is_for_its_client_and_for_no_file(child, script):
    child.make_ready(script("raise the secret words"))
    child.ask("t-1")
    assert child.until_done("t-1").error == "RuntimeError: the secret words"
    child.send(Stop())
    child.rest()
    child.close()
    assert b"RuntimeError, whose message" in child.errors
    assert b"in _work" in child.errors
    assert b"secret" not in child.errors


def test_cancel_ends_a_request_within_a_step(child, script):
    child.make_ready(script(ENDLESS))
    child.ask("t-1")
    child.until_tokens(5)
    child.send(Cancel(task_id="t-1"))
    done = child.until_done("t-1", 2)
    assert done.reason == "cancelled"
    assert done.usage.tokens >= 5
    child.until_status("RunnerReady", 2)


def test_cancel_ends_one_that_hangs(child, script):
    child.make_ready(script("repeat 6 token x\nblock"))
    child.ask("t-1")
    child.until_tokens(6)
    child.send(Cancel(task_id="t-1"))
    assert child.until_done("t-1", 2).reason == "cancelled"


def test_a_waiting_request_can_be_cancelled_and_an_unknown_one_is_ignored(child, script):
    child.make_ready(script("token ok\nrequest 1:\nrepeat 3 token x\nblock"))
    child.ask("t-1")
    child.ask("t-2")
    child.ask("t-3")
    child.send(Cancel(task_id="t-2"), Cancel(task_id="nobody"))
    child.until_tokens(3)
    child.send(Cancel(task_id="t-1"))
    child.until_done("t-3")
    assert dones(child) == [("t-1", "cancelled", None), ("t-2", "cancelled", None), ("t-3", "stop", None)]
    # An id cancelled before it is known is not cancelled later.
    child.ask("nobody")
    assert child.until_done("nobody").reason == "stop"


def test_more_than_the_bound_is_busy(child, script):
    child.make_ready(script("token ok\nrequest 1:\ntoken x\nblock"))
    child.ask("t-0")
    child.until_tokens(1)
    for number in range(1, WAITING_TASKS + 4):
        child.ask(f"t-{number}")
    child.until_done(f"t-{WAITING_TASKS + 3}")
    assert dones(child) == [(f"t-{WAITING_TASKS + more}", "error", "busy") for more in (1, 2, 3)]
    child.send(Cancel(task_id="t-0"))
    child.until_done(f"t-{WAITING_TASKS}")
    assert [done[0] for done in dones(child)[3:]] == [f"t-{number}" for number in range(WAITING_TASKS + 1)]
    child.until_status("RunnerReady")
    child.ask("t-again")
    assert child.until_done("t-again").reason == "stop"


def test_a_request_that_makes_no_sense_fails_alone(child, script):
    child.make_ready(script("token ok"))
    child.send_bytes(b'{"type":"Generate","task_id":"t-1","params":{"messages":[]}}\n')
    child.ask("t-2")
    bad = child.until_done("t-1")
    assert (bad.reason, bad.code) == ("error", "bad_request")
    assert "messages" in (bad.error or "")
    assert child.until_done("t-2").reason == "stop"


def test_a_request_before_ready_is_answered_at_once(child, script):
    child.send(Assign(instance=an_instance(script("token ok")), runner_id="i-1-0", threads=1))
    child.ask("t-1")
    assert child.until_done("t-1").code == "not_ready"
    child.send(Load(model_path="/none"), Warmup())
    child.until_status("RunnerReady")


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        ([Load(model_path="/none")], "before Assign"),
        ([b"not json\n"], "cannot be read"),
        (["assign", Warmup()], "Warmup in status RunnerIdle"),
        (["assign", "assign"], "assigned before"),
    ],
)
def test_an_order_that_makes_no_sense_fails_the_runner(child, script, orders, words):
    for order in orders:
        if order == "assign":
            child.send(Assign(instance=an_instance(script("token ok")), runner_id="i-1-0", threads=1))
        elif isinstance(order, bytes):
            child.send_bytes(order)
        else:
            child.send(order)
    failed = child.until_status("RunnerFailed")
    assert words in (failed.error_message or "")
    assert child.wait() == 1


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("on connect raise no", "RunnerConnecting"),
        ("on load raise no", "RunnerLoading"),
        ("on warmup raise no", "RunnerWarmingUp"),
    ],
)
def test_a_failure_on_the_way_up_is_reported_with_its_phase(child, script, text, phase):
    child.send(Assign(instance=an_instance(script(text)), runner_id="i-1-0", threads=1))
    child.send(Connect(ring=("127.0.0.1:1",)), Load(model_path="/none"), Warmup())
    failed = child.until_status("RunnerFailed")
    assert (failed.error_message, failed.phase) == ("RuntimeError: no", phase)
    assert child.wait() == 1


def test_a_script_with_an_error_fails_the_runner_with_the_line(child, script):
    child.send(Assign(instance=an_instance(script("token a\n\nsleep long")), runner_id="i-1-0", threads=1))
    failed = child.until_status("RunnerFailed")
    assert failed.error_message == "script line 3: sleep needs a number, got 'long'"
    assert failed.phase == "RunnerIdle"


@pytest.mark.parametrize(
    ("text", "code"), [("on load abort", -signal.SIGABRT), ("on warmup exit 3", 3), ("token a\nabort", -signal.SIGABRT)]
)
def test_a_crash_is_a_real_one(child, script, text, code):
    child.send(Assign(instance=an_instance(script(text)), runner_id="i-1-0", threads=1))
    child.send(Load(model_path="/none"), Warmup())
    child.ask("t-1")
    child.rest()
    assert child.wait() == code
    assert not dones(child)


def test_once_lets_a_restarted_process_get_past_it(script, tmp_path):
    engine = script(f"token a\non load once {tmp_path / 'mark'} exit 9")
    with Child() as first:
        first.send(Assign(instance=an_instance(engine), runner_id="i-1-0", threads=1), Load(model_path="/none"))
        assert first.wait() == 9, first.errors
    with Child() as second:
        second.make_ready(engine)


@pytest.mark.parametrize(
    "text",
    ["on load block", "on warmup block hard", "token a\nblock hard", ENDLESS],
)
def test_the_end_of_the_pipe_ends_it_within_a_second(child, script, text):
    child.send(Assign(instance=an_instance(script(text)), runner_id="i-1-0", threads=1))
    child.send(Load(model_path="/none"), Warmup())
    child.ask("t-1")
    child.until_status("RunnerLoading")
    if "on" not in text:
        child.until_tokens(1)
    began = time.monotonic()
    child.end_of_file()
    assert child.wait(5) == 0
    assert time.monotonic() - began < 1


def test_a_reader_that_is_gone_ends_it(script):
    orders = (
        Assign(instance=an_instance(script(ENDLESS)), runner_id="i-1-0", threads=1),
        Load(model_path="/none"),
        Warmup(),
        Generate(task_id="t-1", params=a_chat()),
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "exo_cli.engine.runner.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        process.stdin.write(b"".join(map(encode, orders)))
        process.stdin.flush()
        while b"Step" not in process.stdout.readline():
            pass
        process.stdout.close()
        assert process.wait(5) == 0
    finally:
        process.kill()
        process.wait(5)
        process.stdin.close()


@pytest.mark.parametrize("text", ["on load sleep 60", "on warmup block", "token a\nblock", ENDLESS])
def test_stop_calls_off_whatever_goes_on(child, script, text):
    child.send(Assign(instance=an_instance(script(text)), runner_id="i-1-0", threads=1))
    child.send(Load(model_path="/none"), Warmup())
    child.until_status("RunnerLoading")
    if not text.startswith("on"):
        child.until_status("RunnerReady")
        child.ask("t-1")
        child.ask("t-2")
        child.until_tokens(1)
    child.send(Stop())
    child.rest(5)
    assert child.wait(5) == 0
    assert child.statuses()[-2:] == ["RunnerShuttingDown", "RunnerShutdown"]
    expected = [] if text.startswith("on") else [("t-1", "cancelled", None), ("t-2", "cancelled", None)]
    assert dones(child) == expected


def test_a_stop_can_be_ignored_by_script(child, script):
    child.make_ready(script("token a\non stop block hard"))
    child.send(Stop())
    child.until_status("RunnerShuttingDown", 5)
    child.signal(signal.SIGTERM)
    assert child.wait(2) == -signal.SIGTERM


def test_an_interrupt_of_the_terminal_does_nothing(child, script):
    child.make_ready(script("token a\nrequest 1:\ntoken x\nblock"))
    child.ask("t-1")
    child.until_tokens(1)
    child.signal(signal.SIGINT)
    child.send(Cancel(task_id="t-1"))
    assert child.until_done("t-1").reason == "cancelled"
    child.ask("t-2")
    assert child.until_done("t-2").reason == "stop"


def test_max_tokens_and_stop_strings_hold_for_scripts_too(child, script):
    child.make_ready(script("repeat forever token ab"))
    child.ask("t-1", max_tokens=3)
    done = child.until_done("t-1")
    assert (done.reason, done.usage.tokens, child.text_of("t-1")) == ("length", 3, "ababab")
    child.send(Generate(task_id="t-2", params=a_chat(stop=("baba",))))
    done = child.until_done("t-2")
    assert (done.reason, child.text_of("t-2")) == ("stop", "a")


def test_every_token_is_a_step_also_without_text(child, script):
    child.make_ready(script("token e\ntoken n\ntoken d\ntoken !"))
    child.send(Generate(task_id="t-1", params=a_chat(stop=("end?",))))
    child.until_done("t-1")
    steps = [report for report in child.reports if isinstance(report, Step)]
    assert [(step.tokens, "".join(part.text for part in step.texts)) for step in steps] == [
        (1, ""),
        (1, ""),
        (1, ""),
        (1, "end!"),
    ]


def test_nothing_heavy_is_imported_before_it_is_needed():
    """A runner may wait for a download for hours."""
    heavy = ("mlx", "mlx_lm", "transformers", "tokenizers", "trio", "numpy", "psutil")
    code = f"import exo_cli.engine.runner.child, sys; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert found.stdout.strip() == "[]"


def test_the_scripted_engine_needs_no_mlx(script, tmp_path):
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").write_text("raise ImportError('not here')")
    with Child(env={"PYTHONPATH": str(tmp_path)}) as child:
        child.make_ready(script("echo"))
        child.ask("t-1", "three small words")
        child.until_done("t-1")
        assert child.text_of("t-1") == "three small words"


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("nonsense", "no engine 'nonsense' (known: mlx, scripted)"),
        ("mlx:x", "takes no argument"),
        ("scripted:/no", "not there"),
    ],
)
def test_an_engine_that_is_not_there_fails_the_runner(child, engine, words):
    child.send(Assign(instance=an_instance(engine), runner_id="i-1-0", threads=1))
    assert words in (child.until_status("RunnerFailed").error_message or "")
