"""The written forms: lines of the event log, and messages between nodes.

A log line is one JSON object that ends in `,"crc":"<8 hex>"}`; the crc is zlib's over the bytes before `,"crc"`.
A message is an `Envelope` around one of `Message`. Both are judged here, at the edge: what does not validate, comes
from another cluster or speaks another protocol is refused with a reason, and nothing of it is used.
"""

import json
import zlib
from collections.abc import Callable
from datetime import UTC
from typing import Annotated, Literal, cast

from pydantic import Field, TypeAdapter, ValidationError

from exo_cli.engine.core.events import By, Event, Record
from exo_cli.engine.core.ids import AnId
from exo_cli.engine.core.intents import Submission
from exo_cli.engine.core.runners import Value
from exo_cli.engine.core.tasks import ChatParams, Frame
from exo_cli.engine.core.topology import NodeFacts

FORMAT = 1
PROTOCOL = 1
LINE_LIMIT_BYTES = 64 << 20


class BadLineError(ValueError):
    """A log line that cannot be used; the text says why, in one line."""


class UnknownEventError(BadLineError):
    """A whole, undamaged record of an event type that this version does not know."""


class NewerFormatError(BadLineError):
    """A log written by a newer version."""


class Header(Value):
    """The first line of a segment: whose log it is, and the state at its base (a snapshot).

    `timed` is false, and only then written, where the records have no times (events of a public system's recording).
    """

    kind: Literal["exo-log"] = "exo-log"
    format: int = FORMAT
    version: str
    cluster_id: str
    node_id: str
    base_index: int = Field(ge=-1)
    base_term: int = Field(ge=0)
    state_hash: str
    state: dict[str, object]
    adopted_from: dict[str, int] | None = None
    timed: bool = True


class Closing(Value):
    """The line that a clean stop writes: what the state hash was at `index`."""

    kind: Literal["closing"] = "closing"
    index: int = Field(ge=-1)
    term: int = Field(ge=0)
    state_hash: str


Line = Header | Record | Closing
_BY: TypeAdapter[By] = TypeAdapter(By)
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)
# Without the method around it, which costs as much as a tenth of the validation.
_VALIDATE_RECORD: Callable[[bytes], Record] = Record.__pydantic_validator__.validate_json
_CRC = b',"crc":"'
_TAIL = len(_CRC) + 8 + 2


def sealed(body: bytes) -> bytes:
    """A JSON object's bytes (ending in a brace) as a log line: crc put in, newline at the end."""
    head = body[:-1]
    return b'%b,"crc":"%08x"}\n' % (head, zlib.crc32(head))


def encode_record(record: Record) -> bytes:
    """The log line of a record, newline included."""
    at = record.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    cause = "null" if record.cause is None else str(record.cause)
    body = b'{"index":%d,"term":%d,"at":"%b","by":%b,"cause":%b,"event":%b}' % (
        record.index,
        record.term,
        at.encode(),
        _BY.dump_json(record.by, exclude_none=True),
        cause.encode(),
        _EVENT.dump_json(record.event, exclude_none=True),
    )
    return sealed(body)


def encode_header(header: Header) -> bytes:
    """The first line of a segment."""
    return sealed(header.model_dump_json(exclude={"timed"} if header.timed else None).encode())


def encode_closing(closing: Closing) -> bytes:
    """The last line of a cleanly closed segment."""
    return sealed(closing.model_dump_json().encode())


def decode_line(line: bytes) -> Line:
    """The header, record or closing of one line (with or without its newline).

    Raises:
        UnknownEventError: whole, but of an event type that is not known here.
        NewerFormatError: a header of a newer format.
        BadLineError: anything else that is wrong, with the reason.
    """
    head = line[: -_TAIL - 1]
    if line.startswith(b'{"index"') and line.endswith(b',"crc":"%08x"}\n' % zlib.crc32(head)):
        # Nearly every line there is: a whole record.
        return _record(head + b"}")
    line = line.rstrip(b"\n")
    head, tail = line[:-_TAIL], line[-_TAIL:]
    if not tail.startswith(_CRC) or not tail.endswith(b'"}'):
        raise BadLineError("the line is cut or has no crc")
    if b"%08x" % zlib.crc32(head) != tail[len(_CRC) : -2]:
        raise BadLineError("the crc does not match the bytes")
    body = head + b"}"
    if body.startswith(b'{"index"'):
        return _record(body)
    return _other(body)


