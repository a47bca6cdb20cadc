"""Strategies: how a model is split. The table; one file each says whether it can, and who gets what."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.shards import StrategyName
from exo_cli.engine.core.strategies import pipeline


@dataclass(frozen=True, slots=True)
class Room:
    """A node that may take part: `layers_max` is how many layers fit into its usable bytes."""

    node_id: str
    usable_bytes: int
    layers_max: int


@dataclass(frozen=True, slots=True)
class Strategy:
    """`fault`: why a card cannot be split over n nodes, or None. `split`: layers [start, end) for each room."""

    fault: Callable[[ModelCard, int], str | None]
    split: Callable[[int, Sequence[int], Sequence[int]], list[range] | None]


STRATEGIES: dict[StrategyName, Strategy] = {
    "pipeline": Strategy(pipeline.fault, pipeline.split),
}
