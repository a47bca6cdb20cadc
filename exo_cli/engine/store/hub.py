"""The process that speaks with the hub, for one question:

    python -m exo_cli.engine.store.hub config ORG/NAME[@REVISION]          its config.json, and the bytes of its weights
    python -m exo_cli.engine.store.hub files ORG/NAME[@REVISION] FOLDER    its files, into FOLDER

Prints JSON lines: `{"progress": [downloaded, total]}` as often as it likes, then `{"answer": ...}` or `{"error": ...}`.
It ends when its standard input does. Foreign errors become ours here, and nowhere else.
"""

import contextlib
import errno
import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from exo_cli.engine.core.errors import AuthError, BadDataError, ExoError, FailedError, NotFoundError, UnavailableError
from exo_cli.engine.store.fetching import bring_all, no_space
from exo_cli.engine.store.files import MANIFEST
from exo_cli.engine.store.listing import listing, transfer

_CONFIG_BYTES = 1 << 22


def config(name: str) -> dict[str, object]:
    """What a card is made of; of the files only `config.json` is read."""
    wanted = listing(name)
    try:
        if wanted.files["config.json"] > _CONFIG_BYTES:
            raise ValueError(f"config.json has {wanted.files['config.json']} bytes")
        text = io.BytesIO()
        transfer(wanted, "config.json", text, 0, lambda _count: None)
        facts: object = json.loads(text.getvalue())
        if not isinstance(facts, dict):
            raise ValueError("config.json is no JSON object")
    except (ValueError, RecursionError) as error:
        raise BadDataError(f"{name}: {error}", details={"permanent": True}) from None
    return {"config": facts, "weight_bytes": wanted.weight_bytes}


def files(name: str, folder: Path) -> dict[str, object]:
    """Bring all files of a model into `folder`."""
    try:
        bring_all(name, folder, lambda here, total: _say({"progress": [here, total]}))
    except Exception as error:
        if _status(error) == 404:
            # The commit that was begun is gone: let the next try begin with what there is now.
            (folder / MANIFEST).unlink(missing_ok=True)
        raise
    return {"folder": str(folder)}


@contextlib.contextmanager
def _told(name: str, folder: Path | None) -> Iterator[None]:
    """Foreign errors as ours: the one table of this adapter."""
    try:
        yield
    except ExoError:
        raise
    except Exception as error:
        if status := _status(error):
            raise _refused(name, status) from error
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise no_space(name, folder, "no space left") from error
        # The library changed its HTTP package once already; the name of this class stayed.
        if any(kind.__name__ == "TransportError" for kind in type(error).__mro__):
            raise UnavailableError(
                f"the hub at {_endpoint()} cannot be reached ({type(error).__name__})",
                "check the network, or HF_ENDPOINT",
                details={"permanent": False},
            ) from error
        line = f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise FailedError(line, details={"permanent": isinstance(error, PermissionError)}) from error


def _status(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _refused(name: str, status: int) -> ExoError:
    address = f"{_endpoint()}/{name.partition('@')[0]}"
    permanent: dict[str, object] = {"permanent": True, "status": status}
    match status:
        case 401:
            hint = "export HF_TOKEN=... (on the node that fetches), or check the name"
            return AuthError(f"{name} does not exist on the hub, or needs a token", hint, details=permanent)
        case 403:
            return AuthError(f"access to {name} is not granted", f"accept its terms at {address}", details=permanent)
        case 404 | 410:
            return NotFoundError(f"there is no {name} on the hub", f"check the name at {address}", details=permanent)
        case 408 | 425 | 429 | 500 | 502 | 503 | 504:
            passing: dict[str, object] = {"permanent": False, "status": status}
            return UnavailableError(f"the hub at {_endpoint()} answers {status} for {name}", details=passing)
        case _:
            return FailedError(f"the hub at {_endpoint()} answers {status} for {name}", details=permanent)


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def _say(value: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(1 << 10):
        pass
    os._exit(1)


def main(name: str, folder: Path | None) -> int:
    """Answer the one question: with a folder, bring the files into it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with _told(name, folder):
            _say({"answer": config(name) if folder is None else files(name, folder)})
    except ExoError as error:
        said = {"message": error.message, "hints": error.hints, "details": error.details}
        _say({"error": {"code": error.code, "exit": int(error.exit_code), **said}})
        return 1
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["config", name]:
            os._exit(main(name, None))
        case ["files", name, folder]:
            os._exit(main(name, Path(folder)))
        case _:
            sys.exit(__doc__)
