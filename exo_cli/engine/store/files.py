"""Which files make a model folder whole, and reading them without trust. Never writes; the hub process needs it too."""

import json
from pathlib import Path

from exo_cli.engine.core.errors import UsageError

CONFIG = "config.json"
MANIFEST = ".exo-files.json"
_JSON_BYTES = 1 << 24
_PERMANENT: dict[str, object] = {"permanent": True}


def missing_files(folder: Path) -> list[str]:
    """The files that a model folder lacks; none when it is complete.

    What has to be there is said by our own manifest where we fetched it, else by the index of its weights.
    """
    try:
        if (folder / MANIFEST).is_file():
            sizes = read_json(folder / MANIFEST)["files"]
            wanted = {str(name): size for name, size in sizes.items()} if isinstance(sizes, dict) else {}
            return [name for name, size in wanted.items() if _size(folder / name) != size] or (
                [] if wanted else [MANIFEST]
            )
        wanted_names = [CONFIG, *_indexed(folder)]
    except (OSError, ValueError, KeyError):
        return [MANIFEST]
    missing = [name for name in wanted_names if _size(folder / name) is None]
    return missing if missing or weight_files(folder) else ["*.safetensors"]


def weight_files(folder: Path) -> list[Path]:
    """The weights of a folder: the files named `model*`, else all safetensors."""
    files = sorted(folder.glob("*.safetensors"))
    return [file for file in files if file.name.startswith("model")] or files


def refuse_own_code(name: str, config: dict[str, object]) -> None:
    """A model that wants its own Python run is refused: whoever wrote it would own this machine."""
    if "model_file" in config:
        raise UsageError(
            f"{name} brings its own program code ({config['model_file']!a}), which is never run",
            "use a conversion of the model that mlx-lm knows by itself",
            details=_PERMANENT,
        )


def read_json(file: Path) -> dict[str, object]:
    """A JSON object from a file of bounded size."""
    with file.open("rb") as stream:
        text = stream.read(_JSON_BYTES + 1)
    if len(text) > _JSON_BYTES:
        raise ValueError(f"{file.name} has more than {_JSON_BYTES} bytes")
    try:
        value: object = json.loads(text)
    except RecursionError:
        raise ValueError(f"{file.name} is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"{file.name} is no JSON object")
    return value


def _indexed(folder: Path) -> list[str]:
    """The weight files that the index names; only plain names count, an index does not point out of its folder."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    places = read_json(index).get("weight_map")
    names = {str(name) for name in places.values()} if isinstance(places, dict) else set[str]()
    if any("/" in name or name.startswith(".") for name in names):
        raise ValueError(f"{index.name} names files elsewhere")
    return sorted(names)


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None
