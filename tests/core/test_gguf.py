"""The GGUF header: a card from good bytes, one error from bad ones, and never more work than the bytes are worth."""

import contextlib
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exo_cli.engine.core.gguf import ShortHeaderError, card_from_gguf

UINT32, STRING, ARRAY, UINT64 = 4, 8, 9, 10


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def fact(name, kind, value):
    packed = {UINT32: lambda: struct.pack("<I", value), STRING: lambda: text(value), ARRAY: lambda: value}[kind]()
    return text(name) + struct.pack("<I", kind) + packed


def strings(*values):
    return struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values))


def tensor(name, dimensions, kind, offset):
    return text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset)


def facts(**changed):
    found = {
        "general.architecture": (STRING, "llama"),
        "llama.block_count": (UINT32, 2),
        "llama.embedding_length": (UINT32, 64),
        "llama.attention.head_count": (UINT32, 4),
        "llama.attention.head_count_kv": (UINT32, 2),
        "llama.context_length": (UINT32, 512),
        "tokenizer.ggml.tokens": (ARRAY, strings("a", "b", "c")),
        **{name.replace("__", "."): value for name, value in changed.items()},
    }
    return [fact(name, *value) for name, value in found.items() if value is not None]


TENSORS = [
    tensor("token_embd.weight", (64, 3), 8, 0),
    tensor("blk.0.attn_q.weight", (64, 64), 3, 224),
    tensor("blk.1.attn_q.weight", (64, 64), 3, 224 + 2560),
]


def a_file(some_facts=None, some_tensors=None, version=3, weights=224 + 2 * 2560):
    some_facts = facts() if some_facts is None else some_facts
    some_tensors = TENSORS if some_tensors is None else some_tensors
    head = struct.pack("<4sIQQ", b"GGUF", version, len(some_tensors), len(some_facts))
    head += b"".join(some_facts) + b"".join(some_tensors)
    return head + bytes(-len(head) % 32 + weights)


def test_a_card_has_what_placement_needs():
    card = card_from_gguf("tiny", a_file(), len(a_file()), path="/m/tiny.gguf")
    assert card.model_dump() == {
        "model_id": "tiny",
        "n_layers": 2,
        "hidden_size": 64,
        "n_heads": 4,
        "n_kv_heads": 2,
        "head_dim": 16,
        "vocab_size": 3,
        "storage_bytes": 224 + 2 * 2560,
        "embedding_bytes": 6 * 34,
        "context_length": 512,
        "family": "llama",
        "bits": 4,
        "source": "gguf",
        "path": "/m/tiny.gguf",
    }


def test_values_by_layer_and_missing_ones():
    by_layer = struct.pack("<IQII", UINT32, 2, 4, 4)
    file = a_file(
        facts(
            llama__attention__head_count=(ARRAY, by_layer),
            llama__attention__head_count_kv=None,
            llama__context_length=None,
        )
    )
    card = card_from_gguf("tiny", file, len(file))
    assert (card.n_heads, card.n_kv_heads, card.context_length) == (4, 4, 2048)


def test_more_of_the_file_is_asked_for():
    file = a_file()
    for length in range(24, len(file) - 6000, 7):
        with pytest.raises(ShortHeaderError):
            card_from_gguf("tiny", file[:length], len(file))


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        (b"", "not a GGUF file"),
        (b"GGML" + bytes(100), "not a GGUF file"),
        (a_file(version=1), "version 1"),
        (a_file(version=3 << 24), "version"),
        (a_file()[:-1], "cut off: 1 bytes"),
        (a_file()[:200], "says more than the file has"),
        (a_file(some_tensors=[]), "0 tensors"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 1, 1 << 63) + bytes(64), "facts"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 1 << 63, 0) + bytes(64), "tensors"),
        (struct.pack("<4sIQQQ", b"GGUF", 3, 1, 1, 1 << 62) + bytes(64), "says more than the file has"),
        (a_file([fact("a", ARRAY, struct.pack("<IQ", UINT32, 1 << 62))]), "says more than the file has"),
        (a_file([fact("a", ARRAY, struct.pack("<IQ", STRING, 1 << 20))]), "says more than the file has"),
        (a_file([fact("a", ARRAY, struct.pack("<IQ", STRING, 1 << 62))]), "an array of"),
        (a_file([fact("a", ARRAY, struct.pack("<IQ", ARRAY, 1) * 100)]), "an array of"),
        (a_file([text("a") + struct.pack("<I", 99)]), "unknown kind 99"),
        (a_file(some_tensors=[tensor("t", (64,), 77, 0)]), "unknown kind 77"),
        (a_file(some_tensors=[tensor("t", (1,) * 9, 0, 0)]), "9 dimensions"),
        (a_file(some_tensors=[*TENSORS, tensor("t", (1 << 63,) * 8, 0, 0)]), "cut off"),
        (a_file(some_tensors=[*TENSORS, tensor("t", (64,), 0, 1 << 63)]), "cut off"),
        (a_file(facts(general__architecture=None)), "no name of an architecture"),
        (a_file(facts(general__architecture=(STRING, "../x"))), "no name of an architecture"),
        (a_file(facts(llama__block_count=(UINT32, 0))), "block_count"),
        (a_file(facts(llama__block_count=(UINT32, 4_000_000_000))), "4000000000 layers"),
        (a_file(facts(llama__embedding_length=(STRING, "64"))), "embedding_length"),
        (a_file(facts(general__alignment=(UINT32, 1 << 31))), "alignment"),
        (a_file(facts(tokenizer__ggml__tokens=None)), "vocab_size"),
    ],
)
def test_bad_files_are_one_error(file, fault):
    with pytest.raises(ValueError, match=fault) as raised:
        card_from_gguf("tiny", file, len(file))
    assert not isinstance(raised.value, ShortHeaderError)


def test_a_name_that_is_none_is_refused():
    with pytest.raises(ValueError, match="is not a model name"):
        card_from_gguf("..", a_file(), len(a_file()))


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_damage_anywhere_is_a_card_or_a_value_error(data):
    file = bytearray(a_file())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(file) - 5500))
        file[at : at + 1] = data.draw(st.binary(min_size=1, max_size=9))
    with contextlib.suppress(ValueError):
        card_from_gguf("tiny", bytes(file), len(file))


def test_the_most_a_hostile_file_can_cost():
    empty = bytes(8 * (1 << 21))
    file = a_file([fact("a", ARRAY, struct.pack("<IQ", STRING, 1 << 21) + empty)])
    began = time.perf_counter()
    with pytest.raises(ValueError, match="architecture"):
        card_from_gguf("tiny", file, len(file))
    assert time.perf_counter() - began < 5
