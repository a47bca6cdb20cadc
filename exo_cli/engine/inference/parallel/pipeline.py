"""Pipeline: consecutive layers on consecutive ranks, hidden states along the ring.

Rank 0 alone has the prompt, the head, the sampling and every decision. For each step it tells the next rank how many
positions come, and each rank computes and passes on; the last one gives the last position back to rank 0, which is its
neighbour in the ring. The other ranks see neither words nor tokens. At the end of a task rank 0 says END, and all go
back to their pipes: each task that the ranks were given has exactly one END, also one that was never begun.

A rank that cannot compute says FAILED in place of its result and keeps step until END, so that nobody waits for ever.
"""

from typing import Any

import mlx.core as mx

from exo_cli.engine.inference import EngineError
from exo_cli.engine.inference.parallel.ring import Header, Op, Ring
from exo_cli.engine.inference.stage import Stage


class Lead:
    """Rank 0: the whole model as far as generation can see. Implements `generate.Forward`."""

    lazy = False

    def __init__(self, stage: Stage, ring: Ring) -> None:
        """Lead the ranks of `ring` with the first layers in `stage`."""
        self._stage, self._ring = stage, ring
        self._cache: list[Any] = []

    def begin(self) -> None:
        """A fresh cache; the other ranks hear of the task with its first step."""
        self._cache = self._stage.new_cache()

    def feed(self, tokens: mx.array, wanted: bool) -> mx.array | None:
        """Tokens [1, L] through all ranks; the logits of the last one, [1, vocabulary], if wanted."""
        hidden = self._stage.from_tokens(tokens, self._cache)
        self._ring.send(Header(Op.STEP, positions=tokens.shape[1], wanted=wanted), hidden)
        if not wanted:
            return None
        header = self._ring.receive()
        if header.op is not Op.STEP:
            raise EngineError(f"rank {header.detail} cannot compute its layers (its own log says why)", "rank_failed")
        return self._stage.logits(self._ring.receive_hidden(header, self._stage.hidden_size))

    def end(self) -> None:
        """Let the other ranks go."""
        self._cache = []
        self._ring.send(Header(Op.END))


class Follower:
    """Any other rank."""

    def __init__(self, stage: Stage, ring: Ring) -> None:
        """Follow rank 0 with the layers in `stage`."""
        self._stage, self._ring = stage, ring
        self._to_lead = ring.rank == ring.size - 1

    def follow(self) -> None:
        """Keep step until the end of a task; raises then what went wrong here."""
        cache = self._stage.new_cache()
        failure: Exception | None = None
        while (header := self._ring.receive()).op is not Op.END:
            answer, hidden = header, None
            if header.op is Op.STEP:
                incoming = self._ring.receive_hidden(header, self._stage.hidden_size)
                if failure is None:
                    try:
                        hidden = self._compute(incoming, cache, header)
                    except Exception as error:  # Whatever it is, the other ranks are waiting.
                        failure = error
                if failure is not None:
                    answer = Header(Op.FAILED, wanted=header.wanted, detail=self._ring.rank)
            if not self._to_lead:
                self._ring.send(answer, hidden)
            elif header.wanted:
                self._ring.send(Header(answer.op, positions=1, detail=answer.detail), hidden)
        if not self._to_lead:
            self._ring.send(Header(Op.END))
        if failure is not None:
            raise failure

    def _compute(self, incoming: mx.array, cache: list[Any], header: Header) -> mx.array:
        """This rank's layers: all positions for the next rank, the last position for rank 0."""
        hidden = self._stage.from_hidden(incoming, cache)
        if self._to_lead:
            hidden = hidden[:, -1:, :]
            if not header.wanted:
                mx.eval(self._stage.cached(cache))
                return hidden
        mx.eval(hidden)
        return hidden
