"""Steps: what a replica was made of, stepped with and what it answered, as the lines of a recording (`exo-record` 1).

The first line has the arguments of its constructor, each that follows one step. Whoever waits for an answer stands
there as a number, in inputs and effects alike. Maps of an input keep their order, which a replica goes by; keys of
effects are sorted. What chats say never goes through a replica, so what a message of theirs holds that came by the
wrong door is left out.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal, cast, get_args
from weakref import WeakKeyDictionary

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from exo_cli.engine.core.effects import Effects, Input, Now
from exo_cli.engine.core.ids import AnId
from exo_cli.engine.core.runners import Value
from exo_cli.engine.core.state import State, load
from exo_cli.engine.core.tasks import ChatMessage, ChatParams
from exo_cli.engine.core.topology import NodeFacts
from exo_cli.engine.core.wire import (
    LINE_LIMIT_BYTES,
    BadLineError,
    Control,
    ControlReply,
    Envelope,
    Frames,
    Message,
    NewerFormatError,
    OpenChat,
)

RECORD_FORMAT = 1
LIMIT_BYTES = LINE_LIMIT_BYTES
Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Start:
    """The first step, `replica.start`."""


Given = Start | Input


class Beginning(Value):
    """The first line: what the replica was made of. `version` is that of the program which recorded."""

    kind: Literal["exo-record"] = "exo-record"
    format: int = RECORD_FORMAT
    version: str
    node_id: AnId
    incarnation: int = Field(ge=0)
    address: str
    facts: NodeFacts
    seeds: tuple[str, ...] = ()
    state: dict[str, object]


class Step(Value):
    """One step: its input, when it was, what the shell had set since the one before, and the effects, both plain."""

    input: dict[str, object]
    seconds: float
    at: datetime
    open_streams: int | None = None
    effects: dict[str, object]

    @property
    def now(self) -> Now:
        """The time of it."""
        return Now(self.seconds, self.at)


# The data plane's words, and those of command lines: a replica looks at no more than which of them it is.
_CONTENTS_LEFT_OUT: dict[type[Message], Message] = {
    Control: Control(method="-"),
    ControlReply: ControlReply(),
    Frames: Frames(),
    OpenChat: OpenChat(
        task_id="t", instance_id="i", params=ChatParams(messages=(ChatMessage(role="user", content=""),))
    ),
}


class Tokens:
    """Numbers for those who wait for an answer, from 0 in order of first appearance. It keeps nobody alive."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._numbers: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._next = 0

    def number(self, token: object) -> int:
        """The number of one of them."""
        if token not in self._numbers:
            self._numbers[token] = self._next
            self._next += 1
        return self._numbers[token]


def plain(value: object, tokens: Tokens) -> object:
    """A value as JSON has it; what is no value is somebody who waits."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value.encode(errors="backslashreplace").decode()  # of names of files, which may be any bytes
        case datetime():
            return value.isoformat()
        case Envelope():
            body = _CONTENTS_LEFT_OUT.get(type(value.body), value.body)
            return value.model_copy(update={"body": body}).model_dump(mode="json", exclude_none=True)
        case BaseModel():
            return value.model_dump(mode="json", exclude_none=True)
        case dict():
            return {str(key): plain(each, tokens) for key, each in cast("dict[object, object]", value).items()}
        case list() | tuple():
            return [plain(each, tokens) for each in cast("Iterable[object]", value)]
        case _ if is_dataclass(value):
            return {"type": type(value).__name__} | {
                each.name: plain(getattr(value, each.name), tokens) for each in fields(value)
            }
        case _:
            return tokens.number(value)


def answered(effects: Effects, tokens: Tokens) -> Plain:
    """The effects that there are."""
    return {each.name: plain(part, tokens) for each in fields(effects) if (part := getattr(effects, each.name))}


def raised(error: Exception) -> Plain:
    """What stands in place of effects when there are none: a bug of ours."""
    return {"raised": f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()[:500]}


def encode_beginning(beginning: Beginning) -> bytes:
    """The first line."""
    return beginning.model_dump_json(exclude_none=True).encode() + b"\n"


def encode_step(given: Given, now: Now, open_streams: int | None, effects: Plain, tokens: Tokens) -> bytes:
    """The line of a step."""
    head: Plain = {"input": plain(given, tokens), "seconds": now.seconds, "at": now.at.isoformat()}
    if open_streams is not None:
        head["open_streams"] = open_streams
    return f'{_json(head)[:-1]},"effects":{_json(effects, is_sorted=True)}}}\n'.encode()


def _json(value: Plain, *, is_sorted: bool = False) -> str:
    return json.dumps(value, sort_keys=is_sorted, separators=(",", ":"), ensure_ascii=False)


def decode_beginning(line: bytes) -> tuple[Beginning, State]:
    """What the first line says, and the state in it.

    Raises:
        NewerFormatError: a newer version wrote it.
        BadLineError: it is no such line.
    """
    try:
        head = _KIND.validate_json(line)
        if head.get("kind") != "exo-record":
            raise BadLineError("it is no recording of exo node start --record")
        if isinstance(written := head.get("format"), int) and written > RECORD_FORMAT:
            raise NewerFormatError(f"it has format {written}, this version reads up to {RECORD_FORMAT}")
        beginning = Beginning.model_validate_json(line)
        return beginning, load(beginning.state)
    except ValidationError as error:
        raise BadLineError(_first(error)) from None


def decode_step(line: bytes) -> tuple[Step, Given]:
    """A step, and its input.

    Raises:
        NewerFormatError: an input that is not known here.
        BadLineError: it is no such line.
    """
    try:
        step = Step.model_validate_json(line)
        return step, _given(step.input)
    except ValidationError as error:
        raise BadLineError(_first(error)) from None


def _given(written: Plain) -> Given:
    name, content = written.get("type"), {key: each for key, each in written.items() if key != "type"}
    if not isinstance(name, str):
        raise BadLineError("its input has no type")
    if name not in INPUTS:
        raise NewerFormatError(f"unknown input {name!a:.60}, perhaps of a newer version")
    if unknown := content.keys() - {each.name for each in fields(INPUTS[name])}:
        raise BadLineError(f"unknown field {min(unknown)!a:.60} of {name}")
    return _adapter(name).validate_python(content)


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"[:300].removeprefix(": ")


_KIND: TypeAdapter[Plain] = TypeAdapter(dict[str, Any])
INPUTS: dict[str, type[Given]] = {each.__name__: each for each in get_args(Given)}


@cache
def _adapter(name: str) -> TypeAdapter[Given]:
    return TypeAdapter(INPUTS[name])
