"""chat: the answer on stdout and the talk on stderr, every end of it, prompts from everywhere."""

import json
import re
import signal
import subprocess
import time

import pytest

from exo_cli.api import PRODUCT
from exo_cli.engine.core.errors import BadStateError, NotFoundError, WaitTimeoutError
from exo_cli.engine.core.tasks import Sampling
from tests.fakes_control import ANSWER, HELLO, STARTED, answers, chunks, error, result, script


def test_the_answer_is_all_of_stdout(exo, node):
    asked = node(chat=answers("Hel", "lo\nwor", "ld")).asked
    ended = exo("chat", "hi", "--temperature", "0", "--max-tokens", "5", "--stop", "a", "--stop", "b", "-m", "smollm2")
    assert (ended.code, ended.out, ended.err) == (0, "Hello\nworld\n", "smollm2 is busy\n")
    assert asked[0]["params"] == {
        "model": "smollm2",
        "messages": [{"role": "user", "content": "hi"}],
        "sampling": {"temperature": 0.0, "max_tokens": 5},
        "stop": ["a", "b"],
        "timeout_seconds": None,
        "client": PRODUCT,
    }


def test_one_line_end_and_no_more(exo, node):
    node(chat=answers("done\n"))
    assert exo("chat", "hi").out == "done\n"


def test_a_pipe_gets_the_bytes_of_the_answer(exo, node):
    node(chat=answers("\x1b[1mbold\u202e\x00"))
    assert exo("chat", "hi").out == "\x1b[1mbold\u202e\x00\n"


def test_figures_are_said_when_asked_for(exo, node):
    node(chat=answers("x"))
    said = exo("chat", "hi", "--stats").err.splitlines()[-1]
    assert said == "3 tokens, 2.0 tokens/s, first token after 0.50 s, prompt 9 tokens, seed 7"


def test_the_answer_as_a_document_and_aschunks(exo, node):
    node(chat=answers("a", "b"))
    document = json.loads(exo("chat", "hi", "-o", "json").out)
    assert document == {"kind": "Chat", "schema": 1, "revision": None, "item": {**ANSWER, "text": "ab"}}
    lines = [json.loads(line) for line in exo("chat", "hi", "-o", "jsonl").out.splitlines()]
    assert [line["choices"][0]["delta"].get("content") for line in lines] == ["a", "b", None]
    assert [line["choices"][0]["finish_reason"] for line in lines] == [None, None, "stop"]
    assert {line["object"] for line in lines} == {"chat.completion.chunk"}
    assert lines[-1]["usage"] == ANSWER["usage"]


@pytest.mark.parametrize(
    ("words", "stdin", "content"),
    [
        (["hi"], None, "hi"),
        ([], "from a pipe\n", "from a pipe"),
        (["explain"], "def f(): pass\n", "explain\n\ndef f(): pass"),
        (["hi"], "", "hi"),
        (["hi", "--no-stdin"], "not read", "hi"),
        (["--", "-x"], None, "-x"),
        ([], "日本語", "日本語"),
    ],
)
def test_where_a_prompt_comes_from(exo, node, words, stdin, content):
    asked = node(chat=answers("x")).asked
    assert exo("chat", *words, stdin=stdin).code == 0
    assert asked[0]["params"]["messages"] == [{"role": "user", "content": content}]


def test_a_file_is_read_too(start_program, node, tmp_path):
    asked = node(chat=answers("x")).asked
    (tmp_path / "prompt").write_text("from a file\n")
    with (tmp_path / "prompt").open() as file:
        assert start_program("chat", "sum up", stdin=file).wait(timeout=10) == 0
    assert asked[0]["params"]["messages"][0]["content"] == "sum up\n\nfrom a file"


def test_a_pipe_without_data_is_named_after_a_while(start_program, node):
    node(chat=answers("x"))
    process = start_program("chat", "hi", stdin=subprocess.PIPE)
    assert process.stderr.readline() == b"waiting for text on stdin (--no-stdin does without)\n"
    process.stdin.close()
    assert process.wait(timeout=10) == 0


@pytest.mark.parametrize("words", [[], [""], ["  "]])
def test_no_prompt_is_a_usage_error(exo, words):
    ended = exo("chat", *words)
    assert ended.code == 2
    assert "there is no prompt" in ended.err


def test_bytes_that_are_no_text_are_refused(exo):
    ended = exo("chat", stdin=b"\xff\xfe")
    assert ended.code == 12
    assert "not UTF-8" in ended.err


def test_a_system_prompt_comes_first(exo, node):
    asked = node(chat=answers("x")).asked
    exo("chat", "hi", "--system", "be brief")
    assert [each["role"] for each in asked[0]["params"]["messages"]] == ["system", "user"]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (BadStateError("instance i-abc was deleted", "exo runners"), 7),
        (WaitTimeoutError("the answer took longer than 1 s", "exo chat --timeout 10"), 6),
    ],
)
def test_an_answer_cut_short_keeps_its_text_and_says_why(exo, node, reason, code):
    node(chat=script(STARTED, *chunks("The cap", "ital"), ends=reason))
    ended = exo("chat", "hi")
    assert (ended.code, ended.out) == (code, "The capital\n")
    assert ended.err.startswith(f"error: {reason.message}\n")
    assert exo("chat", "hi", "-o", "json").out == ""


