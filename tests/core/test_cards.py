"""Cards from config.json: the facts, their defaults, and refusals that name the key."""

import pytest

from exo_cli.engine.core.cards import card_from_config

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}


def test_the_facts_of_a_plain_model():
    card = card_from_config("a/b", CONFIG, 269_060_552)
    assert (card.n_layers, card.head_dim, card.family, card.bits) == (30, 64, "llama", None)
    assert card.embedding_bytes == 49152 * 576 * 2
    assert card.layer_bytes * 30 >= card.storage_bytes - card.embedding_bytes > (card.layer_bytes - 1) * 30
    assert card.kv_bytes(1000, 30) == 2 * 1000 * 30 * 3 * 64 * 4


def test_quantised_untied_and_with_its_own_head_size():
    changed = {"quantization": {"bits": 4, "group_size": 64}, "tie_word_embeddings": False, "head_dim": 128}
    card = card_from_config("a/b@main", CONFIG | changed, 1 << 30)
    assert (card.bits, card.head_dim) == (4, 128)
    assert card.embedding_bytes == 2 * 49152 * 576 * 4 // 8


def test_the_text_part_of_a_model_that_also_sees():
    card = card_from_config("a/b", {"model_type": "gemma3", "text_config": CONFIG}, 1 << 30)
    assert (card.n_layers, card.family) == (30, "llama")


def test_an_embedding_is_never_more_than_the_model():
    assert card_from_config("a/b", CONFIG, 1000).embedding_bytes == 1000


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"])
@pytest.mark.parametrize("value", [None, 0, -1, 1.5, "30", True, [30]])
def test_a_needed_key_that_is_no_number_is_named(key, value):
    with pytest.raises(ValueError, match=f"config.json: {key} is"):
        card_from_config("a/b", CONFIG | {key: value}, 1)


@pytest.mark.parametrize("name", ["", "..", "../../etc", "/etc/passwd", "a/../../b", "a\x00b", "%2e%2e", "x" * 300])
def test_names_that_are_none(name):
    with pytest.raises(ValueError, match="model name"):
        card_from_config(name, CONFIG, 1)
