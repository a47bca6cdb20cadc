"""Asking the hub through a child process: its progress, its answer, its errors. Cancelling kills it.

The child ends by itself when this process is gone: its standard input is a pipe that only we hold open.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, cast

import trio

from exo_cli.engine.core.errors import FailedError, kind_of

CHILD = (sys.executable, "-P", "-m", "exo_cli.engine.store.hub")
# Xet storage goes to hosts of its own, past HF_ENDPOINT.
_OURS = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
_REAP_SECONDS = 5.0
_PASSING: dict[str, object] = {"permanent": False}


async def ask(
    what: Literal["config", "files"],
    repository: str,
    environment: Mapping[str, str],
    folder: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda _here, _total: None,
) -> dict[str, object]:
    """Have the child look up what a card is made of, or bring the files of a repository into `folder`.

    Raises:
        ExoError: what the child said; `details["permanent"]` says whether another try can help.
    """
    command = [*CHILD, what, repository, *([str(folder)] if folder else [])]
    try:
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, **_OURS},
            start_new_session=True,
        )
    except OSError as error:
        raise FailedError(f"cannot ask the hub for {repository}: {error.strerror}", details=_PASSING) from None
    try:
        said = await _hear(process, on_progress)
        code = await process.wait()
    finally:
        await _clean_up(process)
    return _judged(said, repository, code)


async def _hear(process: trio.Process, on_progress: Callable[[int, int], None]) -> object:
    """Hand on progress until the child says no more; its last message is its answer.

    What a library of the child prints among them is passed over.
    """
    assert process.stdout is not None, "started with a pipe"
    held, said = b"", cast("object", None)
    async for chunk in process.stdout:
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            match message:
                case {"progress": [int(here), int(total)]}:
                    on_progress(here, total)
                case _:
                    said = message
    return said


async def _clean_up(process: trio.Process) -> None:
    process.kill()
    with trio.move_on_after(_REAP_SECONDS, shield=True):
        await process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)


def _judged(said: object, repository: str, code: int) -> dict[str, object]:
    match said:
        case {"answer": dict() as answer}:
            return answer
        case {
            "error": {"exit": int(exit_code), "code": str(), "message": str(), "hints": list(), "details": dict()} as no
        }:
            raise kind_of(exit_code)(no["message"], *map(str, no["hints"]), code=no["code"], details=no["details"])
        case _:
            raise FailedError(f"asking the hub for {repository} ended with code {code}", details=_PASSING)
