"""Shards and instances: which part of which model belongs on which node.

An instance is one placed model; its shards cover the model exactly once (pipeline: consecutive layers; tensor: every
rank has all layers and a part of each). Layer ranges are half-open: [start_layer, end_layer).
"""

from typing import Literal

from pydantic import Field

from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.ids import AnId, NodeId, RunnerId
from exo_cli.engine.core.runners import Value

StrategyName = Literal["pipeline", "tensor"]


class Shard(Value):
    """One runner's part. `rank` of `world_size`; layers [start_layer, end_layer) of `n_layers`."""

    runner_id: AnId
    node_id: AnId
    rank: int = Field(ge=0)
    world_size: int = Field(ge=1)
    start_layer: int = Field(ge=0)
    end_layer: int = Field(ge=0)
    n_layers: int = Field(ge=1)

    @property
    def layers(self) -> range:
        """The layers of this shard, half-open."""
        return range(self.start_layer, self.end_layer)


class Instance(Value):
    """One placed model: its card, how it is split, and its shards in order of rank."""

    instance_id: AnId
    model_card: ModelCard
    strategy: StrategyName = "pipeline"
    engine: str = "mlx"
    context_tokens: int = Field(ge=1)
    shards: tuple[Shard, ...] = Field(min_length=1)

    def shard_on(self, node_id: str) -> Shard | None:
        """The shard of this instance on a node (at most one)."""
        return next((shard for shard in self.shards if shard.node_id == node_id), None)

    def shard_of(self, runner_id: str) -> Shard | None:
        """The shard that a runner holds."""
        return next((shard for shard in self.shards if shard.runner_id == runner_id), None)

    @property
    def runner_ids(self) -> tuple[RunnerId, ...]:
        """The runners, in order of rank."""
        return tuple(RunnerId(shard.runner_id) for shard in self.shards)

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        """The nodes, in order of rank."""
        return tuple(NodeId(shard.node_id) for shard in self.shards)
