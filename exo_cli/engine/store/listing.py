"""What the hub has of a repository, and the transfer of one file. Only the hub process imports this.

The hub's library gives names, sizes, hashes, addresses, tokens and bytes; which files are wanted is decided here, and
code is never among them.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from exo_cli.engine.core.errors import NotFoundError

_WANTED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.(json|safetensors|txt|jinja|model|tiktoken)")
_STEP_BYTES = 1 << 18
_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of one commit that are wanted, with their sizes, and the hashes (SHA-256) of the large ones."""

    repository: str
    commit: str
    files: dict[str, int]
    hashes: dict[str, str]

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(self.files.values())

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights."""
        return sum(size for name, size in self.files.items() if name.endswith(".safetensors"))


def listing(name: str) -> Listing:
    """Ask the hub which files a repository has."""
    # The library's own call for this needs half a second more of imports.
    from huggingface_hub import constants
    from huggingface_hub.utils._headers import build_hf_headers
    from huggingface_hub.utils._http import get_session, hf_raise_for_status

    repository, _, revision = name.partition("@")
    address = f"{constants.ENDPOINT}/api/models/{repository}/revision/{revision or 'main'}"
    answer = get_session().get(address, params={"blobs": "true"}, headers=build_hf_headers(), timeout=_TIMEOUT_SECONDS)
    hf_raise_for_status(answer)
    told = json.loads(answer.content)
    found = {file["rfilename"]: file for file in told["siblings"] if _WANTED.fullmatch(file["rfilename"])}
    weights = {file for file in found if file.endswith(".safetensors")}
    if not weights or "config.json" not in found:
        raise NotFoundError(
            f"{name} has no weights as safetensors with a config.json",
            "look for a repository in the format of mlx-lm, as in mlx-community",
            details={"permanent": True},
        )
    # Some repositories have the same weights twice, in their maker's own layout too.
    doubled = {file for file in weights if not file.startswith("model")} if "model" in _stems(weights) else set[str]()
    chosen = {file: entry for file, entry in found.items() if file not in doubled}
    return Listing(
        repository,
        str(told["sha"]),
        {file: int(entry.get("size") or 0) for file, entry in chosen.items()},
        {file: str(entry["lfs"]["sha256"]) for file, entry in chosen.items() if entry.get("lfs")},
    )


def _stems(weights: set[str]) -> set[str]:
    return {re.split(r"[-.]", file, maxsplit=1)[0] for file in weights}


def transfer(wanted: Listing, file: str, target: Any, there_bytes: int, on_bytes: Callable[[int], None]) -> None:
    """Append a file to `target`, which has its first `there_bytes`."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import hf_hub_url, http_get
    from huggingface_hub.utils._headers import build_hf_headers

    # The library writes a step at a time: what a kill may lose, and how often progress is seen.
    constants.DOWNLOAD_CHUNK_SIZE = _STEP_BYTES
    http_get(
        hf_hub_url(wanted.repository, file, revision=wanted.commit),
        target,
        resume_size=there_bytes,
        headers=build_hf_headers(),
        expected_size=wanted.files[file],
        tqdm_class=_bar_for(on_bytes),
    )


def _bar_for(on_bytes: Callable[[int], None]) -> Any:
    """What the library takes for a progress bar."""

    class Bar:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, count: float | None = 1) -> None:
            on_bytes(int(count or 0))

    return Bar
