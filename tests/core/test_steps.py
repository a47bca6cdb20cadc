"""Steps as lines: all inputs and effects come back, in their order, without what chats say; the rest is refused."""

import json
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from exo_cli.engine.core.changes import changes_between
from exo_cli.engine.core.effects import Asked, Effects, Heard, Input, Now, Replied, Reply, Tick
from exo_cli.engine.core.replica import Replica
from exo_cli.engine.core.state import State
from exo_cli.engine.core.steps import (
    INPUTS,
    RECORD_FORMAT,
    Beginning,
    Start,
    Tokens,
    answered,
    decode_beginning,
    decode_step,
    encode_beginning,
    encode_step,
    plain,
)
from exo_cli.engine.core.tasks import ChatMessage, ChatParams, Finish, TokenChunk
from exo_cli.engine.core.wire import (
    BadLineError,
    Control,
    ControlReply,
    Envelope,
    Frames,
    GetSnapshot,
    NewerFormatError,
    OpenChat,
    Refusal,
    Snapshot,
)
from tests.builders import a_node, at
from tests.core.test_wire import JUNK, MESSAGES, PLAIN, TIMES, models_of, values_of, without_none

CANARY = "xylophone-canary-4711"
NOW = Now(1.5, at(2.0))


class Waits:
    """Somebody who waits for an answer."""


def dataclasses_of(kind: type) -> st.SearchStrategy[Any]:
    """Values of a dataclass of the core. A new input or effect is covered without a word here."""
    if not is_dataclass(kind):
        return models_of(kind)
    hints = get_type_hints(kind)
    return st.builds(kind, **{each.name: _field(hints[each.name]) for each in fields(kind)})


def _field(hint: Any) -> st.SearchStrategy[Any]:
    if hint is object:
        return st.builds(Waits)
    if get_origin(hint) is dict:
        return st.dictionaries(st.text(max_size=5), PLAIN, max_size=3)
    return values_of(hint)


def effect_types() -> list[type]:
    """Every class that stands in a field of Effects, by itself, in a list or in a union."""
    found: dict[type, None] = {}

    def visit(hint: Any) -> None:
        for each in get_args(hint):
            visit(each)
        if isinstance(hint, type) and not get_args(hint) and hint is not type(None):
            found[hint] = None

    for hint in get_type_hints(Effects).values():
        visit(hint)
    return list(found)


def alike(one: object, other: object) -> bool:
    """Equal, but for a None in a map, for which nothing is written."""
    if isinstance(one, BaseModel) and isinstance(other, BaseModel):
        return type(one) is type(other) and without_none(one.model_dump()) == without_none(other.model_dump())
    return one == other


@pytest.mark.parametrize("kind", [Start, *get_args(Input)], ids=lambda kind: kind.__name__)
def test_an_input_comes_back(kind):
    @settings(max_examples=40, deadline=None, database=None)
    @given(dataclasses_of(kind), TIMES, st.floats(0, 1e9), st.none() | st.integers(0, 99))
    def law(told, when, seconds, streams):
        line = encode_step(told, Now(seconds, when), streams, {}, Tokens())
        assert line.endswith(b"}\n")
        assert line.count(b"\n") == 1
        step, back = decode_step(line)
        assert (step.now, step.open_streams, step.effects) == (Now(seconds, when), streams, {})
        assert type(back) is kind
        assert encode_step(back, step.now, streams, {}, Tokens()) == line
        for each in fields(kind):
            before, after = getattr(told, each.name), getattr(back, each.name)
            if each.name == "reply_to":
                assert after == 0
            elif not isinstance(before, Envelope) or type(before.body) not in {Control, ControlReply, OpenChat, Frames}:
                assert alike(before, after)

    law()


@pytest.mark.parametrize("kind", effect_types(), ids=lambda kind: kind.__name__)
def test_an_effect_is_plain_and_another_one_is_another(kind):
    @settings(max_examples=25, deadline=None, database=None)
    @given(dataclasses_of(kind), dataclasses_of(kind))
    def law(one, other):
        tokens = Tokens()
        texts = [plain(each, tokens) for each in (one, other)]
        assert json.loads(json.dumps(texts)) == texts
        known_as = [getattr(one, "type", getattr(one, "kind", kind.__name__)), kind.__name__]
        assert not is_dataclass(kind) or texts[0]["type"] in known_as
        is_same = list(changes_between(*texts)) == []
        assert is_same == (without_none(_shown(one)) == without_none(_shown(other)))

    law()


def _shown(value: Any) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump()
    return {each.name: _shown(getattr(value, each.name)) for each in fields(value)} if is_dataclass(value) else value


def test_effects_come_back_from_a_line():
    @settings(max_examples=25, deadline=None, database=None)
    @given(st.builds(Effects, **{name: _part(hint) for name, hint in get_type_hints(Effects).items()}))
    def law(effects):
        tokens = Tokens()
        written = answered(effects, tokens)
        step, _ = decode_step(encode_step(Tick(), NOW, None, written, tokens))
        assert list(changes_between(step.effects, written)) == []

    law()


