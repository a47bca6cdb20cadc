"""Redaction: nothing that somebody wrote gets through, and what is wrong in the log is as wrong as before."""

import re
import typing
from datetime import datetime
from enum import Enum
from itertools import count

import pytest
from hypothesis import given, settings
from pydantic import BaseModel

from exo_cli.engine.core.events import Event, InstanceCreated, Record
from exo_cli.engine.core.redaction import Redaction
from exo_cli.engine.core.reducer import applied, apply
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.runners import RunnerStatus
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import Task
from exo_cli.engine.core.wire import Header, encode_header, encode_record
from tests.builders import a_record, an_instance
from tests.strategies import LOGS

SECRET = "Secret"


def members(union):
    return typing.get_args(typing.get_args(union)[0])


def filled(kind, secrets):
    """A value of this type in which every string that may be anything is a secret of its own."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return filled(arguments[0], secrets)
    if origin is typing.Literal:
        return arguments[0]
    if origin is tuple:
        return (filled(arguments[0], secrets),)
    if arguments:
        return filled(arguments[0], secrets)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_validate({name: filled(each.annotation, secrets) for name, each in kind.model_fields.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    made = {str: lambda: f"{SECRET}{next(secrets)}", datetime: lambda: datetime.fromisoformat("2026-01-01T00:00:00Z")}
    return made.get(kind, lambda: kind(1))()


def examples():
    """Every event, and where one holds a union every member of it."""
    secrets = count()
    for kind in members(Event):
        event = filled(kind, secrets)
        inner = {"runner_status": RunnerStatus, "task": Task}
        held = next((name for name in inner if name in kind.model_fields), None)
        if held is None:
            yield event
        else:
            yield from (event.model_copy(update={held: filled(each, secrets)}) for each in members(inner[held]))


EXAMPLES = list(examples())


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.type)
def test_nothing_that_somebody_wrote_gets_through(event):
    record = filled(Record, count(1000)).model_copy(update={"event": event, "index": 0})
    state = applied(State(), record)
    redaction = Redaction()
    header = Header(
        version="1", cluster_id="SecretC", node_id="SecretN", base_index=0, base_term=1, state_hash="", state={}
    )
    assert SECRET.encode() in encode_record(record)
    assert SECRET.encode() not in encode_record(redaction.record(record))
    assert SECRET.encode() not in encode_header(redaction.header(header, state))


def test_the_examples_have_every_event():
    assert {type(each) for each in EXAMPLES} == set(members(Event))


@settings(max_examples=100, deadline=None)
@given(LOGS)
def test_redacting_and_folding_is_folding_and_redacting(records):
    redaction, state, redacted = Redaction(), State(), State()
    for record in records:
        apply(state, record)
        apply(redacted, redaction.record(record))
    assert redaction.state(state).dump() == redacted.dump()


@settings(max_examples=200, deadline=None)
@given(LOGS)
def test_the_findings_stay_the_same_but_for_the_names(records):
    redaction, fold, redacted = Redaction(), Fold(check=True), Fold(check=True)
    for record in records:
        fold.feed(record)
        redacted.feed(redaction.record(record))
    ours = sorted(
        fold.result()["findings"],
        key=lambda each: (each["since_index"], each["kind"], renamed(each["id"], redaction.names)),
    )
    theirs = sorted(redacted.result()["findings"], key=lambda each: (each["since_index"], each["kind"], each["id"]))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert {**one, "id": "", "why": "", "remedy": ""} == {**other, "id": "", "why": "", "remedy": ""}
        for name in ("id", "why", "remedy"):
            words = zip(one[name].split(), other[name].split(), strict=True)
            assert all(there in (here, renamed(here, redaction.names)) for here, there in words)


def renamed(text, names):
    return re.sub(r"[A-Za-z0-9_.:-]+", lambda word: names.get(word[0], word[0]), text)


def test_a_runner_stays_with_its_instance_and_a_name_is_the_same_everywhere():
    redaction = Redaction()
    placed = InstanceCreated(instance=an_instance("i-abc", ("a", "b")))
    shown = redaction.record(a_record(placed, 0)).event.instance
    assert [each.runner_id for each in shown.shards] == [f"{shown.instance_id}-0", f"{shown.instance_id}-1"]
    assert [each.node_id for each in shown.shards] == [redaction.names["a"], redaction.names["b"]]
