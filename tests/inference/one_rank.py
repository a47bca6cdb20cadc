"""One rank of a ring, as a process: `python -m tests.inference.one_rank RANK ADDRESSES FOLDER...`.

For each folder it goes through the same prompt (several chunks) and the same tokens as all others; rank 0 prints, as
JSON lines, a digest of the bits of the logits of each step.
"""

import hashlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any

from exo_cli.engine.inference.generate import Alone, Forward
from exo_cli.engine.inference.loading import load_model, open_folder
from exo_cli.engine.inference.precision import Precision
from exo_cli.engine.inference.stage import Stage
from tests.inference.tiny import LAYERS

CHUNK = 24
PROMPT = [(7 * position + position // 5) % 250 for position in range(70)]
DECODED = 8


def split(size: int) -> list[range]:
    """Uneven on purpose."""
    borders = {1: [0, LAYERS], 2: [0, 2, LAYERS], 3: [0, 1, 4, LAYERS]}[size]
    return [range(start, stop) for start, stop in itertools.pairwise(borders)]


def walk(forward: Forward) -> list[str]:
    """The digest of each step's logits: the prompt in chunks, then greedy tokens."""
    import mlx.core as mx
    import numpy as np

    digests: list[str] = []
    forward.begin()
    at = 0
    while len(PROMPT) - at > CHUNK:
        forward.feed(mx.array([PROMPT[at : at + CHUNK]]), False)
        at += CHUNK
    tokens = mx.array([PROMPT[at:]])
    for _ in range(DECODED):
        logits = forward.feed(tokens, True)
        assert logits is not None
        digests.append(hashlib.sha256(np.array(logits).tobytes()).hexdigest()[:12])
        tokens = mx.argmax(logits, axis=-1)[None]
    forward.end()
    return digests


def load(folder: Path, layers: range) -> Stage:
    """The layers of one rank, as stored."""
    model, _ = load_model(
        open_folder(folder, folder), layers, lambda _: Precision(False, ""), lambda _l, _t: None, lambda: False
    )
    return Stage(model, layers, LAYERS)


def main(arguments: list[str]) -> None:
    """Be a rank."""
    rank, addresses = int(arguments[0]), arguments[1].split(",")
    ring: Any = None
    if len(addresses) > 1:
        from exo_cli.engine.inference.parallel.ring import Ring

        ring = Ring(addresses, rank)
    for folder in map(Path, arguments[2:]):
        stage = load(folder, split(len(addresses))[rank])
        if ring is None:
            digests = walk(Alone(stage))
        else:
            from exo_cli.engine.inference.parallel.pipeline import Follower, Lead

            if rank > 0:
                Follower(stage, ring).follow()
                continue
            digests = walk(Lead(stage, ring))
        sys.stdout.write(json.dumps([folder.name, digests]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
