"""A GGUF file as a folder that mlx-lm reads: config.json, model.safetensors and the files of its tokenizer.

It knows the llama family with a byte-level BPE tokenizer; anything else is refused by name, because a guess would
answer nonsense without an error. Points that cost time to find:

* mx.load reads GGUF with its facts; quantised tensors come back as weight, scales and biases, in groups of 32.
* the llama converter of GGUF permutes q and k, so rope runs in its interleaved form: rope_traditional.
* tensors of one file differ in bits: those that are not 4 have a row of their own in config["quantization"].
* "smollm" splits digits one by one before the byte-level step.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exo_cli.engine.inference import EngineError
from exo_cli.engine.once import made_once

_FORMAT = 1
"""Raised when the folder of the same file would come out differently; it is part of the folder's name in a cache."""
_GROUP_SIZE = 32
_NORMAL_BITS = 4
_CONTROL, _USER_DEFINED = 3, 4
_TENSORS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def converted_in(cache_folder: Path, source: Path) -> Path:
    """The folder made of `source`, in the cache; made now if it is not there or the file has changed."""
    facts = source.stat()
    key = f"{source.resolve()}\x1f{facts.st_size}\x1f{facts.st_mtime_ns}\x1f{_FORMAT}"
    name = f"{re.sub(r'[^A-Za-z0-9._-]', '_', source.stem)[:64]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    return converted(source, cache_folder / name)


def converted(source: Path, target: Path) -> Path:
    """The folder `target`, made of `source` if it is not there: whole or not at all, and by one process."""
    if not source.is_file():
        raise EngineError(f"{source} is no file", "bad_model")
    return made_once(target, lambda draft: _convert(source, draft))


def _convert(source: Path, draft: Path) -> None:
    import mlx.core as mx

    try:
        with mx.stream(mx.cpu):
            loaded: Any = mx.load(str(source), format="gguf", return_metadata=True)
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"{source} cannot be read as GGUF: {error}", "bad_model") from error
    weights, meta = loaded
    facts = _Facts(meta)
    draft.mkdir()
    if (family := facts.text("general.architecture")) != "llama":
        raise EngineError(f"GGUF files of the family {family!a} are not supported (llama is)", "unsupported_model")
    tensors = {_renamed(name): value for name, value in weights.items()}
    (draft / "config.json").write_text(json.dumps(_config(facts, tensors), indent=1))
    mx.save_safetensors(str(draft / "model.safetensors"), tensors, metadata={"format": "mlx"})
    _write_tokenizer(draft, facts)


class _Facts:
    """Typed reading of what a GGUF file says of itself."""

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self._meta = meta

    def number(self, key: str, default: float | None = None) -> Any:
        value = self._meta.get(key)
        if value is None:
            if default is None:
                raise EngineError(f"the GGUF file does not say {key}", "bad_model")
            return default
        return value.item()

    def text(self, key: str) -> str | None:
        value = self._meta.get(key)
        return value if isinstance(value, str) else None

    def words(self, key: str) -> list[str]:
        value = self._meta.get(key)
        if not isinstance(value, list):
            raise EngineError(f"the GGUF file has no {key}", "bad_model")
        return value

    def numbers(self, key: str) -> list[int]:
        value = self._meta.get(key)
        return [] if value is None else value.tolist()


def _renamed(name: str) -> str:
    if layer := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(\w+)", name):
        if layer[2] in _TENSORS:
            return f"model.layers.{layer[1]}.{_TENSORS[layer[2]]}.{layer[3]}"
    else:
        outer, _, kind = name.partition(".")
        if outer in _OUTER:
            return f"{_OUTER[outer]}.{kind}"
    raise EngineError(f"the GGUF file has a tensor {name!a} that this conversion does not know", "unsupported_model")


def _config(facts: _Facts, tensors: Mapping[str, Any]) -> dict[str, Any]:
    quantization: dict[str, Any] = {"group_size": _GROUP_SIZE, "bits": _NORMAL_BITS}
    names = [name.removesuffix(".scales") for name in tensors if name.endswith(".scales")]
    for name in names:
        bits = tensors[name + ".weight"].shape[-1] * 32 // (tensors[name + ".scales"].shape[-1] * _GROUP_SIZE)
        if bits != _NORMAL_BITS:
            quantization[name] = {"group_size": _GROUP_SIZE, "bits": bits}
    config = {
        "model_type": "llama",
        "hidden_size": facts.number("llama.embedding_length"),
        "num_hidden_layers": facts.number("llama.block_count"),
        "intermediate_size": facts.number("llama.feed_forward_length"),
        "num_attention_heads": (heads := facts.number("llama.attention.head_count")),
        "num_key_value_heads": facts.number("llama.attention.head_count_kv", heads),
        "rms_norm_eps": facts.number("llama.attention.layer_norm_rms_epsilon"),
        "vocab_size": len(facts.words("tokenizer.ggml.tokens")),
        "rope_theta": facts.number("llama.rope.freq_base", 10000.0),
        "rope_traditional": True,
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "attention_bias": "model.layers.0.self_attn.q_proj.bias" in tensors,
        "max_position_embeddings": facts.number("llama.context_length"),
        "eos_token_id": facts.number("tokenizer.ggml.eos_token_id"),
        "bos_token_id": facts.number("tokenizer.ggml.bos_token_id"),
    }
    return {**config, "quantization": quantization} if names else config


def _write_tokenizer(draft: Path, facts: _Facts) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models

    if (kind := facts.text("tokenizer.ggml.model")) != "gpt2":
        raise EngineError(f"GGUF tokenizers of the kind {kind!a} are not supported (gpt2 is)", "unsupported_model")
    tokens = facts.words("tokenizer.ggml.tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges: list[tuple[str, str]] = []
    for line in facts.words("tokenizer.ggml.merges"):
        left, _, right = line.partition(" ")
        merges.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(facts.text("tokenizer.ggml.pre") or "gpt-2")
    tokenizer.decoder = decoders.ByteLevel()
    kinds = facts.numbers("tokenizer.ggml.token_type")
    marked = [(token, kind) for token, kind in zip(tokens, kinds, strict=False) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in marked if k == _CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t, k in marked if k == _USER_DEFINED])
    tokenizer.save(str(draft / "tokenizer.json"))
    end = tokens[facts.number("tokenizer.ggml.eos_token_id")]
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[facts.number("tokenizer.ggml.bos_token_id")],
        "eos_token": end,
        "pad_token": end,
        "chat_template": facts.text("tokenizer.chat_template"),
        "model_max_length": facts.number("llama.context_length"),
        "clean_up_tokenization_spaces": False,
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    (draft / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def _pre_tokenizer(name: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    kinds: dict[str, Callable[[], list[Any]]] = {
        "gpt-2": lambda: [pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "smollm": lambda: [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ],
        "llama-bpe": lambda: [
            pre_tokenizers.Split(Regex(_LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ],
    }
    if name not in kinds:
        raise EngineError(
            f"the GGUF pre-tokenizer {name!a} is not supported ({', '.join(kinds)} are)", "unsupported_model"
        )
    return pre_tokenizers.Sequence(kinds[name]())
