"""Model cards: facts about a model that placement needs, derived from its own files and never from a machine.

A card is made from `config.json` with the sizes of the weight files, or from a GGUF header. Sizes are bytes.
"""

from collections.abc import Mapping

from pydantic import Field, field_validator

from exo_cli.engine.core.ids import model_name_fault
from exo_cli.engine.core.runners import Value


class ModelCard(Value):
    """What a model is. `source` says where its bytes come from: `hub`, or `folder` / `gguf` with a path.

    Figures are bounded: cards come from files and from peers, and placement counts with them.
    """

    model_id: str
    n_layers: int = Field(ge=1, le=10_000)
    hidden_size: int = Field(ge=1, le=1_000_000)
    n_heads: int = Field(ge=1, le=1_000_000)
    n_kv_heads: int = Field(ge=1, le=1_000_000)
    head_dim: int = Field(ge=1, le=1_000_000)
    vocab_size: int = Field(ge=1, le=100_000_000)
    storage_bytes: int = Field(ge=0, lt=1 << 60)
    embedding_bytes: int = Field(ge=0, lt=1 << 60)
    context_length: int = Field(ge=1, le=1_000_000_000)
    family: str
    bits: int | None = None
    source: str = "hub"
    path: str | None = None

    @field_validator("model_id")
    @classmethod
    def _is_a_model_name(cls, value: str) -> str:
        if fault := model_name_fault(value):
            raise ValueError(fault)
        return value

    @property
    def layer_bytes(self) -> int:
        """Weights of one layer: what is left of the model without its embedding, spread evenly."""
        return -(-(self.storage_bytes - self.embedding_bytes) // self.n_layers)

    def kv_bytes(self, tokens: int, n_layers: int, bytes_per_number: int = 4) -> int:
        """The KV cache of `tokens` positions in `n_layers` layers: keys and values of every kv head."""
        return 2 * tokens * n_layers * self.n_kv_heads * self.head_dim * bytes_per_number


def card_from_config(
    model_id: str, config: Mapping[str, object], storage_bytes: int, *, source: str = "hub", path: str | None = None
) -> ModelCard:
    """The card of an mlx-lm / Hugging Face folder.

    `config` is its `config.json`, `storage_bytes` the sum of its weight files.

    Raises:
        ValueError: a needed key is missing or is no positive whole number.
    """
    inner = config.get("text_config")
    facts: Mapping[str, object] = {**config, **inner} if isinstance(inner, dict) else config
    hidden, heads = _whole(facts, "hidden_size"), _whole(facts, "num_attention_heads")
    quantization = facts.get("quantization") or facts.get("quantization_config")
    bits = quantization.get("bits") if isinstance(quantization, dict) else None
    vocab = _whole(facts, "vocab_size")
    bits = bits if isinstance(bits, int) else None
    tied = 1 if facts.get("tie_word_embeddings", True) else 2
    return ModelCard(
        model_id=model_id,
        n_layers=_whole(facts, "num_hidden_layers"),
        hidden_size=hidden,
        n_heads=heads,
        n_kv_heads=_whole(facts, "num_key_value_heads", heads),
        head_dim=_whole(facts, "head_dim", max(1, hidden // heads)),
        vocab_size=vocab,
        storage_bytes=storage_bytes,
        embedding_bytes=min(storage_bytes, tied * vocab * hidden * (bits or 16) // 8),
        context_length=_whole(facts, "max_position_embeddings", 2048),
        family=str(facts.get("model_type", "unknown"))[:64],
        bits=bits,
        source=source,
        path=path,
    )


def _whole(facts: Mapping[str, object], key: str, default: int | None = None) -> int:
    value = facts.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"config.json: {key} is {value!a}, a positive whole number is needed")
    return value
