"""Rerunning: a recording of `exo node start --record` from its file through `core.rerun`, a line at a time."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, NamedTuple

from exo_cli.engine.core.errors import BadDataError, ExitCode
from exo_cli.engine.core.items import moment
from exo_cli.engine.core.rerun import Difference, Rerun
from exo_cli.engine.core.steps import LIMIT_BYTES, decode_beginning, decode_step
from exo_cli.engine.core.wire import BadLineError, NewerFormatError
from exo_cli.engine.log.sources import open_source, piped_source
from exo_cli.engine.replaying.source import STANDARD_INPUT

CHANGES_TOLD = 20


class _Line(NamedTuple):
    number: int
    bytes: bytes
    is_whole: bool


def rerun(path: str) -> dict[str, object]:
    """How many inputs were stepped, the first whose effects differ, and the exit code: 10 when there is one.

    Raises:
        NotFoundError: there is no such file.
        BadDataError: it is no recording, a newer one, or damaged before its last line.
    """
    name = "<stdin>" if path == STANDARD_INPUT else path
    with closing(piped_source(sys.stdin.buffer, name) if path == STANDARD_INPUT else open_source(Path(path))) as file:
        lines = _lines(file, name)
        first = next(lines, None)
        if first is None:
            raise BadDataError(f"{name} holds no recording", "exo node start --record FILE")
        try:
            beginning, state = decode_beginning(first.bytes)
        except BadLineError as error:
            raise _refusal(name, 1, error) from None
        machine = Rerun(beginning, state)
        difference, torn = _step_all(machine, lines, name)
    item: dict[str, object] = {
        "path": name,
        "format": f"{beginning.kind}/{beginning.format}",
        "version": beginning.version,
        "node_id": beginning.node_id,
        "inputs": machine.steps,
        "difference": None if difference is None else _item(difference),
        "torn_tail": torn,
    }
    return {"item": item, "exit_code": ExitCode.OK if difference is None else ExitCode.DIFFERS}


def _step_all(machine: Rerun, lines: Iterator[_Line], name: str) -> tuple[Difference | None, str | None]:
    """The first difference, or what a kill left of a last line; nothing is looked at behind either."""
    for line in lines:
        if not line.is_whole:
            return None, f"line {line.number}, {len(line.bytes)} bytes"
        try:
            difference = machine.take(*decode_step(line.bytes))
        except BadLineError as error:
            raise _refusal(name, line.number, error) from None
        if difference is not None:
            return difference, None
    return None, None


def _lines(file: BinaryIO, name: str) -> Iterator[_Line]:
    """The lines; of one that is longer than any that is written, nothing is kept."""
    number = 0
    try:
        while line := file.readline(LIMIT_BYTES + 1):
            number += 1
            if len(line) > LIMIT_BYTES:
                raise _refusal(name, number, BadLineError(f"it is longer than {LIMIT_BYTES} bytes"))
            yield _Line(number, line, line.endswith(b"\n"))
    except OSError as error:
        raise BadDataError(f"cannot read {name}: {error.strerror}", f"ls -l {shlex.quote(name)}") from None


def _refusal(name: str, number: int, error: BadLineError) -> BadDataError:
    is_newer = isinstance(error, NewerFormatError)
    hint = "pip install --upgrade exo-cli" if is_newer else "exo node start --record FILE"
    details: dict[str, object] = {"path": name, "line": number}
    return BadDataError(f"{name}: line {number} cannot be used: {error}", hint, details=details)


def _item(difference: Difference) -> dict[str, object]:
    told = difference.changes[:CHANGES_TOLD]
    return {
        "input": difference.number,
        "line": difference.number + 1,
        "type": difference.step.input["type"],
        "fields": {name: each for name, each in difference.step.input.items() if name != "type"},
        "at": moment(difference.step.at),
        "changes": [{"path": path, "recorded": recorded, "now": now} for path, recorded, now in told],
        "more_changes": len(difference.changes) - len(told),
    }