def test_an_answer_that_takes_too_long_is_6(exo, node):
    fake = node(chat=script(STARTED, *chunks("The cap"), ends=None))
    ended = exo("chat", "hi", "--timeout", "0.2")
    assert (ended.code, ended.out) == (6, "The cap\n")
    assert ended.err == "error: it did not end within 0.2 s\nhint: exo runners\n"
    fake.wait_asked({"id": 1, "cancel": True})

    def endless(_params):
        yield STARTED
        while True:
            yield {"type": "chunk", "sequence": 0, "text": "word "}
            time.sleep(0.01)

    fake.methods["chat"] = endless
    assert exo("chat", "hi", "--timeout", "0.2").code == 6


def test_a_node_that_dies_in_the_middle(start_program, node):
    fake = node(chat=script(STARTED, *chunks("The cap"), ends=None))
    process = start_program("chat", "hi")
    assert process.stdout.read(7) == b"The cap"
    fake.close()
    out, said = process.communicate(timeout=5)
    assert (process.returncode, out) == (5, b"\n")
    assert b"error: the node ended the connection" in said


def test_nothing_placed_says_what_to_place(exo, node):
    node(chat=error(NotFoundError("no model is placed")))
    ended = exo("chat", "hi")
    assert (ended.code, ended.err) == (3, "error: no model is placed\nhint: exo place smollm2\n")
    assert "exo place other" in exo("chat", "hi", "-m", "other").err


def test_ctrl_c_cancels_and_keeps_what_came(start_program, node):
    fake = node(chat=script(STARTED, *chunks("The cap"), ends=None))
    process = start_program("chat", "hi")
    assert process.stdout.read(7) == b"The cap"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=5)
    assert process.returncode == -signal.SIGINT
    assert time.monotonic() - began < 1
    assert (out, said) == (b"\n", b"interrupted\n")
    fake.wait_asked({"id": 1, "cancel": True})


def test_a_reader_that_goes_away_ends_it_quietly(start_program, node):
    def endless(_params):
        yield STARTED
        while True:
            yield {"type": "chunk", "sequence": 0, "text": "word " * 100}
            time.sleep(0.001)

    fake = node(chat=endless)
    process = start_program("chat", "hi")
    process.stdout.read(20)
    process.stdout.close()
    assert process.wait(timeout=5) == -signal.SIGPIPE
    assert process.stderr.read() == b""
    fake.wait_asked({"id": 1, "cancel": True})


def test_no_start_refuses(exo, home):
    ended = exo("chat", "hi", "--no-start")
    assert ended.code == 5
    assert "no node is running" in ended.err
    assert not (home / "state").exists()


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_chosen_endpoint_never_becomes_a_node_of_its_own(exo, home, tmp_path, monkeypatch, how):
    address = f"unix:{tmp_path}/none.sock"
    if how == "variable":
        monkeypatch.setenv("EXO_ENDPOINT", address)
    ended = exo("chat", "hi", *(["--endpoint", address] if how == "flag" else []))
    assert ended.code == 5
    assert f"(from {'--endpoint' if how == 'flag' else 'EXO_ENDPOINT'})" in ended.err
    assert not (home / "state").exists()


def test_a_hung_node_never_becomes_another_one(exo, node, home):
    node().hello = None
    ended = exo("chat", "hi")
    assert ended.code == 5
    assert "the node does not answer" in ended.err
    assert not (home / "state").exists()


def test_a_solo_node_of_another_chat_is_joined_and_waited_for(exo, node):
    loading = {"instance_id": "i-abc", "model": "smollm2", "status": "loading", "progress": "3 of 30 layers"}
    fake = node(
        instances=result({"revision": 1, "items": []}),
        place=result({"revision": 2, "item": {**loading, "changed": "created"}}),
        wait=script({"type": "progress", "item": loading}, ends={"item": {**loading, "status": "ready"}}),
        chat=answers("x"),
    )
    fake.hello = {**HELLO, "solo": True}
    ended = exo("chat", "hi")
    assert (ended.code, ended.out) == (0, "x\n")
    assert ended.err.splitlines()[0] == "smollm2: loading, 3 of 30 layers"
    assert "exo node start --detach" in ended.err.splitlines()[-1]
    assert [each["method"] for each in fake.asked if "method" in each] == ["instances", "place", "wait", "chat"]
    assert fake.asked[1]["params"]["model"] == "smollm2"


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k", "min_p"])
def test_the_help_tells_what_the_node_takes_where_nothing_is_said(exo, name):
    option, default = f"--{name.replace('_', '-')} ", Sampling.model_fields[name].default
    said = " ".join(exo("chat", "--help").out.partition(option)[2].split()).partition("[default: (")[2]
    assert re.match(rf"{re.escape(str(default))}[,)]", said)


@pytest.mark.parametrize("option", ["--max-tokens", "--timeout", "--seed"])
def test_the_help_has_a_default_for_what_is_open(exo, option):
    said = " ".join(exo("chat", "--help").out.partition(f"  {option} ")[2].partition("  --")[0].split())
    assert "[default: (" in said