def _part(hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) is list:
        inner = get_args(get_args(hint)[0]) or get_args(hint)
        return st.lists(st.one_of([dataclasses_of(each) for each in inner]), max_size=2)
    return st.none() | dataclasses_of(next(each for each in get_args(hint) if each is not type(None)))


def test_who_waits_is_the_same_number_in_input_and_effects():
    tokens, first, second = Tokens(), Waits(), Waits()
    envelope = Envelope(source="n", body=GetSnapshot())
    for who, number in ((first, 0), (second, 1), (first, 0)):
        effects = answered(Effects(send=[Reply(who, Refusal(code="c", reason="r"))]), tokens)
        step, told = decode_step(encode_step(Asked(envelope, who), NOW, None, effects, tokens))
        assert told == Asked(envelope, number)
        assert step.effects["send"][0]["reply_to"] == number


def test_maps_of_an_input_keep_their_order():
    state = {"nodes": {"b": 1, "a": 2}}
    snapshot = Envelope(source="n", body=Snapshot(index=1, term=1, state=state, state_hash=""))
    _, told = decode_step(encode_step(Replied(1, snapshot), NOW, None, {}, Tokens()))
    assert list(told.envelope.body.state["nodes"]) == ["b", "a"]


def test_the_beginning_is_what_a_replica_is_made_of():
    assert Beginning.model_fields.keys() - {"kind", "format"} == signature(Replica).parameters.keys()
    beginning = Beginning(
        version="1", node_id="n", incarnation=3, address="n:1", facts=a_node("n"), seeds=("m:1",), state=State().dump()
    )
    assert decode_beginning(encode_beginning(beginning)) == (beginning, State())


def test_what_chats_say_is_left_out_even_where_it_does_not_belong():
    params = ChatParams(messages=(ChatMessage(role="user", content=CANARY),), stop=(CANARY,))
    chunk = TokenChunk(task_id="t", sequence=0, text=CANARY)
    strays = (
        OpenChat(task_id="t", instance_id="i", params=params),
        Frames(frames={"t": (chunk,)}, control={"s": ({"text": CANARY},)}),
        Control(method="chat", params={"text": CANARY}),
        ControlReply(result={"text": CANARY}),
    )
    for stray in strays:
        envelope = Envelope(source="n", body=stray)
        for told in (Heard(envelope), Asked(envelope, Waits()), Replied(1, envelope)):
            line = encode_step(told, NOW, None, {}, Tokens())
            assert CANARY.encode() not in line
            _, back = decode_step(line)
            assert type(back.envelope.body) is type(stray)
    # The messages in which such a thing can stand are these.
    assert {kind for kind in MESSAGES if reaches(kind, {ChatParams, TokenChunk, Finish})} == {OpenChat, Frames}


def reaches(hint: Any, wanted: set[type]) -> bool:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint in wanted or any(reaches(each.annotation, wanted) for each in hint.model_fields.values())
    return any(reaches(each, wanted) for each in get_args(hint))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "Invalid JSON"),
        (b"[]", "an object"),
        (b'{"input":{"type":"Tick"},"seconds":1,"at":"2026-01-01T00:00:00Z"}', "effects"),
        (b'{"input":{"type":"Tock"},"seconds":1,"at":"2026-01-01T00:00:00Z","effects":{}}', "unknown input 'Tock'"),
        (b'{"input":{"type":["Tick"]},"seconds":1,"at":"2026-01-01T00:00:00Z","effects":{}}', "has no type"),
        (b'{"input":{"type":"Tick","x":1},"seconds":1,"at":"2026-01-01T00:00:00Z","effects":{}}', "unknown field 'x'"),
        (b'{"input":{"type":"Appended"},"seconds":1,"at":"2026-01-01T00:00:00Z","effects":{}}', "upto"),
        (b'{"input":{"type":"Tick"},"seconds":1,"at":"2026-01-01T00:00:00Z","effects":{},"x":1}', "x: "),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_step_is_refused(line, says):
    with pytest.raises(BadLineError, match=says):
        decode_step(line)


def test_a_newer_format_is_told_from_damage():
    with pytest.raises(NewerFormatError, match=f"reads up to {RECORD_FORMAT}"):
        decode_beginning(b'{"kind":"exo-record","format":2,"more":1}')
    with pytest.raises(BadLineError, match="no recording"):
        decode_beginning(b'{"kind":"exo-log","format":1}')


@settings(max_examples=200, deadline=None, database=None)
@given(JUNK)
def test_junk_gives_one_error(line):
    for decode in (decode_step, decode_beginning):
        with pytest.raises(BadLineError):
            decode(line)


def test_every_input_has_its_name():
    assert list(INPUTS.values()) == [Start, *get_args(Input)]
    assert all(name == kind.__name__ for name, kind in INPUTS.items())


def test_changes_have_their_paths():
    before = {"act": [{"type": "A", "n": 1}, {"type": "B"}], "same": [1], "gone": {"x": 1}}
    now = {"act": [{"type": "A", "n": 2}], "same": [1], "new": True}
    assert list(changes_between(before, now)) == [
        ("act[0].n", 1, 2),
        ("act[1]", {"type": "B"}, None),
        ("gone", {"x": 1}, None),
        ("new", None, True),
    ]
