"""Prompts and streams of text, on a tiny vocabulary and on the small model's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exo_cli.engine.core.tasks import ChatMessage
from exo_cli.engine.inference import EngineError
from exo_cli.engine.inference.gguf import converted
from exo_cli.engine.inference.template import ChatTemplate
from exo_cli.engine.inference.tokens import TokenText, open_vocabulary
from tests.inference.smollm import gguf_file
from tests.inference.tiny import CONFIGS, write_tokenizer

HELLO = (ChatMessage(role="user", content="hello"),)


def test_a_prompt_follows_the_template(tmp_path):
    write_tokenizer(tmp_path)
    vocabulary = open_vocabulary(tmp_path, CONFIGS["llama"])
    text = vocabulary.stream()
    said = "".join(map(text.add, vocabulary.prompt((ChatMessage(role="developer", content="be brief"), *HELLO))))
    assert said + text.rest() == "[system]be brief[user]hello[assistant]"
    assert vocabulary.ends == {255}


def test_a_template_beside_the_tokenizer_counts_and_none_means_plain_text(tmp_path):
    write_tokenizer(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings["chat_template"] = [{"name": "tool", "template": "no"}, {"name": "default", "template": "named"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert len(open_vocabulary(tmp_path, CONFIGS["llama"]).prompt(HELLO)) == len("named")
    (tmp_path / "chat_template.jinja").write_text("file")
    assert len(open_vocabulary(tmp_path, CONFIGS["llama"]).prompt(HELLO)) == len("file")
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert len(open_vocabulary(tmp_path, CONFIGS["llama"]).prompt(HELLO)) == len("hello")


def test_limits_of_the_training_do_not_cut_prompts(tmp_path):
    write_tokenizer(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert len(open_vocabulary(tmp_path, CONFIGS["llama"]).prompt(HELLO)) > 5


@given(st.text(max_size=40))
def test_text_comes_out_whole_however_many_tokens_a_character_takes(text):
    """One token a byte: no piece ends inside a character, and nothing is lost."""
    letters = list(text.encode())
    stream = TokenText(lambda tokens: bytes(tokens).decode("utf-8", "replace"))
    pieces = [stream.add(letter) for letter in letters]
    assert "".join(pieces) + stream.rest() == text
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces).replace(text, "") or "\N{REPLACEMENT CHARACTER}" in text


def test_half_a_character_at_the_end_is_shown_as_such():
    stream = TokenText(lambda tokens: bytes(tokens).decode("utf-8", "replace"))
    assert stream.add("ü".encode()[0]) == ""
    assert stream.rest() == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% for %}", "cannot be read"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.pop() }}", "refuses these messages"),
        ("{{ ''.__class__.__mro__ }}", "refuses these messages"),
    ],
)
def test_a_template_that_is_wrong_or_says_no_is_an_answer(source, words):
    with pytest.raises(EngineError, match=words):
        ChatTemplate(source, {}).render(HELLO)


@pytest.mark.model
def test_the_quick_way_and_transformers_give_the_same_tokens(tmp_path):
    folder = converted(gguf_file(), tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    quick = open_vocabulary(folder, config)
    slow = open_vocabulary(folder, {**config, "model_type": "not in the table"})
    talks = [
        HELLO,
        (ChatMessage(role="system", content="Be  brief.\n"), ChatMessage(role="user", content="12345 äöü 你好 🙂")),
        (*HELLO, ChatMessage(role="assistant", content="<|im_end|>"), ChatMessage(role="user", content=" \n\n x")),
    ]
    for talk in talks:
        tokens = quick.prompt(talk)
        assert tokens == slow.prompt(talk)
        one, other = quick.stream(), slow.stream()
        assert [one.add(token) for token in tokens] == [other.add(token) for token in tokens]
    assert quick.ends == slow.ends
