"""Views: answers of a node as tables and lines. Pure: no input or output, no clock, no decisions.

A `Kind` says what a thing is called in documents, how it is named on a line, and which columns a table has. What is in
the answers comes from nodes; nothing here trusts it to be there, and `console` makes it harmless.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exo_cli.console import Table

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its header, how a cell is read from an item, whether only `wide` has it, whether it may be cut."""

    header: str
    cell: Callable[[Item], str]
    wide: bool = False
    elastic: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing: `Runner` in a document, `runner/ID` on a line."""

    document: str
    name: str
    key: str
    columns: tuple[Column, ...]


def said(value: object) -> str:
    """A value as one cell: nothing is `-`, lists have commas."""
    if value is None or value == "" or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(said(each) for each in value)
    if isinstance(value, dict):
        return ",".join(f"{key}={said(each)}" for key, each in value.items())
    return str(value)


def shown(key: str) -> Callable[[Item], str]:
    """What stands under a key, for people."""
    return lambda item: said(item.get(key))


def bytes_said(value: object) -> str:
    """Bytes for people: `3.2 GiB`."""
    if not isinstance(value, int | float):
        return "-"
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit in {"B", "KiB"} else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _memory(item: Item) -> str:
    return f"{bytes_said(item.get('memory_available_bytes'))} of {bytes_said(item.get('memory_bytes'))}"


def _layers(item: Item) -> str:
    match item.get("layers"):
        case [start, end]:
            return f"{start}-{end}"
        case _:
            return "-"


def _rank(item: Item) -> str:
    return f"{said(item.get('rank'))}/{said(item.get('world_size'))}"


def _status(item: Item) -> str:
    if item.get("status") is None:
        return "(restarting)" if item.get("failures") else "(starting)"
    return said(item["status"])


NODE = Kind(
    "Node",
    "node",
    "node_id",
    (
        Column("NODE", shown("node_id")),
        Column("NAME", shown("name"), elastic=True),
        Column("STATE", shown("state")),
        Column("MASTER", shown("master")),
        Column("VOTER", shown("voter"), wide=True),
        Column("MEMORY", _memory),
        Column("BACKENDS", shown("backends")),
        Column("VERSION", shown("version"), wide=True),
        Column("ADDRESSES", shown("addresses"), wide=True, elastic=True),
    ),
)
RUNNER = Kind(
    "Runner",
    "runner",
    "runner_id",
    (
        Column("RUNNER", shown("runner_id")),
        Column("STATUS", _status),
        Column("MODEL", shown("model"), elastic=True),
        Column("NODE", shown("node_id")),
        Column("RANK", _rank),
        Column("LAYERS", _layers),
        Column("ENGINE", shown("engine"), wide=True),
        Column("STRATEGY", shown("strategy"), wide=True),
        Column("INSTANCE", shown("instance_id"), wide=True),
        Column("SINCE", shown("since"), wide=True),
        Column("ERROR", shown("error"), elastic=True),
        Column("LAST ERROR", shown("last_error"), wide=True, elastic=True),
    ),
)
INSTANCE = Kind(
    "Instance",
    "instance",
    "instance_id",
    (
        Column("INSTANCE", shown("instance_id")),
        Column("STATUS", shown("status")),
        Column("MODEL", shown("model"), elastic=True),
        Column("STRATEGY", shown("strategy"), wide=True),
        Column("NODES", shown("nodes"), elastic=True),
        Column("PROGRESS", shown("progress"), elastic=True),
        Column("ERROR", shown("error"), elastic=True),
    ),
)


def table(kind: Kind, items: Iterable[Item], *, wide: bool = False) -> Table:
    """The items as rows."""
    columns = [column for column in kind.columns if wide or not column.wide]
    return Table(
        tuple(column.header for column in columns),
        tuple(tuple(column.cell(item) for column in columns) for item in items),
        frozenset(number for number, column in enumerate(columns) if column.elastic and not wide),
    )


def fields(item: Item) -> Table:
    """One item as rows of key and value; bytes are said for people."""
    rows = [(key, bytes_said(value) if key.endswith("_bytes") else said(value)) for key, value in item.items()]
    return Table(("FIELD", "VALUE"), tuple(rows))


def line_name(kind: Kind, item: Item) -> str:
    """`runner/ID`: what `-o name` prints, and what `delete` takes back."""
    return f"{kind.name}/{said(item.get(kind.key))}"


def list_document(kind: Kind, revision: object, items: Sequence[Item]) -> dict[str, Any]:
    """The document of a list."""
    return {"kind": f"{kind.document}List", "schema": 1, "revision": revision, "items": list(items)}


def item_document(kind: str, revision: object, item: Item) -> dict[str, Any]:
    """The document of a single thing."""
    return {"kind": kind, "schema": 1, "revision": revision, "item": dict(item)}


def progress_line(item: Item) -> str:
    """Where an instance stands, in one line: `smollm2: loading, 12 of 30 layers`."""
    status, progress = said(item.get("status")), item.get("progress")
    parts = [status, *([str(progress)] if progress and status != "ready" else [])]
    return f"{said(item.get('model') or item.get('instance_id'))}: {', '.join(parts)}"


def changes(kind: Kind, before: Mapping[str, Item], after: Sequence[Item]) -> Iterator[tuple[str, Item]]:
    """What came, changed and went between two lists, as (type, item)."""
    seen: set[str] = set()
    for item in after:
        key = str(item.get(kind.key))
        seen.add(key)
        if key not in before:
            yield "ADDED", item
        elif before[key] != item:
            yield "MODIFIED", item
    for key, item in before.items():
        if key not in seen:
            yield "DELETED", item


def chat_figures(item: Item) -> str:
    """What one answer took: `16 tokens, 41.0 tokens/s, first token after 0.21 s, prompt 35 tokens, seed 7`."""
    usage = item.get("usage") or {}
    tokens, first, seconds = usage.get("tokens", 0), usage.get("first_token_seconds"), usage.get("seconds", 0)
    parts = [f"{tokens} tokens"]
    if first is not None and tokens > 1 and seconds > first:
        parts.append(f"{(tokens - 1) / (seconds - first):.1f} tokens/s")
    if first is not None:
        parts.append(f"first token after {first:.2f} s")
    parts.append(f"prompt {usage.get('prompt_tokens', 0)} tokens")
    if item.get("seed") is not None:
        parts.append(f"seed {item['seed']}")
    return ", ".join(parts)
