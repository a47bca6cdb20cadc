"""Reducing: a log folded with another reducer too, which somebody wrote or is about to change."""

import importlib
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, cast

from exo_cli.engine.core.errors import ExitCode, FailedError, UsageError
from exo_cli.engine.core.parting import Parting, Reducer
from exo_cli.engine.replaying.feeding import fold_of, fold_source
from exo_cli.engine.replaying.source import Lenient, Source

_EXAMPLE = "exo replay LOG --reducer exo_cli.engine.core.reducer:apply"


def part(path: str, name: str, lenient: Lenient) -> dict[str, object]:
    """Where the reducer `MODULE:FUNCTION` and ours part ways, and the exit code.

    Raises:
        UsageError: it is not called so, or cannot be imported.
        FailedError: it raised.
        NotFoundError, BadDataError: see `replay`.
    """
    parting = Parting(reducer_called(name))

    def see(*seen: Any) -> None:
        try:
            with redirect_stdout(sys.stderr):  # what it prints is no answer of ours
                parting.see(*seen)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            index = seen[1].index
            raise FailedError(
                f"{name} raised at record {index}: {_told(error)}",
                f"exo replay {shlex.quote(path)} --events --from {index} --to {index}",
            ) from error

    with Source(path) as source:
        fold = fold_of(source)
        fold.watch(see)
        fold_source(fold, source, lenient)
    item = parting.item(fold.state)
    code = ExitCode.OK if parting.event is None else ExitCode.DIFFERS
    return {"revision": fold.state.index, "item": item, "exit_code": int(code)}


def _told(error: BaseException) -> str:
    """An error of code that is not ours, which may fail once more when it is asked what it is."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def reducer_called(name: str) -> Reducer:
    """The function `MODULE:FUNCTION`; modules are looked for where the command is run, too. Raises UsageError."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise UsageError(f"not MODULE:FUNCTION: {name!a}", _EXAMPLE)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        with redirect_stdout(sys.stderr):
            found: object = importlib.import_module(module)
        for each in function.split("."):
            found = getattr(found, each)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(f"{name!a} cannot be imported: {_told(error)}", _EXAMPLE) from error
    if not callable(found):
        raise UsageError(f"{name!a} is no function", _EXAMPLE)
    return cast("Reducer", found)
