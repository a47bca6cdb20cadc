"""Trials: a cure tried on a log, the least log that shows a fault (as a test), the first point where a thing holds."""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from exo_cli.engine.core.errors import BadDataError, NotFoundError, UsageError
from exo_cli.engine.core.events import Event
from exo_cli.engine.core.experiments import Recorded, first_index, shrunk, tried
from exo_cli.engine.core.foreign.translator import Translator
from exo_cli.engine.core.history import Placed
from exo_cli.engine.core.invariants.findings import Finding, key_of
from exo_cli.engine.core.state import State
from exo_cli.engine.core.wire import LINE_LIMIT_BYTES
from exo_cli.engine.paths.target import shown
from exo_cli.engine.replaying.feeding import fold_of, fold_source
from exo_cli.engine.replaying.source import Lenient, Source

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_TEST = '''"""{kind} of {id}, cut down to what it takes. Fails for as long as the fault is there."""

import json

from exo_cli.engine.core.experiments import Recorded
from exo_cli.engine.core.history import Placed
from exo_cli.engine.core.state import load
from exo_cli.engine.replaying.trials import EVENT, at_of

BASE = json.loads({base!r})
EVENTS = [
{events}
]


def test_no_{name}():
    placed = [
        Placed(index, EVENT.validate_json(event), at_of(at))
        for index, (at, event) in enumerate(EVENTS, BASE["index"] + 1)
    ]
    found = Recorded(timed={timed}, base=load(BASE)).judge(placed).in_order()
    assert [(each.kind, each.id, each.why) for each in found] == []
'''


def recorded(path: str, *, skip_bad: bool = False, skip_unknown: bool = False) -> Recorded:
    """All events of a log, in memory. Raises what `replay` raises."""
    with Source(path) as source:
        fold, events = fold_of(source), Recorded()
        fold.watch(events.see)
        fold_source(fold, source, Lenient(skip_bad, skip_unknown))
        events.timed = fold.timed
    return events


def trial(path: str, without: Sequence[int], added: Sequence[tuple[int, str]]) -> dict[str, object]:
    """What a log shows without some events, and with others put in before some.

    Raises:
        NotFoundError: no such index, no such file.
        BadDataError: a file that holds no event.
    """
    events = recorded(path)
    first = events.base.index + 1
    end = events.placed[-1].index + 1 if events.placed else first
    for index in (*without, *(index for index, _ in added)):
        if not first <= index <= end:
            raise NotFoundError(
                f"the log has no record {index}: it has {first} to {end - 1}", f"exo replay {shown(path)}"
            )
    edited = events.edited(without, [(index, _event(Path(file))) for index, file in added])
    told = tried(events, edited)
    return {
        "findings": [each.item() for each in told.findings.in_order()],
        "vanished": [each.item() for each in told.vanished],
        "new": [each.item() for each in told.new],
        "grave": told.findings.is_grave,
    }


def _event(file: Path) -> Event:
    """An event of ours, or one as the public system writes it."""
    try:
        value = json.loads(_text(file))
        if isinstance(value, dict) and "type" not in value and len(cast("dict[str, object]", value)) == 1:
            [(kind, fields)] = cast("dict[str, dict[str, object]]", value).items()
            event = Translator().translate(kind, fields)
            if event is None:
                raise ValueError(f"{kind} changes no state")
            return event
        return EVENT.validate_python(value)
    except OSError as error:
        raise NotFoundError(f"cannot read the event {file}: {error.strerror}", f"ls -l {shown(file)}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"])
        raise BadDataError(f"{file} holds no event: {where} {first['msg']}", "exo replay --help") from None
    except (ValueError, RecursionError) as error:
        raise BadDataError(f"{file} holds no event: {error}", "exo replay --help") from None


def _text(file: Path) -> bytes:
    with file.open("rb") as opened:
        found = opened.read(LINE_LIMIT_BYTES + 1)
    if len(found) > LINE_LIMIT_BYTES:
        raise ValueError(f"it is longer than {LINE_LIMIT_BYTES} bytes")
    return found


