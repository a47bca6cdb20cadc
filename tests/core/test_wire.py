"""The written forms: what is written comes back the same, and what is not ours gives one error and nothing else."""

import json
import types
import zlib
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, StringConstraints
from pydantic.fields import FieldInfo

from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.events import By, Event, Record, TaskDeleted
from exo_cli.engine.core.wire import (
    FORMAT,
    BadLineError,
    Closing,
    Envelope,
    ForeignMessageError,
    Header,
    Message,
    NewerFormatError,
    UnknownEventError,
    decode_line,
    encode_closing,
    encode_header,
    encode_record,
    pack,
    sealed,
    unpack,
)

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,20}", fullmatch=True)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=UTC)
)


def values_of(kind: Any, metadata: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Values of a field's type. A new event or message is covered without a word here."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return values_of(args[0], (*args[1:], *metadata))
    if origin in {Union, types.UnionType}:
        return st.one_of([values_of(each, metadata) for each in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(values_of(args[0]), min_size=limits(metadata)["min_length"], max_size=3).map(tuple)
    if origin is dict:
        values = PLAIN if args[1] is object else values_of(args[1])
        return st.dictionaries(values_of(args[0]), values, max_size=3)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return models_of(kind)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return st.sampled_from(list(kind))
    return scalars_of(kind, metadata)


def scalars_of(kind: Any, metadata: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    bounds = limits(metadata)
    if kind is str:
        return (
            IDS if bounds["pattern"] else st.text(min_size=bounds["min_length"], max_size=min(bounds["max_length"], 40))
        )
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(bounds["ge"], bounds["le"])
    if kind is float:
        return st.floats(
            bounds["ge"], bounds["le"], exclude_min=bounds["exclusive"], allow_nan=False, allow_infinity=False
        )
    if kind is datetime:
        return TIMES
    if kind is type(None):
        return st.none()
    raise AssertionError(f"no values for {kind}")


def limits(metadata: tuple[Any, ...]) -> dict[str, Any]:
    """The bounds among pydantic's and annotated_types' notes."""
    found: dict[str, Any] = {
        "ge": -(2**53), "le": 2**53, "exclusive": False, "min_length": 0, "max_length": 40, "pattern": None,
    }  # fmt: skip
    for note in metadata:
        for part in note.metadata if isinstance(note, FieldInfo) else [note]:
            match part:
                case annotated_types.Ge(ge=bound):
                    found["ge"] = bound
                case annotated_types.Gt(gt=bound):
                    found |= {"ge": bound, "exclusive": True}
                case annotated_types.Le(le=bound):
                    found["le"] = bound
                case annotated_types.Lt(lt=bound):
                    found["le"] = bound - 1
                case annotated_types.MinLen(min_length=bound):
                    found["min_length"] = bound
                case annotated_types.MaxLen(max_length=bound):
                    found["max_length"] = bound
                case StringConstraints(pattern=pattern):
                    found["pattern"] = pattern
                case _ if getattr(part, "pattern", None):
                    found["pattern"] = part.pattern
    return found


@cache
def models_of(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    fields = {name: values_of(field.annotation, tuple(field.metadata)) for name, field in model.model_fields.items()}
    if model is ModelCard:
        fields["model_id"] = st.sampled_from(["smollm2", "org/name", "org/name@main"])
    return st.fixed_dictionaries(fields).map(lambda plain: model(**plain))


EVENTS = get_args(get_args(Event)[0])
MESSAGES = get_args(get_args(Message)[0])
JUNK = st.binary(max_size=80) | PLAIN.map(lambda plain: json.dumps(plain).encode())


def a_record() -> Record:
    event = TaskDeleted(task_id="t-1")
    return Record(index=3, term=1, at=datetime(2026, 1, 2, tzinfo=UTC), by=By(node="n-1"), event=event)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_a_record_comes_back_as_it_was_written(event):
    @settings(max_examples=25, deadline=None, database=None)
    @given(models_of(event), models_of(By), TIMES, st.integers(0, 2**53), st.none() | st.integers(0, 9))
    def law(event, by, at, index, cause):
        record = Record(index=index, term=7, at=at, by=by, cause=cause, event=event)
        line = encode_record(record)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert b"\0" not in line, "zeros mark what was never written"
        assert decode_line(line) == record
        assert decode_line(line.rstrip(b"\n")) == record

    law()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_a_message_comes_back_as_it_was_packed(message):
    @settings(max_examples=15, deadline=None, database=None)
    @given(models_of(message), IDS, st.text(max_size=9))
    def law(body, source, cluster):
        envelope = Envelope(cluster=cluster, source=source, body=body)
        assert without_none(unpack(pack(envelope)).model_dump()) == without_none(envelope.model_dump())

    law()


def without_none(value: Any) -> Any:
    """Nothing is written for a None in a mapping, so it is no difference."""
    if isinstance(value, dict):
        return {key: without_none(inner) for key, inner in value.items() if inner is not None}
    return [without_none(inner) for inner in value] if isinstance(value, list | tuple) else value


@settings(max_examples=50, deadline=None, database=None)
@given(models_of(Header), models_of(Closing))
def test_headers_and_closings_come_back(header, closing):
    header = header.model_copy(update={"format": FORMAT})
    assert decode_line(encode_header(header)) == header
    assert decode_line(encode_closing(closing)) == closing


def test_the_crc_is_zlibs_over_what_stands_before_it():
    line = encode_record(a_record())
    head, _, tail = line.partition(b',"crc":"')
    assert tail == b'%08x"}\n' % zlib.crc32(head)
    assert list(json.loads(line))[:3] == ["index", "term", "at"]


@pytest.mark.parametrize("bit", [0, 5, 7])
def test_a_flipped_bit_is_seen_wherever_it_is(bit):
    line = encode_record(a_record()).rstrip(b"\n")
    for place in range(len(line)):
        damaged = line[:place] + bytes([line[place] ^ 1 << bit]) + line[place + 1 :]
        with pytest.raises(BadLineError):
            decode_line(damaged)


def test_a_cut_line_is_seen_wherever_it_is_cut():
    line = encode_record(a_record()).rstrip(b"\n")
    for end in range(len(line)):
        with pytest.raises(BadLineError):
            decode_line(line[:end])


def test_an_unknown_event_is_told_apart_from_damage():
    body = json.loads(encode_record(a_record()))
    del body["crc"]
    body["event"] = {"type": "CoffeeMade", "cups": 2}
    with pytest.raises(UnknownEventError, match="CoffeeMade"):
        decode_line(sealed(json.dumps(body, separators=(",", ":")).encode()))
    body["event"] = {"type": "TaskDeleted", "task_id": "t-1", "extra": 1}
    with pytest.raises(BadLineError) as caught:
        decode_line(sealed(json.dumps(body, separators=(",", ":")).encode()))
    assert not isinstance(caught.value, UnknownEventError)


def test_a_newer_format_is_named():
    plain = {"kind": "exo-log", "format": FORMAT + 1, "anything": "else"}
    with pytest.raises(NewerFormatError, match=str(FORMAT + 1)):
        decode_line(sealed(json.dumps(plain).encode()))


@settings(max_examples=300, deadline=None, database=None)
@given(JUNK)
def test_junk_is_a_bad_line_and_nothing_else(junk):
    for line in (
        junk,
        sealed(junk + b"}"),
        sealed(b'{"index"' + junk + b"}"),
        sealed(b'{"kind":"exo-log",' + junk + b"}"),
    ):
        with pytest.raises(BadLineError):
            decode_line(line)


@settings(max_examples=300, deadline=None, database=None)
@given(JUNK)
def test_junk_is_a_foreign_message_and_nothing_else(junk):
    for payload in (junk, b'{"v":1,"source":"n-1","body":' + junk + b"}"):
        with pytest.raises(ForeignMessageError) as caught:
            unpack(payload)
        assert caught.value.reason in {"malformed", "protocol"}


@pytest.mark.parametrize("bomb", [b"[" * 200_000, b'{"a":' * 200_000, b'{"v":2,"a":' + b"[" * 200_000])
def test_a_depth_bomb_is_refused_like_anything_else(bomb):
    with pytest.raises(ForeignMessageError):
        unpack(bomb)
    with pytest.raises(BadLineError):
        decode_line(sealed(bomb + b"}"))
    with pytest.raises(BadLineError):
        decode_line(sealed(b'{"index":' + bomb + b"}"))
    with pytest.raises(BadLineError):
        decode_line(sealed(b'{"kind":"exo-log","state":' + bomb + b"}"))


def test_another_protocol_is_named():
    envelope = json.loads(pack(Envelope(source="n-1", body=MESSAGES[-1]())))
    envelope |= {"v": 2, "more": True}
    with pytest.raises(ForeignMessageError, match="protocol 2") as caught:
        unpack(json.dumps(envelope).encode())
    assert caught.value.reason == "protocol"


def test_another_protocol_is_refused_though_its_fields_fit():
    envelope = json.loads(pack(Envelope(source="n-1", body=MESSAGES[-1]())))
    with pytest.raises(ForeignMessageError) as caught:
        unpack(json.dumps(envelope | {"v": 2}).encode())
    assert caught.value.reason == "protocol"


def test_a_number_without_end_is_a_bad_line():
    with pytest.raises(BadLineError):
        decode_line(sealed(b'{"kind":"exo-log","format":' + b"9" * 5000 + b"}"))


def test_ids_from_outside_are_judged():
    with pytest.raises(ForeignMessageError):
        unpack(pack(Envelope(source="n-1", body=MESSAGES[-1]())).replace(b'"n-1"', b'"../../etc"'))
