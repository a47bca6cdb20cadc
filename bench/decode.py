"""Decoding the small model at growing contexts: our loop against mlx_lm's own, in one process on the same threads.

The cache is filled with random numbers, because what is in it does not change the time and reading 8,000 tokens of
prompt would take most of it. Greedy on both sides; the median token of a round, a round
of one after a round of the other.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.measure import Row, ratio, spread
from exo_cli.engine.probe import cores, threads_for
from exo_cli.engine.runner.blas import blas_environment

CONTEXTS = (128, 512, 1024, 2048, 4096, 8000)
ROUNDS, TOKENS, SKIPPED = 5, 16, 4


def token_seconds(tokens: Iterator[object]) -> float:
    """The median time from each token to the next, without the first ones."""
    taken, before = [], time.perf_counter()
    for _ in tokens:
        now = time.perf_counter()
        taken.append(now - before)
        before = now
    return statistics.median(taken[SKIPPED:])


def filled(make: Callable[[], list[Any]], keys: int, width: int, length: int) -> list[Any]:
    """A cache that has seen `length` positions."""
    import mlx.core as mx

    cache, seen = make(), mx.random.normal((1, keys, length, width))
    for entry in cache:
        entry.update_and_fetch(seen, seen)
        mx.eval(entry.keys, entry.values)
    return cache


def measured(cache_folder: Path, threads: int) -> None:
    """In a process that has an OpenBLAS preloaded: lines of [context, ours, theirs], seconds a token by round."""
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    from exo_cli.engine.core.tasks import ChatMessage, ChatParams, Sampling
    from exo_cli.engine.inference import Piece, backends
    from exo_cli.engine.inference.generate import CPU_CHUNK, Alone, Limits, generate
    from exo_cli.engine.inference.gguf import converted_in
    from exo_cli.engine.inference.loading import load_model, open_folder
    from exo_cli.engine.inference.pace import Pace
    from exo_cli.engine.inference.precision import Precision
    from exo_cli.engine.inference.stage import Stage
    from exo_cli.engine.inference.tokens import Vocabulary, open_vocabulary
    from tests.inference.smollm import LAYERS, gguf_file

    backends.set_blas_threads(threads)
    folder = open_folder(converted_in(cache_folder, gguf_file()), cache_folder)
    whole = range(LAYERS)
    model, _ = load_model(folder, whole, lambda _: Precision(True, ""), lambda *_: None, lambda: False)
    known = open_vocabulary(folder.path, folder.config)
    # Nothing ends an answer but its length.
    vocabulary = Vocabulary(known.prompt, known._decode, frozenset())
    stage = Stage(model, whole, LAYERS)
    norm, head = stage._norm, model.model.embed_tokens.as_linear
    heads, width = model.args.num_key_value_heads, model.args.hidden_size // model.args.num_attention_heads

    class Full(Alone):
        length = 0

        def begin(self) -> None:
            self._cache = filled(stage.new_cache, heads, width, self.length)

    def plain(tokens: mx.array, cache: list[Any]) -> mx.array:
        """The model as mlx_lm calls it; the stage has taken its norm away."""
        return head(norm(model.model(tokens, cache=cache)))

    ours, pace = Full(stage), Pace(threads, backends.set_blas_threads)
    asked = ChatParams(
        messages=(ChatMessage(role="user", content="hello"),),
        sampling=Sampling(temperature=0, max_tokens=TOKENS + SKIPPED),
        stop=("never said",),
    )
    prompt = mx.array(vocabulary.prompt(asked.messages))
    for length in CONTEXTS:
        ours.length = length
        taken: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            pieces = generate(ours, vocabulary, Limits(10**6, CPU_CHUNK, pace), asked, lambda: False)
            taken[0].append(token_seconds(piece for piece in pieces if isinstance(piece, Piece) and piece.tokens))
            cache = filled(stage.new_cache, heads, width, length)
            steps = generate_step(prompt, plain, max_tokens=TOKENS + SKIPPED, prompt_cache=cache)
            taken[1].append(token_seconds(steps))
        print(json.dumps([length, *taken]), flush=True)


def run() -> list[Row]:
    """In a process of its own, because the library has to be there before mlx."""
    threads = threads_for(1, cores(), 1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        environment = {**os.environ, **blas_environment(Path(name), threads)}
        command = [sys.executable, "-m", "bench.decode", name, str(threads)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    for length, ours, theirs in map(json.loads, told.splitlines()):
        rows.append(Row(f"decode at {length}, ours / mlx_lm", ratio(theirs, ours), 0.97, spread=spread(theirs)))
        rows.append(Row(f"decode at {length}, tokens a second", 1 / statistics.median(ours), unit="1/s"))
    return rows


if __name__ == "__main__":
    measured(Path(sys.argv[1]), int(sys.argv[2]))