def _record(body: bytes) -> Record:
    try:
        return _VALIDATE_RECORD(body)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] in {"union_tag_invalid", "union_tag_not_found"} and first["loc"][:1] == ("event",):
            name = first.get("ctx", {}).get("tag", "without a type")
            raise UnknownEventError(f"unknown event type {name!a}") from None
        raise BadLineError(f"not a record: {_first(error)}") from None
    except ValueError as error:
        raise BadLineError(f"not a record: {error}") from None


def _other(body: bytes) -> Header | Closing:
    try:
        plain = json.loads(body)
        if isinstance(plain, dict):
            fields = cast("dict[str, object]", plain)
            if fields.get("kind") == "exo-log":
                if isinstance(written := fields.get("format"), int) and written > FORMAT:
                    raise NewerFormatError(f"the log has format {written}, this version reads up to {FORMAT}")
                return Header.model_validate(fields)
            if fields.get("kind") == "closing":
                return Closing.model_validate(fields)
    except BadLineError:
        raise
    except ValidationError as error:
        raise BadLineError(f"not a log line: {_first(error)}") from None
    except (ValueError, RecursionError) as error:
        raise BadLineError(f"not a log line: {error}") from None
    raise BadLineError("neither a header nor a record")


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"[:300]


class Hello(Value):
    """A node asks to join, or says that it is back."""

    type: Literal["Hello"] = "Hello"
    address: str = Field(max_length=256)
    facts: NodeFacts


class Welcome(Value):
    """The answer to a Hello: who is master and where, and who else is known (node id -> address)."""

    type: Literal["Welcome"] = "Welcome"
    cluster_id: AnId
    master: AnId
    master_address: str = Field(max_length=256)
    term: int
    head: int
    peers: dict[str, str] = Field(default_factory=dict)


class Refusal(Value):
    """A no between nodes: a stable code, a sentence, a hint."""

    type: Literal["Refusal"] = "Refusal"
    code: str = Field(max_length=64)
    reason: str = Field(max_length=2000)
    hint: str | None = Field(default=None, max_length=500)
    exit_code: int = 1
    details: dict[str, object] = Field(default_factory=dict)


class GetSnapshot(Value):
    """Ask for the state at the head."""

    type: Literal["GetSnapshot"] = "GetSnapshot"


class Snapshot(Value):
    """The state at (term, index), and its hash."""

    type: Literal["Snapshot"] = "Snapshot"
    index: int
    term: int
    state: dict[str, object]
    state_hash: str


class GetTail(Value):
    """Ask for records from `first_index` on; the asker's record before it has `previous_term`."""

    type: Literal["GetTail"] = "GetTail"
    first_index: int = Field(ge=0)
    previous_term: int


class Tail(Value):
    """Log lines in order (or none when up to date), and the head. `snapshot_needed`: the log no longer goes back."""

    type: Literal["Tail"] = "Tail"
    lines: tuple[str, ...] = ()
    head: int
    snapshot_needed: bool = False


class Submit(Value):
    """Commands and reports for the master, in order; each is answered."""

    type: Literal["Submit"] = "Submit"
    submissions: tuple[Submission, ...] = Field(max_length=256)


class Answer(Value):
    """How one submission ended: committed at `index`, refused, or unknown (ask again with the same id)."""

    type: Literal["Answer"] = "Answer"
    command_id: AnId
    status: Literal["committed", "refused", "unknown"]
    index: int | None = None
    subject: str | None = None
    changed: str = "unchanged"
    refusal: Refusal | None = None


class Answers(Value):
    """The answers to a Submit, in order."""

    type: Literal["Answers"] = "Answers"
    answers: tuple[Answer, ...]


class Batch(Value):
    """Committed log lines of consecutive indexes, from the master to whoever follows."""

    type: Literal["Batch"] = "Batch"
    term: int
    lines: tuple[str, ...]


class Heartbeat(Value):
    """The master's pulse: the head of the log, and now and then the state hash at an index."""

    type: Literal["Heartbeat"] = "Heartbeat"
    term: int
    master: AnId
    head: int
    hash_index: int | None = None
    state_hash: str | None = None


class Pulse(Value):
    """Any node's pulse: it lives, where it can be reached, how far it has followed, and live figures."""

    type: Literal["Pulse"] = "Pulse"
    address: str = Field(max_length=256)
    term: int
    head: int
    memory_available_bytes: int = 0
    open_streams: int = 0


