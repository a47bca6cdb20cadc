"""Comparing: the logs and journals of several nodes, read side by side.

Of a node's home also what it put aside (`abandoned/`) and its journal are read: what a node knew and could not report
stands in no log.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from exo_cli.engine.core.alignment import Alignment, Copy, Failure, Position, Unreported, in_step
from exo_cli.engine.core.errors import ExitCode, UsageError
from exo_cli.engine.core.events import Record, TermStarted
from exo_cli.engine.core.state import load
from exo_cli.engine.core.wire import Header
from exo_cli.engine.log.scan import Entry, Torn, segments_of
from exo_cli.engine.replaying import replay
from exo_cli.engine.replaying.questions import Questions, notes_of
from exo_cli.engine.replaying.source import Lenient, Source, is_pipe

# A journal is a ring of 16 MiB; of failures that it tells of, so many are looked up.
FAILURES_KEPT = 10_000


def compare(paths: Sequence[str], *, check: bool, lenient: Lenient) -> dict[str, object]:
    """The alignment, the history that counts, what is wrong (in it only with `check`), and the exit code: 10 where
    current logs differ, 1 when something is found and `check`.

    Raises:
        UsageError: our logs and recordings together, one of them twice, or one that can be read only once.
        NotFoundError, BadDataError: see `replay`.
    """
    if len(set(map(_real, paths))) < len(paths):
        raise UsageError("one log is given twice", "exo replay --help")
    if any(map(is_pipe, paths)):
        raise UsageError("what is compared is read twice: a pipe cannot be", "exo replay --help")
    with ExitStack() as stack:
        sources = [stack.enter_context(Source(path)) for path in paths]
        if len({each.is_recording for each in sources}) > 1:
            raise UsageError("exo's own logs and recordings cannot be compared", "exo replay --help")
        kept = [Copy(path) for path in paths]
        put_aside = [folder for each in sources for folder in _abandoned(each)]
        sources += [stack.enter_context(Source(str(each))) for each in put_aside]
        alignment = Alignment([*kept, *(Copy(str(each), is_kept=False) for each in put_aside)])
        unreported = Unreported([failure for path in paths for failure in _failures(path)])
        logs = [_positions(copy, each, lenient) for copy, each in zip(alignment.copies, sources, strict=True)]
        for row in in_step(logs):
            unreported.see(row, alignment.see(row))
    head = alignment.head
    folded = replay(head.path, check=check, skip_bad=lenient.skip_bad, skip_unknown=lenient.skip_unknown)
    history = cast("dict[str, Any]", folded["item"])
    found = [each.item() for each in unreported.findings(load(history["state"]))]
    item = alignment.item() | {"history": head.path, "findings": [*found, *history["findings"]]}
    item |= {name: history[name] for name in ("events", "state_hash", "notes")}
    if folded["exit_code"] not in {ExitCode.OK, ExitCode.FAILED}:
        code = folded["exit_code"]
    elif alignment.difference:
        code = ExitCode.DIFFERS
    else:
        code = ExitCode.FAILED if check and (found or folded["exit_code"]) else ExitCode.OK
    return {"revision": head.last_index, "item": item, "exit_code": code}


def explain(paths: Sequence[str], name: str, *, check: bool, lenient: Lenient) -> dict[str, object]:
    """The story of one thing in the history that counts, with what the journals of all nodes say about it.

    Raises as `compare` and `replay`.
    """
    compared = cast("dict[str, Any]", compare(paths, check=False, lenient=lenient)["item"])
    head = str(compared["history"])
    questions = Questions(explain=name, beside=tuple(each for each in paths if each != head))
    told = replay(head, check=check, questions=questions, skip_bad=lenient.skip_bad, skip_unknown=lenient.skip_unknown)
    story = cast("dict[str, Any]", told["item"])["story"]
    story["findings"] += [each for each in compared["findings"] if each["id"] == story["id"]]
    return told


def _real(path: str) -> str:
    return str(Path(path).resolve())


def _abandoned(source: Source) -> list[Path]:
    """The folders beside a log in which its node put older histories."""
    below = source.folder / "abandoned" if source.folder is not None else None
    if below is None or not below.is_dir():
        return []
    return sorted(each for each in below.iterdir() if each.is_dir() and segments_of(each))


def _positions(copy: Copy, source: Source, lenient: Lenient) -> Iterator[Position]:
    """The records of one log; what its headers say of it, into the copy."""
    return _foreign(source) if source.is_recording else _ours(copy, source, lenient)


def _ours(copy: Copy, source: Source, lenient: Lenient) -> Iterator[Position]:
    for seen in source.lines(lenient):
        if isinstance(seen, Torn):
            copy.torn = True
        elif isinstance(seen, Entry) and isinstance(seen.line, Header):
            _introduce(copy, seen.line)
        elif isinstance(seen, Entry) and isinstance(seen.line, Record):
            line = seen.line
            if isinstance(line.event, TermStarted):
                copy.cluster_id = line.event.cluster_id
            content = (line.term, line.at, line.by, line.cause, line.event)
            text = line.event.model_dump_json(exclude={"type"})
            yield Position(line.index, line.term, content, line.event.type, text, line.at, line.event)


def _introduce(copy: Copy, header: Header) -> None:
    if copy.node_id is None:
        copy.node_id, copy.base_index = header.node_id, header.base_index
        copy.adopted_from, copy.last_index, copy.last_term = header.adopted_from, header.base_index, header.base_term
        copy.cluster_id = header.cluster_id


def _foreign(source: Source) -> Iterator[Position]:
    """A recording's events; the term of all is 0, and an event's place its index."""
    for index, seen in enumerate(source.events()):
        if not isinstance(seen, Torn):
            text = json.dumps(seen.fields, default=str, sort_keys=True)
            yield Position(index, 0, (seen.kind, text), seen.kind, text)


def _failures(path: str) -> Iterator[Failure]:
    """What the journal beside a log says that failed."""
    notes = list(notes_of(path, "failed", "refused"))
    if not notes:
        return
    node_id = _node_of(path)
    refused = [str(each.get("reason", "")) for each in notes if each["kind"] == "refused"]
    for note in [each for each in notes if each["kind"] == "failed"][-FAILURES_KEPT:]:
        name, index, attempt = note.get("id"), note.get("index"), note.get("attempt")
        if isinstance(name, str) and isinstance(index, int) and isinstance(attempt, int | None):
            yield Failure(
                node_id=node_id,
                id=name,
                attempt=attempt,
                instance_id=str(note.get("instance", "")),
                at=str(note.get("at")),
                index=index,
                error=str(note.get("error", "")),
                refused=tuple(dict.fromkeys(each for each in refused if name in each))[:3],
            )


def _node_of(path: str) -> str:
    with Source(path) as source:
        for seen in source.lines(Lenient(skip_bad=True, skip_unknown=True)):
            if isinstance(seen, Entry) and isinstance(seen.line, Header):
                return seen.line.node_id
    return shlex.quote(path)
