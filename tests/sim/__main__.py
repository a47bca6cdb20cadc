"""`python -m tests.sim SEED` tells one story; `--seeds N` lives through N of them and says which broke a promise."""

import argparse
import sys
import time

from tests.sim.story import run
from tests.sim.world import BrokenPromiseError, World

TRACE_LINES = 60


def tell(world: World, lines: int) -> None:
    """The end of the trace."""
    for line in world.told(lines):
        print(line[:240])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--seeds", type=int, help="how many seeds to live through")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--trace", type=int, default=TRACE_LINES, help="how many lines of the trace to show")
    given = parser.parse_args()
    if (given.seed is None) == (given.seeds is None):
        parser.error("give a seed, or --seeds N")
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.seeds)
    began, broken = time.perf_counter(), []
    for seed in seeds:
        try:
            world = run(seed)
        except BrokenPromiseError as error:
            broken.append(seed)
            tell(error.world, given.trace)  # type: ignore[attr-defined]
            print(f"FAILED {error}\nagain: python -m tests.sim {seed}", flush=True)
            if error.__cause__ is not None and given.seed is not None:
                raise
            continue
        if given.seed is not None:
            tell(world, given.trace)
            print(
                f"seed {seed}: {len(world.shells)} nodes, {len(world.lines)} records, {world.steps} steps, all is well"
            )
    if given.seeds is not None:
        print(f"{len(seeds)} seeds in {time.perf_counter() - began:.1f} s, broken: {broken or 'none'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
