"""mlx_lm's model classes, reached without the rest of mlx_lm.

mlx_lm's own `__init__` imports transformers, which takes longer than reading a small model. So the package is put in
place without being run, and only its modules with models are imported; `whole_mlx_lm` runs it when that is not enough.

FAMILIES is the table of model types whose parts are known here, so that they can be split over ranks and loaded the
quick way. A row is added together with its row in tests/inference (alone = pipeline, bit for bit).
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any

from exo_cli.engine.inference import EngineError

FAMILIES: Mapping[str, str] = {
    "gemma3": "gemma3",
    "gemma3_text": "gemma3_text",
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3_moe",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """Where things are in a model of a known family: `text` applies the head to what `inner` gives."""

    text: Any
    inner: Any


def new_model(config: Mapping[str, Any]) -> Any:
    """A model of a known family as `config` says, its weights not yet evaluated (and not the right ones)."""
    family = str(config.get("model_type"))
    if family not in FAMILIES:
        raise EngineError(f"models of the family {family!a} cannot be split", "unsupported_model")
    module = model_module(FAMILIES[family])
    return module.Model(module.ModelArgs.from_dict(dict(config)))


def parts_of(model: Any) -> Parts:
    """The parts of a model of a known family."""
    text = getattr(model, "language_model", model)
    return Parts(text=text, inner=text.model)


def model_module(name: str) -> Any:
    """`mlx_lm.models.<name>`, without the rest of mlx_lm."""
    if "mlx_lm" not in sys.modules:
        spec = find_spec("mlx_lm")
        if spec is None:
            raise EngineError("mlx-lm is not installed", "no_backend")
        sys.modules["mlx_lm"] = module_from_spec(spec)
    return import_module(f"mlx_lm.models.{name}")


def whole_mlx_lm(name: str) -> Any:
    """`mlx_lm.<name>`, with all of mlx_lm."""
    package = sys.modules.get("mlx_lm")
    if package is not None and not hasattr(package, "load"):
        spec = package.__spec__
        assert spec is not None, "put in place from its spec"
        assert spec.loader is not None, "found in a file"
        spec.loader.exec_module(package)
    return import_module(f"mlx_lm.{name}")
