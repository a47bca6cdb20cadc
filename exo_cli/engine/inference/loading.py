"""From a model folder to weights in memory: only those of the layers asked for, one layer after another.

It knows folders of safetensors with a config.json; GGUF files are made into one first. Nothing that comes with a model
is ever run: what would need that is refused in one sentence.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_flatten

from exo_cli.engine.inference import CalledOffError, Cancelled, EngineError, Progress
from exo_cli.engine.inference.families import FAMILIES, new_model, parts_of, whole_mlx_lm
from exo_cli.engine.inference.gguf import converted_in
from exo_cli.engine.inference.precision import Precision, float32_bytes, to_float32, unpacked
from exo_cli.engine.inference.stage import narrow

nn: Any = mlx.nn  # Its names come without types.
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
Chooser = Callable[[int], Precision]
"""From the bytes that a shard takes in float32 to how its weights are held."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A model folder whose config was read and found harmless."""

    path: Path
    config: dict[str, Any]

    @property
    def known(self) -> bool:
        """Whether the model is of a family that can be split."""
        return self.config.get("model_type") in FAMILIES


def open_folder(path: Path, cache_folder: Path) -> Folder:
    """The folder of a model: `path`, or what a GGUF file at `path` is made into, once, in the cache.

    Raises:
        EngineError: it is not there, cannot be read, or would need code that comes with it.
    """
    if path.is_file():
        path = converted_in(cache_folder, path)
    try:
        config = json.loads((path / "config.json").read_text())
    except OSError as error:
        raise EngineError(f"{path} has no config.json that can be read", "bad_model") from error
    except ValueError as error:
        raise EngineError(f"{path}/config.json is no JSON: {error}", "bad_model") from error
    if not isinstance(config, dict):
        raise EngineError(f"{path}/config.json is no JSON object", "bad_model")
    if "model_file" in config:
        raise EngineError(
            f"{path.name} brings code of its own ({config['model_file']!a} as model_file), which is never run",
            "foreign_code",
        )
    generation = path / "generation_config.json"
    if generation.is_file():
        ends = json.loads(generation.read_text()).get("eos_token_id")
        config = config if ends is None else {**config, "eos_token_id": ends}
    return Folder(path, config)


def load_model(
    folder: Folder, layers: range, choose: Chooser, on_progress: Progress, cancelled: Cancelled
) -> tuple[Any, Precision]:
    """The model narrowed to `layers`, its weights in memory as `choose` says.

    Raises:
        EngineError: a file or a weight is missing or does not fit.
        CalledOffError: `cancelled` became true.
    """
    if folder.known:
        model = _quick(folder, layers) if _is_plain(folder) else _through_mlx_lm(folder)
        if not _is_plain(folder):
            narrow(model, layers)
        holders = list(_holders(parts_of(model), layers))
    else:
        model = _through_mlx_lm(folder)
        holders = [(model, None)]
    precision = choose(sum(float32_bytes(_value(*holder)) for holder in holders))
    own = 0
    for holder, key in holders:
        if cancelled():
            raise CalledOffError("load")
        if precision.float32:
            _widen(holder, key)
        mx.eval(_value(holder, key).parameters())
        if isinstance(holder, list):
            own += 1
            on_progress(own, len(layers))
    mx.clear_cache()
    on_progress(len(layers), len(layers))
    return model, precision


def model_bytes(model: Any) -> int:
    """Bytes of weights held."""
    return sum(value.nbytes for value in _parameters(model).values())


def _parameters(model: Any) -> dict[str, mx.array]:
    return dict(cast("list[tuple[str, mx.array]]", tree_flatten(model.parameters())))


def _holders(parts: Any, layers: range) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of each module with weights here, in the order of reading: holder[key] is the module."""
    for name in ("embed_tokens", "norm"):
        if name in parts.inner:
            yield parts.inner, name
    if "lm_head" in parts.text:
        yield parts.text, "lm_head"
    for at in layers:
        yield parts.inner.layers, at


def _value(holder: Any, key: Any) -> Any:
    return holder if key is None else holder[key]


def _widen(holder: Any, key: Any) -> None:
    if key is None:
        to_float32(holder)
    else:
        holder[key] = unpacked(holder[key])


def _is_plain(folder: Folder) -> bool:
    """Whether the weights are packed in no way or in mlx's own; the many ways of others are mlx_lm's to know."""
    config = folder.config
    packing = config.get("quantization")
    foreign = config.get("quantization_config", packing) != packing
    foreign = foreign or "quantization_config" in config.get("text_config", {})
    odd = isinstance(packing, dict) and packing.get("mode", "affine") != "affine"
    return not (foreign or odd or config.get("quantize_activations") or (folder.path / "hf_quant_config.json").exists())


def _through_mlx_lm(folder: Folder) -> Any:
    try:
        model, _ = whole_mlx_lm("utils").load_model(folder.path, lazy=True)
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{folder.path.name} cannot be loaded: {error}", "bad_model") from error
    return model


def _quick(folder: Folder, layers: range) -> Any:
    model = new_model(folder.config)
    weights = {name: value for name, value in _weights(folder, layers).items() if _is_here(name, layers)}
    weights = dict(model.sanitize(weights)) if hasattr(model, "sanitize") else weights
    if packing := folder.config.get("quantization"):
        _pack(model, packing, weights)
    narrow(model, layers)
    if layers.start > 0:
        wanted = _parameters(model)
        weights = {name: value for name, value in weights.items() if name in wanted}
    try:
        model.eval()
        model.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise EngineError(
            f"the weights of {folder.path.name} do not fit its config.json: {error}", "bad_model"
        ) from error
    return model


def _weights(folder: Folder, layers: range) -> dict[str, mx.array]:
    """All weights in the files that have some of these layers, or what is in no layer; nothing is read yet."""
    index = folder.path / "model.safetensors.index.json"
    if index.is_file():
        places = json.loads(index.read_text())["weight_map"]
        files = sorted({folder.path / file for name, file in places.items() if _is_here(name, layers)})
    else:
        files = sorted(folder.path.glob("model*.safetensors"))
    if missing := [file.name for file in files if not file.is_file()]:
        raise EngineError(f"{folder.path} lacks {', '.join(missing)}", "bad_model")
    if not files:
        raise EngineError(f"{folder.path} has no model*.safetensors", "bad_model")
    weights: dict[str, mx.array] = {}
    for file in files:
        try:
            weights.update(cast("dict[str, mx.array]", mx.load(str(file))))
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"{file} cannot be read: {error}", "bad_model") from error
    return weights


def _is_here(name: str, layers: range) -> bool:
    found = _LAYER.search(name)
    return found is None or int(found[1]) in layers


def _pack(model: Any, packing: dict[str, Any], weights: dict[str, mx.array]) -> None:
    """Make packed modules where the weights are packed."""

    def how(path: str, module: Any) -> bool | dict[str, Any]:
        if path in packing:
            own: bool | dict[str, Any] = packing[path]
            return own
        if not hasattr(module, "to_quantized") or f"{path}.scales" not in weights:
            return False
        # What the weights themselves say counts: the figures at the top need not hold for each of them.
        columns = module.weight.shape[-1]
        bits = weights[f"{path}.weight"].shape[-1] * 32 // columns
        return {"group_size": columns // weights[f"{path}.scales"].shape[-1], "bits": bits}

    nn.quantize(model, group_size=packing["group_size"], bits=packing["bits"], class_predicate=how)
