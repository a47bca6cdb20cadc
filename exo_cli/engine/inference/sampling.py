"""From logits to a token: greedy, or drawn with a key that depends on the seed and the position alone.

Law: the token at position n of a request with seed s is drawn with the key (s, n), so neither a neighbour nor an
earlier request changes it. It knows no text.
"""

import os
from collections.abc import Callable

import mlx.core as mx

from exo_cli.engine.core.tasks import Sampling

Filter = Callable[[mx.array], mx.array]
_NEVER = -float("inf")


def fresh_seed() -> int:
    """A seed nobody chose."""
    return int.from_bytes(os.urandom(4), "big")


class Sampler:
    """Picks tokens for one request."""

    def __init__(self, sampling: Sampling, seed: int) -> None:
        """As `sampling` says; its own seed is not looked at."""
        self._seed = seed
        self._temperature = sampling.temperature
        self._filters: list[Filter] = []
        if sampling.top_k:
            self._filters.append(lambda logprobs: _top_k(logprobs, sampling.top_k))
        if sampling.top_p < 1:
            self._filters.append(lambda logprobs: _top_p(logprobs, sampling.top_p))
        if sampling.min_p > 0:
            self._filters.append(lambda logprobs: _min_p(logprobs, sampling.min_p))

    def pick(self, logits: mx.array, position: int) -> tuple[mx.array, mx.array]:
        """The token [1] for `logits` [1, vocabulary], and a number that is finite if all of them made sense."""
        logits = logits.astype(mx.float32)
        total = mx.logsumexp(logits, axis=-1, keepdims=True)
        if self._temperature == 0:
            return mx.argmax(logits, axis=-1), total
        logprobs = logits - total
        for narrowed in self._filters:
            logprobs = narrowed(logprobs)
        key = mx.random.key((self._seed << 32) + position)
        return mx.random.categorical(logprobs * (1 / self._temperature), key=key), total


def _top_k(logprobs: mx.array, count: int) -> mx.array:
    """Only the `count` likeliest (and those as likely as the last of them)."""
    if count >= logprobs.shape[-1]:
        return logprobs
    least = mx.min(mx.topk(logprobs, count, axis=-1), axis=-1, keepdims=True)
    return mx.where(logprobs < least, _NEVER, logprobs)


def _top_p(logprobs: mx.array, mass: float) -> mx.array:
    """Only the likeliest that together reach `mass` of what the filters before have left."""
    ordered = mx.sort(logprobs, axis=-1)
    chances = mx.exp(ordered)
    above = mx.cumsum(chances, axis=-1, reverse=True, inclusive=False)
    total = above[..., :1] + chances[..., :1]
    dropped = mx.sum(above >= mass * total, axis=-1, keepdims=True)
    return mx.where(logprobs < mx.take_along_axis(ordered, dropped, axis=-1), _NEVER, logprobs)


def _min_p(logprobs: mx.array, share: float) -> mx.array:
    """Only those at least `share` as likely as the likeliest."""
    likeliest = mx.max(logprobs, axis=-1, keepdims=True)
    return mx.where(logprobs < likeliest + mx.log(mx.array(share)), _NEVER, logprobs)
