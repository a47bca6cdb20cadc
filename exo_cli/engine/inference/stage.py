"""One rank's part of a model of a known family: its layers, with what comes before and after where that is its own.

It knows how a whole model is narrowed to a range of layers without the model noticing, and nothing of how the parts
are joined. Law: the parts, one after another, compute bit for bit what the whole computes. That is why the list of
layers keeps its length (some families choose masks by position) and why the caches of layers that are elsewhere still
count positions (masks and rotations are read off them).

Shapes: B = 1, L = positions of this call, D = hidden size.
"""

import copy
from typing import Any

import mlx.core as mx

from exo_cli.engine.inference.families import model_module, parts_of


class Stage:
    """A narrowed model after its weights are in place. `first` and `last` say which ends are here."""

    def __init__(self, model: Any, layers: range, total_layers: int) -> None:
        """Take over a model that `narrow` has narrowed to `layers` of `total_layers`."""
        self._model, self._layers = model, layers
        self.first, self.last = layers.start == 0, layers.stop == total_layers
        parts = parts_of(model)
        self._inner = parts.inner
        # The final norm belongs to the head, which is rank 0's wherever the last layer is.
        self._norm = self._inner.norm if self.first else None
        self._inner.norm = _passing
        self._head = _head_of(parts.text, self._inner) if self.first else None
        self._entry = None if self.first else _Entry(self._inner.layers[layers.start])
        if self._entry is not None:
            self._inner.layers[layers.start] = self._entry

    @property
    def hidden_size(self) -> int:
        """D."""
        return int(self._inner.args.hidden_size)

    def new_cache(self) -> list[Any]:
        """The cache of one task."""
        return list(model_module("cache").make_prompt_cache(self._model))

    def cached(self, cache: list[Any]) -> list[mx.array]:
        """What of a cache holds numbers here."""
        own = [cache[layer] for layer in self._layers]
        return [part for entry in own for part in (entry.keys, entry.values) if part is not None]

    def from_tokens(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        """Tokens [B, L] through the embedding and the layers of the first rank: [B, L, D], not normed."""
        hidden: mx.array = self._inner(tokens, cache=cache)
        return hidden

    def from_hidden(self, hidden: mx.array, cache: list[Any]) -> mx.array:
        """What the rank before computed, [B, L, D], through the layers of this one."""
        assert self._entry is not None, "the first rank begins with tokens"
        self._entry.incoming = hidden
        try:
            return self.from_tokens(mx.zeros(hidden.shape[:2], mx.int32), cache)
        finally:
            self._entry.incoming = None

    def logits(self, hidden: mx.array) -> mx.array:
        """The last of the positions [B, L, D] through norm and head: [B, vocabulary]. First rank only."""
        assert self._norm is not None, "norm and head are on the first rank"
        assert self._head is not None, "norm and head are on the first rank"
        logits: mx.array = self._head(self._norm(hidden[:, -1:, :]))
        return logits[:, -1, :]


def narrow(model: Any, layers: range) -> None:
    """Take away what is not this rank's, before or after weights are put in place, but before they are read."""
    parts = parts_of(model)
    inner, everything = parts.inner, parts.inner.layers
    inner.layers = [layer if at in layers else _Elsewhere(layer) for at, layer in enumerate(everything)]
    if layers.start > 0:
        inner.embed_tokens = _Blank(int(inner.args.hidden_size))
        inner.norm = _passing
        parts.text.pop("lm_head", None)


def _passing(hidden: mx.array) -> mx.array:
    return hidden


def _head_of(text: Any, inner: Any) -> Any:
    """What a family does after its last norm, whatever that is: the model around an inner part that does nothing."""
    head = copy.copy(text)
    head.model = _Through(inner)
    return head


class _Through:
    """Stands for the inner part of a model and gives back what it gets."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __call__(self, hidden: mx.array, *_args: Any, **_options: Any) -> mx.array:
        return hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Blank:
    """Stands for the embedding on a rank that gets hidden states: the right shape, no weights."""

    def __init__(self, hidden_size: int) -> None:
        self._hidden_size = hidden_size

    def __call__(self, tokens: mx.array) -> mx.array:
        return mx.zeros((*tokens.shape, self._hidden_size))


class _Elsewhere:
    """Stands for a layer that another rank has. Its cache counts positions, as that of the layer does there."""

    def __init__(self, layer: Any) -> None:
        # Families ask their layers what kind they are (sliding or not), on every rank.
        kinds = {name: fact for name, fact in vars(layer).items() if isinstance(fact, bool | int | float | str)}
        self.__dict__.update(kinds)

    def __call__(self, hidden: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        if cache is not None:
            cache.offset += hidden.shape[1]
        return hidden


class _Entry:
    """The first layer of a rank that is not the first: it goes on from what the rank before computed."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self.incoming: mx.array | None = None

    def __call__(self, hidden: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        assert self.incoming is not None, "set for each call"
        out: mx.array = self._layer(self.incoming, mask, cache=cache)
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)
