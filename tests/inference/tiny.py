"""Tiny random models of each family, as folders that look like the real thing. Nothing is downloaded."""

import json
from pathlib import Path
from typing import Any

from exo_cli.engine.inference.families import new_model

LAYERS = 6
CONTEXT = 512
_COMMON = {
    "hidden_size": 32,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "vocab_size": 256,
    "max_position_embeddings": CONTEXT,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 255,
}
_GEMMA3_TEXT = {
    **_COMMON,
    "model_type": "gemma3_text",
    "sliding_window": 16,
    "sliding_window_pattern": 3,
    "query_pre_attn_scalar": 8,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**_COMMON, "model_type": "llama", "tie_word_embeddings": False},
    "mistral": {
        **_COMMON,
        "model_type": "mistral",
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "sliding_window": 16,
    },
    "qwen2": {**_COMMON, "model_type": "qwen2"},
    "qwen3": {**_COMMON, "model_type": "qwen3"},
    "qwen3_moe": {
        **_COMMON,
        "model_type": "qwen3_moe",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [1],
        "moe_intermediate_size": 16,
        "norm_topk_prob": True,
    },
    "gemma3_text": _GEMMA3_TEXT,
    "gemma3": {"model_type": "gemma3", "vocab_size": 256, "text_config": _GEMMA3_TEXT, "eos_token_id": 255},
}
_TEMPLATE = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}[assistant]"


def write_model(folder: Path, family: str, *, packed: bool = False) -> Path:
    """A folder with a random model of the family; `packed` gives it 4-bit weights."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten

    config = dict(CONFIGS[family])
    folder.mkdir(parents=True)
    mx.random.seed(len(family))
    model = new_model(config)
    if config["model_type"].startswith("gemma3"):
        text = getattr(model, "language_model", model)
        text.sanitize({})  # Ties the head to the embedding, as weights without a head do.
    if packed:
        config["quantization"] = {"group_size": 32, "bits": 4}
        nn.quantize(model, group_size=32, bits=4, class_predicate=lambda _path, module: _packs(module))
    # Norms of all ones would hide a norm that is left out or done twice.
    weights = {name: _shaken(name, value) for name, value in tree_flatten(model.parameters())}
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """One token a byte; the last one ends a text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:255]
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab={**vocabulary, "<end>": 255}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "chat_template": _TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _packs(module: Any) -> bool:
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0


def _shaken(name: str, value: Any) -> Any:
    import mlx.core as mx

    return value + 0.1 * mx.random.normal(value.shape) if "norm" in name else value
