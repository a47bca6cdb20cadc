"""In which numbers the weights of a shard are held: as stored, or in float32.

On a CPU mlx computes products of packed weights on one thread and slowly; with an OpenBLAS in front, float32 is ten
times faster in prefill and twice in decoding, for four to eight times the memory. On a GPU nothing is gained.
"""

from dataclasses import dataclass
from typing import Any, Literal

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_map, tree_unflatten

from exo_cli.engine.inference import EngineError
from exo_cli.engine.inference.backends import memory_bytes, on_gpu, openblas_preloaded
from exo_cli.engine.inference.families import model_module

nn: Any = mlx.nn  # Its names come without types.

_MARGIN_BYTES = 256 << 20
"""What a runner needs beside weights and cache: the interpreter, libraries, and the buffers of a step."""


@dataclass(frozen=True, slots=True)
class Precision:
    """A choice and its reason, as a sentence for people."""

    float32: bool
    note: str


def choose(wish: Literal["auto", "stored", "float32"], float32_bytes: int, cache_bytes: int) -> Precision:
    """How to hold weights that take `float32_bytes` as float32, beside a cache of `cache_bytes`."""
    size = f"{float32_bytes / 1e9:.2f} GB"
    if wish != "auto":
        return Precision(wish == "float32", f"weights {'in float32' if wish == 'float32' else 'as stored'}: asked for")
    if on_gpu():
        return Precision(False, "weights as stored: on a GPU")
    if not openblas_preloaded():
        return Precision(False, "weights as stored: no OpenBLAS is preloaded, so float32 would gain little")
    _, available = memory_bytes()
    if float32_bytes + cache_bytes + _MARGIN_BYTES > available:
        return Precision(False, f"weights as stored: {size} of float32 do not fit into {available / 1e9:.2f} GB")
    return Precision(True, f"weights in float32 ({size}): OpenBLAS is preloaded and memory suffices")


def float32_bytes(module: Any) -> int:
    """What the weights of a module take in float32."""
    return 4 * sum(_numbers(part) for part in module.modules())


def to_float32(module: Any) -> None:
    """Unpack and widen the weights of a module, lazily."""
    unpacked = [(path, plain) for path, leaf in module.named_modules() if path and (plain := _unpacked(leaf))]
    if unpacked:
        module.update_modules(tree_unflatten(unpacked))
    module.update(tree_map(_widened, module.parameters()))


def unpacked(module: Any) -> Any:
    """The module itself in float32 where it is a packed one, else the same with its weights widened, lazily."""
    plain = _unpacked(module)
    if plain is not None:
        return plain
    to_float32(module)
    return module


def _widened(value: mx.array) -> mx.array:
    return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value


def _numbers(part: Any) -> int:
    """Weights that a module itself holds (not its children), counted as they are once unpacked."""
    own = {name: value for name, value in part.items() if isinstance(value, mx.array)}
    if "scales" not in own:
        return sum(value.size for value in own.values())
    packed = own.pop("weight").size * 32 // part.bits
    return int(packed) + sum(value.size for name, value in own.items() if name not in ("scales", "biases"))


def _unpacked(module: Any) -> Any:
    """The plain module that a packed one stands for. Scales are widened first: 16 bits would round each weight."""
    if "scales" not in module:
        return None
    kinds: dict[type, Any] = {nn.QuantizedLinear: nn.Linear, nn.QuantizedEmbedding: nn.Embedding}
    if type(module) not in kinds:
        switches = model_module("switch_layers")
        kinds[switches.QuantizedSwitchLinear] = switches.SwitchLinear
    if type(module) not in kinds:
        raise EngineError(f"{type(module).__name__} weights cannot be held in float32", "unsupported_model")
    if module.mode != "affine":
        weight = mx.dequantize(module.weight, module.scales, None, module.group_size, module.bits, module.mode)
    else:
        scales, biases = module.scales.astype(mx.float32), module.biases.astype(mx.float32)
        weight = mx.dequantize(module.weight, scales, biases, module.group_size, module.bits)
    plain = kinds[type(module)].__new__(kinds[type(module)])
    nn.Module.__init__(plain)
    plain.weight = weight.astype(mx.float32)
    if "bias" in module:
        plain.bias = module.bias.astype(mx.float32)
    return plain
