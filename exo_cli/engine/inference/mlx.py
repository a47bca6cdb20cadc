"""The engine that runs models with mlx, alone or as one rank of a pipeline.

It puts the parts together and knows the order of things; mlx itself is imported when the group is joined or the
weights are read, because a runner may wait for a download before that, for hours.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from exo_cli.engine.core.tasks import ChatParams
from exo_cli.engine.inference import (
    CalledOffError,
    Cancelled,
    EngineError,
    Loaded,
    Piece,
    Progress,
    Result,
    Setting,
    backends,
)
from exo_cli.engine.inference.pace import Pace

if TYPE_CHECKING:
    from exo_cli.engine.inference.generate import Forward, Limits
    from exo_cli.engine.inference.loading import Folder
    from exo_cli.engine.inference.parallel.pipeline import Follower
    from exo_cli.engine.inference.parallel.ring import Ring
    from exo_cli.engine.inference.tokens import Vocabulary

_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_SMALL_CHUNK = 2


class MlxEngine:
    """An `Engine`. Imports of mlx are inside the methods, see above."""

    def __init__(self, setting: Setting, argument: str) -> None:
        """Nothing is imported or read yet."""
        if argument:
            raise EngineError(f"the engine mlx takes no argument, got {argument!a}", "no_engine")
        if setting.shard.world_size > 1 and setting.instance.strategy != "pipeline":
            raise EngineError(
                f"the engine mlx cannot split a model by {setting.instance.strategy} yet", "unsupported_strategy"
            )
        if not setting.shard.layers:
            raise EngineError(f"rank {setting.shard.rank} has no layers", "bad_shard")
        self._setting = setting
        self._ring: Ring | None = None
        self._forward: Forward | None = None
        self._follower: Follower | None = None
        self._vocabulary: Vocabulary | None = None
        self._pace = Pace(setting.threads, backends.set_blas_threads)
        for variable in _THREAD_VARIABLES:
            os.environ[variable] = str(setting.threads)

    def connect(self, ring: Sequence[str], rank: int) -> None:
        """Join the ring; one rank alone needs none."""
        if len(ring) != self._setting.shard.world_size:
            raise EngineError(f"a ring of {len(ring)} for {self._setting.shard.world_size} ranks", "no_ring")
        if len(ring) > 1:
            from exo_cli.engine.inference.parallel.ring import Ring

            self._ring = Ring(ring, rank)

    def load(self, model_path: Path, on_progress: Progress, cancelled: Cancelled) -> Loaded:
        """Read the layers of the shard; rank 0 reads the vocabulary too."""
        from exo_cli.engine.inference import loading, precision, tokens

        backends.set_blas_threads(self._setting.threads)
        backends.keep_resident()
        shard, instance = self._setting.shard, self._setting.instance
        if shard.world_size > 1 and self._ring is None:
            raise EngineError("one rank of several cannot load before it has joined its group", "no_ring")
        folder = loading.open_folder(model_path, self._setting.cache_folder)
        _check_layers(folder, shard.n_layers)
        if shard.world_size > 1 and not folder.known:
            raise EngineError(
                f"models of the family {folder.config.get('model_type')} cannot be split", "unsupported_model"
            )
        if shard.rank == 0:
            self._vocabulary = tokens.open_vocabulary(folder.path, folder.config)
        cache_bytes = instance.model_card.kv_bytes(instance.context_tokens, len(shard.layers))
        wish = self._setting.precision
        model, chosen = loading.load_model(
            folder, shard.layers, lambda size: precision.choose(wish, size, cache_bytes), on_progress, cancelled
        )
        self._put_together(model, folder)
        return Loaded(loading.model_bytes(model), chosen.note)

    def warmup(self, cancelled: Cancelled) -> None:
        """A chunk of prompt and a few tokens; rank 0 decides, the others follow."""
        if self._setting.shard.rank > 0:
            self.follow("warm-up")
            return
        from exo_cli.engine.inference.generate import CPU_CHUNK, warm

        forward, vocabulary, limits = self._ready()
        if self._ring is None and limits.chunk_tokens == CPU_CHUNK:
            # Alone on a CPU sizes do not matter, only that each step of the path has been gone. On a GPU they decide
            # what is compiled, in a group how much is on the wire at once.
            limits = replace(limits, chunk_tokens=_SMALL_CHUNK)
        warm(forward, vocabulary, limits, cancelled)
        if cancelled():
            raise CalledOffError("warm-up")

    def generate(self, task_id: str, params: ChatParams, cancelled: Cancelled) -> Iterator[Piece | Result]:
        """As the seam says."""
        from exo_cli.engine.inference.generate import generate

        return generate(*self._ready(), params, cancelled)

    def skip(self, task_id: str) -> None:
        """A task that is over before it began."""
        if self._ring is not None:
            self._ready()[0].end()

    def follow(self, task_id: str) -> None:
        """As the seam says."""
        if self._follower is None:
            raise EngineError("this rank has nothing loaded to follow with", "not_ready")
        self._follower.follow()

    def close(self) -> None:
        """Let go of weights and group; the process ends right after."""
        self._forward = self._follower = self._vocabulary = self._ring = None

    def _put_together(self, model: object, folder: "Folder") -> None:
        from exo_cli.engine.inference.families import model_module
        from exo_cli.engine.inference.generate import Alone, Whole
        from exo_cli.engine.inference.stage import Stage

        if not folder.known:
            self._forward = Whole(model, model_module("cache").make_prompt_cache)
            return
        stage = Stage(model, self._setting.shard.layers, self._setting.shard.n_layers)
        if self._ring is None:
            self._forward = Alone(stage)
            return
        from exo_cli.engine.inference.parallel.pipeline import Follower, Lead

        if self._ring.rank == 0:
            self._forward = Lead(stage, self._ring)
        else:
            self._follower = Follower(stage, self._ring)

    def _ready(self) -> "tuple[Forward, Vocabulary, Limits]":
        from exo_cli.engine.inference.generate import CPU_CHUNK, GPU_CHUNK, Limits

        if self._forward is None or self._vocabulary is None:
            raise EngineError("nothing is loaded", "not_ready")
        chunk_tokens = GPU_CHUNK if backends.on_gpu() else CPU_CHUNK
        return self._forward, self._vocabulary, Limits(self._setting.instance.context_tokens, chunk_tokens, self._pace)


def _check_layers(folder: "Folder", n_layers: int) -> None:
    inner = folder.config.get("text_config")
    facts = {**folder.config, **inner} if isinstance(inner, dict) else folder.config
    found = facts.get("num_hidden_layers")
    if folder.known and found != n_layers:
        raise EngineError(f"{folder.path.name} has {found} layers, the instance was placed for {n_layers}", "bad_model")
