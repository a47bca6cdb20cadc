"""The loop of a request: prompt in chunks, then token after token, until something ends it.

It knows what ends a request and in which order things are checked; it does not know where the layers are (`Forward`).
The prompt's last chunk gives the first token, so no position is computed twice or alone.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

import mlx.core as mx

from exo_cli.engine.core.tasks import ChatMessage, ChatParams, FinishReason, Sampling, Usage
from exo_cli.engine.inference import Cancelled, EngineError, Piece, Result
from exo_cli.engine.inference.pace import Pace
from exo_cli.engine.inference.sampling import Sampler, fresh_seed
from exo_cli.engine.inference.stage import Stage
from exo_cli.engine.inference.stopping import StopFilter
from exo_cli.engine.inference.tokens import Vocabulary

CPU_CHUNK, GPU_CHUNK = 64, 512
_CLEAR_EVERY_TOKENS = 256
_WARM_TOKENS = 2


class Forward(Protocol):
    """A model that one request at a time goes through."""

    lazy: bool
    """Whether `feed` only says what is to be computed, so that the next step can be queued behind this one."""

    def begin(self) -> None:
        """Start a request: nothing before it is known any more."""

    def feed(self, tokens: mx.array, wanted: bool) -> mx.array | None:
        """Tokens [1, L]; the logits after the last of them, [1, vocabulary], if wanted."""

    def end(self) -> None:
        """The request is over."""


class Alone:
    """A model of a known family with all its layers here."""

    lazy = True

    def __init__(self, stage: Stage) -> None:
        """Use a stage that is both first and last."""
        self._stage = stage
        self._cache: list[Any] = []

    def begin(self) -> None:
        """A fresh cache."""
        self._cache = self._stage.new_cache()

    def feed(self, tokens: mx.array, wanted: bool) -> mx.array | None:
        """As `Forward` says."""
        hidden = self._stage.from_tokens(tokens, self._cache)
        if wanted:
            return self._stage.logits(hidden)
        mx.eval(self._stage.cached(self._cache))
        return None

    def end(self) -> None:
        """Let go of the cache."""
        self._cache = []
        mx.clear_cache()


class Whole:
    """A model of any other family that mlx_lm has; nothing is known of its parts."""

    lazy = True

    def __init__(self, model: Any, new_cache: Any) -> None:
        """`new_cache` makes the cache of a task for `model`."""
        self._model, self._new_cache = model, new_cache
        self._cache: list[Any] = []

    def begin(self) -> None:
        """A fresh cache."""
        self._cache = self._new_cache(self._model)

    def feed(self, tokens: mx.array, wanted: bool) -> mx.array | None:
        """As `Forward` says."""
        logits: mx.array = self._model(tokens, cache=self._cache)
        if wanted:
            return logits[:, -1, :]
        mx.eval([entry.state for entry in self._cache])
        return None

    def end(self) -> None:
        """Let go of the cache."""
        self._cache = []
        mx.clear_cache()


@dataclass(frozen=True, slots=True)
class Limits:
    """Positions a request may use in all, those of a prefill chunk, and who says how many threads decode."""

    context_tokens: int
    chunk_tokens: int
    pace: Pace


def generate(
    forward: Forward, vocabulary: Vocabulary, limits: Limits, params: ChatParams, cancelled: Cancelled
) -> Iterator[Piece | Result]:
    """Pieces, then the result.

    Raises:
        EngineError: the prompt is refused (`context_overflow`: it does not fit), or the model computes no numbers.
    """
    began = time.perf_counter()
    seed = fresh_seed() if params.sampling.seed is None else params.sampling.seed
    first_token_seconds: float | None = None
    tokens = 0
    reason: FinishReason = "cancelled"
    prompt: list[int] = []
    try:
        forward.begin()
        prompt = vocabulary.prompt(params.messages)
        limit = _token_limit(len(prompt), limits.context_tokens, params.sampling.max_tokens)
        text, stops = vocabulary.stream(), StopFilter(params.stop)
        for token in _steps(forward, prompt, Sampler(params.sampling, seed), limits, limit, cancelled):
            if token is None:
                yield Piece("", 0)
                continue
            first_token_seconds = first_token_seconds or time.perf_counter() - began
            if token in vocabulary.ends:
                reason = "stop"
                break
            tokens += 1
            yield Piece(stops.feed(text.add(token)), 1)
            if stops.stopped or tokens == limit:
                reason = "stop" if stops.stopped else "length"
                break
    finally:
        forward.end()
    if rest := stops.feed(text.rest()) + stops.release():
        yield Piece(rest, 0)
    usage = Usage(
        prompt_tokens=len(prompt),
        tokens=tokens,
        first_token_seconds=first_token_seconds,
        seconds=time.perf_counter() - began,
    )
    yield Result("stop" if stops.stopped else reason, usage, seed)


def warm(forward: Forward, vocabulary: Vocabulary, limits: Limits, cancelled: Cancelled) -> None:
    """Go the path of a request: one whole chunk of prompt, one more position, two tokens."""
    chunk_tokens = limits.chunk_tokens
    hello = vocabulary.prompt((ChatMessage(role="user", content="hello"),)) or [0]
    prompt = (hello * (chunk_tokens // len(hello) + 1))[: chunk_tokens + 1]
    text = vocabulary.stream()
    try:
        forward.begin()
        for token in _steps(forward, prompt, Sampler(Sampling(), 0), limits, _WARM_TOKENS, cancelled):
            if token is not None:
                text.add(token)
    finally:
        forward.end()


def _token_limit(prompt_tokens: int, context_tokens: int, max_tokens: int | None) -> int:
    """How many tokens may come."""
    if prompt_tokens == 0:
        raise EngineError("the prompt is empty", "bad_request")
    room = context_tokens - prompt_tokens
    if room < 1:
        raise EngineError(
            f"the prompt has {prompt_tokens} tokens; the context holds {context_tokens}, one of them for the answer",
            "context_overflow",
        )
    return room if max_tokens is None else min(room, max_tokens)


def _steps(
    forward: Forward, prompt: list[int], sampler: Sampler, limits: Limits, limit: int, cancelled: Cancelled
) -> Iterator[int | None]:
    """None for each chunk of the prompt before the last, then the tokens; ends early when cancelled."""
    at, chunk_tokens, pace = 0, limits.chunk_tokens, limits.pace
    # The request before may have left a step at work, and threads change only while nothing is.
    mx.synchronize()
    pace.read()
    while len(prompt) - at > chunk_tokens:
        if cancelled():
            return
        forward.feed(mx.array([prompt[at : at + chunk_tokens]]), False)
        at += chunk_tokens
        yield None
    if cancelled():
        return
    now = _step(forward, mx.array([prompt[at:]]), sampler, 0)
    for position in range(1, limit + 1):
        began, more = time.perf_counter(), position < limit
        if more and (position == 1 or pace.due):
            mx.eval(*now)
            pace.decode()
        # Queued before this token is waited for, so that the device never idles; a split has nothing to queue.
        ahead = _step(forward, now[0][None], sampler, position) if more and forward.lazy else None
        token = _checked(now)
        pace.took(time.perf_counter() - began)
        yield token
        if not more or cancelled():
            return
        now = ahead or _step(forward, now[0][None], sampler, position)
        if position % _CLEAR_EVERY_TOKENS == 0:
            mx.clear_cache()


def _step(forward: Forward, tokens: mx.array, sampler: Sampler, position: int) -> tuple[mx.array, mx.array]:
    logits = forward.feed(tokens, True)
    assert logits is not None, "they were wanted"
    picked = sampler.pick(logits, position)
    mx.async_eval(*picked)  # type: ignore[no-untyped-call]  # its stub has no types
    return picked


def _checked(picked: tuple[mx.array, mx.array]) -> int:
    """The token, unless it was picked from numbers that are none: then any text would be garbage."""
    token, total = picked
    if not math.isfinite(cast("float", total.item())):
        raise EngineError("the model computed numbers that are none (NaN or infinite); nothing can be told from them")
    return cast("int", token.item())
