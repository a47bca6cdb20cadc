"""Where an answer ends that the model does not end: what `chat` asks for, and what it says of it."""

import pytest

from exo_cli.commands.chat import DEFAULT_MAX_TOKENS
from tests.fakes_control import ANSWER, STARTED, answers, chunks, script


def test_an_answer_has_a_length_even_where_nobody_says_one(exo, node):
    asked = node(chat=answers("x")).asked
    exo("chat", "hi")
    exo("chat", "hi", "--max-tokens", "4000")
    assert [each["params"]["sampling"] for each in asked if each.get("method") == "chat"] == [
        {"max_tokens": DEFAULT_MAX_TOKENS},
        {"max_tokens": 4000},
    ]
    assert f"[default: ({DEFAULT_MAX_TOKENS}, or" in " ".join(exo("chat", "--help").out.split())


@pytest.mark.parametrize(
    ("tokens", "words", "why"),
    [
        (DEFAULT_MAX_TOKENS, [], "--max-tokens"),
        (3, ["--max-tokens", "3"], "--max-tokens"),
        (3, [], "the context is full"),
    ],
)
def test_an_answer_that_was_too_long_is_said_to_be(exo, node, tokens, words, why):
    item = {**ANSWER, "finish_reason": "length", "usage": {**ANSWER["usage"], "tokens": tokens}}
    node(chat=script(STARTED, *chunks("and so"), ends={"item": item}))
    ended = exo("chat", "hi", *words)
    assert (ended.code, ended.out, ended.err) == (0, "and so\n", f"stopped at {tokens} tokens ({why})\n")


def test_nothing_is_said_of_an_answer_that_ended(exo, node):
    node(chat=script(STARTED, *chunks("done"), ends={"item": ANSWER}))
    assert exo("chat", "hi", "--max-tokens", "3").err == ""