def shrink(path: str, wanted: str) -> tuple[Finding, list[Placed], str]:
    """The least log that shows a finding (`KIND:ID`, or either of them), and a test around it.

    Raises:
        NotFoundError: there is no such finding.
        UsageError: there are several.
    """
    events = recorded(path)
    found = [each for each in events.judge(events.placed).in_order() if _is_called(each, wanted)]
    if not found:
        raise NotFoundError(f"the log shows no finding {wanted!a}", f"exo replay {shown(path)} --check")
    if len(found) > 1:
        lines = "".join(f"\n  {each.kind}:{each.id}" for each in found[:20])
        raise UsageError(
            f"finding {wanted!a} is ambiguous{lines}", f"exo replay {shown(path)} --check", code="ambiguous"
        )
    [finding] = found
    placed = shrunk(events, finding)
    return finding, placed, _written(finding, events, placed)


def at_of(text: str | None) -> datetime | None:
    """A time as such a test has it."""
    return None if text is None else datetime.fromisoformat(text)


def _is_called(finding: Finding, wanted: str) -> bool:
    kind, name = key_of(finding)
    return wanted in {f"{kind}:{name}", kind, name}


def _written(finding: Finding, events: Recorded, placed: Sequence[Placed]) -> str:
    """A pytest file in which the finding is what fails."""
    lines = [
        f"    ({(each.at.isoformat() if each.at and events.timed else None)!r}, "
        f"{EVENT.dump_json(each.event, exclude_none=True).decode()!r}),"
        for each in placed
    ]
    return _TEST.format(
        kind=finding.kind,
        id=finding.id,
        name=finding.kind,
        base=json.dumps(events.base.dump()),
        events="\n".join(lines),
        timed=events.timed,
    )


def bisect(path: str, wanted: str) -> int:
    """The first record after which `PATH op VALUE` holds of the state, or at which a kind of finding began.

    Raises:
        NotFoundError: it holds nowhere.
        UsageError: it is neither.
    """
    events = recorded(path)
    if (holds := _predicate(wanted)) is not None:
        index = first_index(events, holds)
    else:
        found = [each for each in events.judge(events.placed).in_order() if _is_called(each, wanted)]
        index = min((each.since_index for each in found), default=None)
    if index is None:
        raise NotFoundError(f"{wanted!a} holds nowhere in the log", f"exo replay {shown(path)} --check")
    return index


def _predicate(text: str) -> Callable[[State], bool] | None:
    """`PATH op VALUE` as a function of the state; None for a single word."""
    words = text.split(maxsplit=2)
    if len(words) == 1:
        return None
    if len(words) != 3 or words[1] not in _OPERATORS:
        raise UsageError(
            f"not a condition: {text!a} (PATH op VALUE, op one of {' '.join(_OPERATORS)})",
            "exo replay LOG --bisect 'runners.ID.status.type == RunnerFailed'",
        )
    path, compare, value = words[0], _OPERATORS[words[1]], _literal(words[2])

    def holds(state: State) -> bool:
        try:
            return bool(compare(_at(state, path), value))
        except TypeError:
            return False  # nothing there is neither more nor less than anything

    return holds


def _literal(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _at(value: object, path: str) -> object:
    """What stands at a path of names with dots between; `.count` is how many there are. None when nothing does."""
    while path:
        if isinstance(value, Mapping):
            entries = cast("Mapping[str, object]", value)
            name = max((each for each in entries if path == each or path.startswith(f"{each}.")), key=len, default=None)
            if name is None:
                return len(entries) if path == "count" else None
            value, path = entries[name], path[len(name) + 1 :]
        else:
            name, _, path = path.partition(".")
            if name.startswith("_") or callable(found := getattr(value, name, None)):
                return None
            value = found
    return value
