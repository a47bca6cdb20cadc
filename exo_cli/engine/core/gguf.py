"""The header of a GGUF file, read far enough to make a card: bytes in, card out; no weight is touched.

Trusts nothing: every count is held against the bytes that are left before anything is made of it, so a hostile file
costs no more than one walk over what was read of it. Only the facts that a card needs are kept.
"""

import math
import re
import struct
from dataclasses import dataclass

from exo_cli.engine.core.cards import ModelCard

MAGIC = b"GGUF"
_MAX_FACTS, _MAX_TENSORS, _MAX_STRINGS, _MAX_DIMENSIONS = 4096, 1 << 16, 1 << 21, 8
_MAX_TEXT_BYTES = 1 << 16
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# Kind of tensor: (its nominal bits, elements of a block, bytes of a block).
_KINDS = {
    0: (32, 1, 4), 1: (16, 1, 2), 2: (4, 32, 18), 3: (4, 32, 20), 6: (5, 32, 22), 7: (5, 32, 24), 8: (8, 32, 34),
    9: (8, 32, 36), 10: (2, 256, 84), 11: (3, 256, 110), 12: (4, 256, 144), 13: (5, 256, 176), 14: (6, 256, 210),
    15: (8, 256, 292), 16: (2, 256, 66), 17: (2, 256, 74), 18: (3, 256, 98), 19: (1, 256, 50), 20: (4, 32, 18),
    21: (3, 256, 110), 22: (2, 256, 82), 23: (4, 256, 136), 24: (8, 1, 1), 25: (16, 1, 2), 26: (32, 1, 4),
    27: (64, 1, 8), 28: (64, 1, 8), 29: (1, 256, 56), 30: (16, 1, 2), 34: (1, 256, 54), 35: (2, 256, 66),
    39: (4, 32, 17),
}  # fmt: skip


