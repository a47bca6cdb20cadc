"""The card of what lies on this disk: a model folder, or a GGUF file. Never writes."""

import os
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from exo_cli.engine.core.cards import ModelCard, card_from_config
from exo_cli.engine.core.errors import AuthError, BadDataError, NotFoundError
from exo_cli.engine.core.gguf import ShortHeaderError, card_from_gguf
from exo_cli.engine.core.ids import derived, model_name_fault
from exo_cli.engine.store.files import CONFIG, missing_files, read_json, refuse_own_code, weight_files

_FIRST_READ_BYTES, _LAST_READ_BYTES = 1 << 22, 1 << 26
NAMES = "exo place smollm2  # or org/name[@revision], ./folder, /a/file.gguf"
_PERMANENT: dict[str, object] = {"permanent": True}


def card_of_path(path: Path) -> ModelCard:
    """The card of a folder or a GGUF file that somebody named by its path."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links, and names come from paths
    look = f"ls -l {shlex.quote(str(path))}"
    if os.path.isdir(path):  # noqa: PTH112 - that of Path raises where nothing may be looked at
        if not os.access(path, os.R_OK | os.X_OK):
            raise AuthError(f"the node may not read {path}", f"ls -ld {shlex.quote(str(path))}", details=_PERMANENT)
        missing = missing_files(path)
        if CONFIG in missing:
            raise NotFoundError(f"{path} holds no model (no {CONFIG})", look, NAMES, details=_PERMANENT)
        if missing:
            raise NotFoundError(
                f"{path} is no whole model: it lacks {', '.join(missing[:3])}", look, details=_PERMANENT
            )
        return card_of_folder(path, _name_of(path), "folder")
    if not os.path.exists(path):  # noqa: PTH110
        raise NotFoundError(f"there is no {path}", f"ls -l {shlex.quote(str(path.parent))}", NAMES, details=_PERMANENT)
    if path.suffix == ".gguf" and path.is_file():
        return card_of_file(path, _name_of(path))
    raise NotFoundError(f"{path} is neither a model folder nor a GGUF file", look, NAMES, details=_PERMANENT)


def card_of_folder(folder: Path, name: str, source: str) -> ModelCard:
    """The card of a folder with `config.json` and safetensors."""
    try:
        config = read_json(folder / CONFIG)
        refuse_own_code(name, config)
        storage_bytes = sum(file.stat().st_size for file in weight_files(folder))
        path = str(folder) if source == "folder" else None
        return card_from_config(name, config, storage_bytes, source=source, path=path)
    except (OSError, ValueError) as error:
        raise BadDataError(f"{folder}: {error}", f"ls -l {shlex.quote(str(folder))}", details=_PERMANENT) from None


def card_of_facts(answer: Mapping[str, object], name: str) -> ModelCard:
    """The card of what the hub process found."""
    match answer:
        case {"config": dict() as config, "weight_bytes": int(weight_bytes)}:
            refuse_own_code(name, config)
            try:
                return card_from_config(name, config, weight_bytes)
            except ValueError as error:
                raise BadDataError(f"{name}: {error}", details=_PERMANENT) from None
        case _:
            raise AssertionError(f"the hub process answered {answer}")


def card_of_file(file: Path, name: str) -> ModelCard:
    """The card of a GGUF file."""
    try:
        found = file.stat()
        return _read_card(file, name, found.st_size, found.st_mtime_ns)
    except (OSError, ValueError) as error:
        raise BadDataError(f"{file}: {error}", f"ls -l {shlex.quote(str(file))}", details=_PERMANENT) from None


@lru_cache(maxsize=64)
def _read_card(file: Path, name: str, size_bytes: int, _changed_at: int) -> ModelCard:
    """Read the header: a tenth of a second, so not twice of the same file."""
    length = _FIRST_READ_BYTES
    while True:
        with file.open("rb") as stream:
            head = stream.read(length)
        try:
            return card_from_gguf(name, head, size_bytes, path=str(file))
        except ShortHeaderError:
            if length >= _LAST_READ_BYTES:
                raise
            length *= 4


def is_the_one(file: Path, card: ModelCard) -> bool:
    """Whether a GGUF file is the one that the card was made of, wherever that lay."""
    try:
        found = file.stat()
        return file.suffix == ".gguf" and _read_card(
            file, card.model_id, found.st_size, found.st_mtime_ns
        ) == card.model_copy(update={"path": str(file)})
    except (OSError, ValueError):
        return False


def _name_of(path: Path) -> str:
    """A model name made of a path's last part; one of its hash when nothing is left of that."""
    name = re.sub(r"[^A-Za-z0-9._-]+|\.\.+", "-", path.stem if path.suffix == ".gguf" else path.name).strip("-._")[:95]
    return derived("m", str(path)) if model_name_fault(name) else name