class Control(Value):
    """A command line's request to a node that is not on its machine: a method of the control surface."""

    type: Literal["Control"] = "Control"
    method: str = Field(max_length=64)
    params: dict[str, object] = Field(default_factory=dict)


class ControlReply(Value):
    """Its answer: a result, or a stream to follow with `Next`."""

    type: Literal["ControlReply"] = "ControlReply"
    result: dict[str, object] | None = None
    stream_id: str | None = None


class OpenChat(Value):
    """Rank 0's node is asked to admit a chat; the stream is followed with `Next`."""

    type: Literal["OpenChat"] = "OpenChat"
    task_id: AnId
    instance_id: AnId
    params: ChatParams
    client: str | None = Field(default=None, max_length=64)


class Admit(Value):
    """Rank 0's node tells another rank's node that a task has its place in the line.

    Each lets one more task in there. The order of work is rank 0's: the others serve tasks in the order in which it
    works on them.
    """

    type: Literal["Admit"] = "Admit"
    task_id: AnId
    instance_id: AnId


class CancelChat(Value):
    """Stop a task. Unknown ids are ignored."""

    type: Literal["CancelChat"] = "CancelChat"
    task_id: AnId


class Next(Value):
    """Frames after the given sequence numbers, of several streams at once; waits up to `wait_seconds` for news.

    Asking for what follows n lets go of everything up to n: this is the back-pressure and the repair of losses.
    """

    type: Literal["Next"] = "Next"
    after: dict[str, int] = Field(max_length=1024)
    wait_seconds: float = Field(default=1.0, ge=0, le=30)


class Frames(Value):
    """What came since, by stream; a stream that is not known (any more) is listed under `unknown`."""

    type: Literal["Frames"] = "Frames"
    frames: dict[str, tuple[Frame, ...]] = Field(default_factory=dict)
    control: dict[str, tuple[dict[str, object], ...]] = Field(default_factory=dict)
    unknown: tuple[str, ...] = ()


class Fine(Value):
    """Done; nothing to say."""

    type: Literal["Fine"] = "Fine"


Message = Annotated[
    Hello
    | Welcome
    | Refusal
    | GetSnapshot
    | Snapshot
    | GetTail
    | Tail
    | Submit
    | Answers
    | Batch
    | Heartbeat
    | Pulse
    | Control
    | ControlReply
    | OpenChat
    | Admit
    | CancelChat
    | Next
    | Frames
    | Fine,
    Field(discriminator="type"),
]


class Envelope(Value):
    """Every message between nodes. `cluster` is empty only in a Hello of a newcomer and in the answers to it."""

    v: int = PROTOCOL
    cluster: str = Field(default="", max_length=64)
    source: AnId
    incarnation: int = 0
    version: str = Field(default="", max_length=64)
    body: Message


class ForeignMessageError(ValueError):
    """A message that is not ours to use; `reason` is the key under which it is counted."""

    def __init__(self, reason: str, detail: str = "") -> None:
        """Keep the key and the detail."""
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


def pack(envelope: Envelope) -> bytes:
    """The bytes of a message."""
    return envelope.model_dump_json(exclude_none=True).encode()


def unpack(payload: bytes) -> Envelope:
    """The message in these bytes.

    Raises:
        ForeignMessageError: `protocol` (another version, named), or `malformed`.
    """
    try:
        envelope = Envelope.model_validate_json(payload)
    except ValidationError as error:
        raise _foreign(payload, error) from None
    except (ValueError, RecursionError) as error:
        raise ForeignMessageError("malformed", str(error)[:200]) from None
    if envelope.v != PROTOCOL:
        raise _other_protocol(envelope.v)
    return envelope


def _other_protocol(spoken: object) -> ForeignMessageError:
    return ForeignMessageError("protocol", f"it speaks protocol {spoken!a:.40}, this node {PROTOCOL}")


def _foreign(payload: bytes, error: ValidationError) -> ForeignMessageError:
    try:
        plain = json.loads(payload)
    except (ValueError, RecursionError):
        return ForeignMessageError("malformed", "not JSON")
    if isinstance(plain, dict) and (spoken := cast("dict[str, object]", plain).get("v", PROTOCOL)) != PROTOCOL:
        return _other_protocol(spoken)
    return ForeignMessageError("malformed", _first(error))