class ShortHeaderError(ValueError):
    """The header goes on after these bytes: read more of the file, if there is more, and try again."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    bits: int
    size_bytes: int
    end: int


class _Reader:
    """Takes values off the front of the bytes. `file_bytes` is how much there is in all."""

    def __init__(self, head: bytes, file_bytes: int) -> None:
        self.head, self.file_bytes, self.at = head, file_bytes, 0
        self.strings_left = _MAX_STRINGS

    def skip(self, count: int) -> int:
        """Pass over `count` bytes; where they begin."""
        start, self.at = self.at, self.at + count
        if self.at > self.file_bytes:
            raise ValueError("the GGUF header says more than the file has")
        if self.at > len(self.head):
            raise ShortHeaderError("the GGUF header goes on after what was read")
        return start

    def numbers(self, form: str) -> tuple[int, ...]:
        """Values of a `struct` form, little-endian."""
        values: tuple[int, ...] = struct.unpack_from("<" + form, self.head, self.skip(struct.calcsize("<" + form)))
        return values

    def number(self, form: str) -> int:
        """One of them."""
        return self.numbers(form)[0]

    def text(self, limit_bytes: int = _MAX_TEXT_BYTES) -> str:
        """A string; beyond the limit it is passed over and empty."""
        size = self.number("Q")
        start = self.skip(size)
        return self.head[start : self.at].decode("utf-8", "replace") if size <= limit_bytes else ""

    def value(self, kind: int) -> object:
        """A value of that kind; of an array, its length and its first number."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise ValueError(f"the GGUF header has a value of unknown kind {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner in _NUMBERS:
            width = struct.calcsize("<" + _NUMBERS[inner])
            start = self.skip(count * width)
            first = struct.unpack_from("<" + _NUMBERS[inner], self.head, start)[0] if count else None
            return (count, first)
        if inner != _STRING or count > self.strings_left:
            raise ValueError(f"the GGUF header has an array of {count} values of kind {inner}")
        self._pass_strings(count)
        return (count, None)

    def _pass_strings(self, count: int) -> None:
        self.strings_left -= count
        if self.at + 8 * count > self.file_bytes:
            raise ValueError("the GGUF header says more than the file has")
        last, length = len(self.head) - 8, _LENGTH.unpack_from
        for _ in range(count):
            if self.at > last:
                self.skip(8)
            self.at += 8 + length(self.head, self.at)[0]
        self.skip(0)

    def tensor(self) -> _Tensor:
        """The entry of one tensor."""
        name, dimensions = self.text(), self.number("I")
        if dimensions > _MAX_DIMENSIONS:
            raise ValueError(f"the GGUF header has a tensor of {dimensions} dimensions")
        elements = math.prod(self.numbers(f"{dimensions}Q"))
        kind, offset = self.numbers("IQ")
        if kind not in _KINDS:
            raise ValueError(f"the GGUF header has a tensor of unknown kind {kind}")
        bits, block, block_bytes = _KINDS[kind]
        size_bytes = -(-elements // block) * block_bytes
        return _Tensor(name, bits, size_bytes, offset + size_bytes)


def card_from_gguf(model_id: str, head: bytes, file_bytes: int, *, path: str | None = None) -> ModelCard:
    """The card of the GGUF file whose first bytes are `head` and that has `file_bytes` in all.

    Raises:
        ShortHeaderError: more of the file is needed.
        ValueError: no GGUF file, a damaged one, one that is cut off, or none of a language model.
    """
    reader = _Reader(head, file_bytes)
    if head[:4] != MAGIC:
        raise ValueError("not a GGUF file (its first four bytes are not GGUF)")
    reader.skip(4)
    version, n_tensors, n_facts = reader.numbers("IQQ")
    if version not in (2, 3):
        raise ValueError(f"GGUF version {version} (2 and 3 are known)")
    if n_facts > _MAX_FACTS or not 0 < n_tensors <= _MAX_TENSORS:
        raise ValueError(f"the GGUF header says {n_facts} facts and {n_tensors} tensors")
    facts: dict[str, object] = {}
    for _ in range(n_facts):
        name, kind = reader.text(), reader.number("I")
        facts[name] = reader.value(kind)
    tensors = [reader.tensor() for _ in range(n_tensors)]
    alignment = _whole(facts, "general.alignment", 32)
    if alignment > 1 << 16:
        raise ValueError(f"the GGUF header says an alignment of {alignment}")
    storage_bytes = file_bytes - -(-reader.at // alignment) * alignment
    if (end := max(tensor.end for tensor in tensors)) > storage_bytes:
        raise ValueError(f"the GGUF file is cut off: {end - storage_bytes} bytes are missing at its end")
    return _card(model_id, facts, tensors, storage_bytes, path)


def _card(
    model_id: str, facts: dict[str, object], tensors: list[_Tensor], storage_bytes: int, path: str | None
) -> ModelCard:
    family = facts.get("general.architecture")
    if not isinstance(family, str) or not re.fullmatch(r"[a-z0-9_.-]{1,64}", family):
        raise ValueError(f"the GGUF header has no name of an architecture ({ascii(family)[:80]})")
    hidden = _whole(facts, f"{family}.embedding_length")
    heads = _whole(facts, f"{family}.attention.head_count")
    n_layers = _whole(facts, f"{family}.block_count")
    if n_layers > len(tensors):
        raise ValueError(f"the GGUF header says {n_layers} layers and has {len(tensors)} tensors")
    bits = max(tensors, key=lambda tensor: tensor.size_bytes if tensor.name.startswith("blk.") else -1).bits
    ends = ("token_embd.", "output.")
    return ModelCard(
        model_id=model_id,
        n_layers=n_layers,
        hidden_size=hidden,
        n_heads=heads,
        n_kv_heads=_whole(facts, f"{family}.attention.head_count_kv", heads),
        head_dim=_whole(facts, f"{family}.attention.key_length", max(1, hidden // heads)),
        vocab_size=_whole(facts, f"{family}.vocab_size", _length(facts.get("tokenizer.ggml.tokens"))),
        storage_bytes=storage_bytes,
        embedding_bytes=sum(tensor.size_bytes for tensor in tensors if tensor.name.startswith(ends)),
        context_length=_whole(facts, f"{family}.context_length", 2048),
        family=family,
        bits=bits if bits < 16 else None,
        source="gguf",
        path=path,
    )


def _whole(facts: dict[str, object], name: str, default: int | None = None) -> int:
    value = facts.get(name, default)
    # Some models have a value for each layer; the first one stands for all.
    value = value[1] if isinstance(value, tuple) else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"GGUF header: {name[:80]!a} is {ascii(value)[:80]}, a positive whole number is needed")
    return value


def _length(array: object) -> int | None:
    return array[0] if isinstance(array, tuple) else None
