"""Redaction: records and states with short names for ids, and without hosts, addresses and texts.

Nothing is kept because it looks harmless: a string stays only if it is one of the protocol's own words (a type, a
status, a reason) or a time. Whatever else it is gets a name of its own, the same one wherever it stands, so that the
same things are found in the redacted log. Numbers stay.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, cast, get_args

from exo_cli.engine.core.events import Record
from exo_cli.engine.core.ids import instance_id_in
from exo_cli.engine.core.placement import ENGINE_BACKENDS
from exo_cli.engine.core.state import State, load
from exo_cli.engine.core.tasks import FinishReason
from exo_cli.engine.core.wire import Header

# The letter that names of a sort begin with, by the key that they stand under.
_SORTS: Final = {
    "node": "n", "node_id": "n", "master": "n", "voters": "n", "sink": "n",
    "instance_id": "i", "subject": "i",
    "runner_id": "r",
    "task_id": "t", "cancelled_task_id": "t",
    "model_id": "m",
    "cluster_id": "c",
    "command_id": "k",
}  # fmt: skip
# The sort of the keys of the state's maps.
_MAPS: Final = {
    "nodes": "node_id", "instances": "instance_id", "past_instances": "instance_id", "failures": "instance_id",
    "runners": "runner_id", "tasks": "task_id", "downloads": "node_id", "outcomes": "command_id",
}  # fmt: skip
# What our own code puts into fields that may hold anything.
_FREE_WORDS: Final = ("scripted", "hub", "folder", "gguf", "silent", "created", "deleted", "changed", "unchanged")
_TIMES: Final = frozenset({"at", "since", "last_at"})
_RANK_DIGITS: Final = 4


@cache
def words() -> frozenset[str]:
    """The protocol's own words: what a field may hold by its type, and what our own code puts into the free ones."""
    backends = (each for some in ENGINE_BACKENDS.values() for each in some)
    typed = (*_constants(Record.model_json_schema()), *get_args(FinishReason), *ENGINE_BACKENDS, *backends)
    return frozenset({*typed, *_FREE_WORDS})


def _constants(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in cast("list[object]", schema):
            yield from _constants(each)
    elif isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        yield from (each for each in (fields.get("const"), *fields.get("enum", ())) if isinstance(each, str))
        for each in fields.values():
            yield from _constants(each)


class Redaction:
    """Gives names, and keeps which: one of these for all of a log."""

    def __init__(self) -> None:
        """Nothing has a name yet."""
        self.names: dict[str, str] = {}
        self._given: Counter[str] = Counter()

    def record(self, record: Record) -> Record:
        """The record, redacted."""
        plain = self._fields(record.model_dump(mode="json", exclude_none=True))
        return Record.model_validate(plain)

    def header(self, header: Header, state: State) -> Header:
        """The header that a segment has at this state, redacted; the hash is that of what became of the state."""
        shown = self.state(state)
        whose = {key: self._text(key, getattr(header, key)) for key in ("cluster_id", "node_id")}
        left = header.adopted_from
        adopted = None if left is None else {key: left[key] for key in ("index", "term") if key in left}
        told = {"state": shown.dump(), "state_hash": shown.hash(), "adopted_from": adopted}
        return header.model_copy(update=whose | told)

    def state(self, state: State) -> State:
        """The state, redacted."""
        dumped = cast("dict[str, dict[str, Any]]", state.dump())
        redacted: dict[str, Any] = {}
        for part, entries in dumped.items():
            if part in _MAPS:
                redacted[part] = {
                    self._text(_MAPS[part], key): self._entry(part, each) for key, each in entries.items()
                }
            elif part == "edges":
                edges = map(self._fields, entries.values())
                redacted[part] = {f"{each['source']} {each['sink']} {each['address']}": each for each in edges}
            else:
                redacted[part] = self._value(part, entries)
        return load(redacted)

    def _entry(self, part: str, value: Any) -> Any:
        if part == "downloads":
            return {self._text("model_id", model): self._fields(each) for model, each in value.items()}
        return self._value("", value)

    def _fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        # An edge's source is a node; a card's is a word.
        renamed = {"source": "node"} if "sink" in fields else {}
        return {key: self._value(renamed.get(key, key), each) for key, each in fields.items()}

    def _value(self, key: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(key, value)
        if isinstance(value, list):
            return [self._value(key, each) for each in cast("list[object]", value)]
        return self._fields(cast("dict[str, object]", value)) if isinstance(value, dict) else value

    def _text(self, key: str, text: str) -> str:
        if key == "runner_id":
            return self._runner(text)
        if (sort := _SORTS.get(key)) is not None:
            return self._name(sort, text)
        return text if key in _TIMES or text in words() else self._name("x", text)

    def _runner(self, runner_id: str) -> str:
        """Of a runner that is named after its instance, the name says so too (see `ids.instance_id_in`)."""
        instance_id = instance_id_in(runner_id)
        rank = runner_id[len(instance_id) + 1 :]
        is_ours = instance_id in self.names and rank.isdecimal() and len(rank) <= _RANK_DIGITS
        if runner_id in self.names or not is_ours:
            return self._name("r", runner_id)
        named = self.names[runner_id] = f"{self._name('i', instance_id)}-{rank}"
        return named

    def _name(self, sort: str, text: str) -> str:
        if not text:
            return text
        if (name := self.names.get(text)) is None:
            self._given[sort] += 1
            name = self.names[text] = f"{sort}{self._given[sort]}"
        return name
