"""Views: answers of a node as tables and lines. Pure: no input or output, no clock, no decisions.

A `Kind` says what a thing is called in documents, how it is named on a line, and which columns a table has. What is in
the answers comes from nodes; nothing here trusts it to be there, and `console` makes it harmless.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exo_cli.console import Table, visible

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


def _of(key: str) -> Callable[[Item], str]:
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
        Column("NODE", _of("node_id")),
        Column("NAME", _of("name"), elastic=True),
        Column("STATE", _of("state")),
        Column("MASTER", _of("master")),
        Column("VOTER", _of("voter"), wide=True),
        Column("MEMORY", _memory),
        Column("BACKENDS", _of("backends")),
        Column("VERSION", _of("version"), wide=True),
        Column("ADDRESSES", _of("addresses"), wide=True, elastic=True),
    ),
)
RUNNER = Kind(
    "Runner",
    "runner",
    "runner_id",
    (
        Column("RUNNER", _of("runner_id")),
        Column("STATUS", _status),
        Column("MODEL", _of("model"), elastic=True),
        Column("NODE", _of("node_id")),
        Column("RANK", _rank),
        Column("LAYERS", _layers),
        Column("ENGINE", _of("engine"), wide=True),
        Column("STRATEGY", _of("strategy"), wide=True),
        Column("INSTANCE", _of("instance_id"), wide=True),
        Column("SINCE", _of("since"), wide=True),
        Column("ERROR", _of("error"), elastic=True),
        Column("LAST ERROR", _of("last_error"), wide=True, elastic=True),
    ),
)
INSTANCE = Kind(
    "Instance",
    "instance",
    "instance_id",
    (
        Column("INSTANCE", _of("instance_id")),
        Column("STATUS", _of("status")),
        Column("MODEL", _of("model"), elastic=True),
        Column("STRATEGY", _of("strategy"), wide=True),
        Column("NODES", _of("nodes"), elastic=True),
        Column("PROGRESS", _of("progress"), elastic=True),
        Column("ERROR", _of("error"), elastic=True),
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


def replay_summary(item: Item, *, checked: bool) -> Table:
    """What a fold came to, as rows."""
    state: Item = item.get("state") or {}
    found = item.get("findings") or ()
    sizes = [f"{len(state[key])} {key}" for key in ("nodes", "instances", "runners", "tasks") if key in state]
    rows = [
        ("format", said(item.get("format"))),
        ("events", f"{said(item.get('events'))} ({said(item.get('first_index'))} to {said(item.get('last_index'))})"),
        ("state", ", ".join(sizes) or "-"),
        ("state hash", said(item.get("state_hash"))),
        ("torn tail", said(item.get("torn_tail"))),
        ("findings", str(len(found)) if checked or found else "not looked for (--check)"),
    ]
    return Table(("", ""), tuple(rows))


def findings(found: Sequence[Item]) -> Table:
    """What is wrong, since when, why, and what to do."""
    rows = [tuple(said(each.get(key)) for key in ("kind", "id", "since_index", "why", "remedy")) for each in found]
    return Table(("FINDING", "ID", "SINCE", "WHY", "REMEDY"), tuple(rows), frozenset({3, 4}))


def event_line(row: Item) -> str:
    """An event of a log, as one line: index, time, who, what."""
    at = f"{row['at']}  " if row.get("at") else ""
    by = f"  ({row['by']}{' for ' + str(row['client']) if row.get('client') else ''})" if row.get("by") else ""
    cause = f"  [follows {row['cause']}]" if row.get("cause") is not None else ""
    return visible(f"{said(row.get('index')):>8}  {at}{said(row.get('what'))}{by}{cause}")


def finding_line(finding: Item) -> str:
    """A finding, as one line below a heading."""
    return visible(f"  {finding['kind']} {finding['id']}, since record {finding['since_index']}: {finding['why']}")


def story_lines(story: Item) -> list[str]:
    """The story of one thing, from its beginning to how it stands at the end."""
    lines = [event_line(each) for each in story["moments"]]
    if story["left_out"]:
        lines.insert(len(lines) // 4, f"          ... {story['left_out']} events are left out")
    lines += [
        visible(f" refused  {said(each.get('at'))}  {said(each.get('reason') or each.get('why'))} (in no log)")
        for each in story["refused"]
    ]
    lines += ["", visible(f"{story['id']}: {story['now']}")]
    for each in story["findings"]:
        lines.append(visible(f"finding: {each['kind']}, since record {each['since_index']}: {each['why']}"))
        lines.append(visible(f"remedy:  {each['remedy']}"))
    if story["output"]:
        lines += ["", "the last lines of its process:", *(visible(f"  {line}") for line in story["output"])]
    return lines


REASON = Kind("Reason", "runner", "runner_id", (Column("RUNNER", _of("runner_id")), Column("STATUS", _of("status"))))


def reason_lines(reasons: Sequence[Item]) -> list[str]:
    """For each runner the planner's rules in order, and what they come to."""
    lines: list[str] = []
    for each in reasons:
        lines += [*([""] if lines else []), f"{each['runner_id']} on node {each['node_id']}: {said(each['status'])}"]
        lines += [f"  {'*' if rule['acts'] else ' '} {rule['rule']:<22} {rule['why']}" for rule in each["rules"]]
        acts = next((rule["why"] for rule in each["rules"] if rule["acts"]), "nothing is to be done")
        lines.append(f"  {'no progress: nothing in its instance can move again' if each['stuck'] else acts}")
    return [visible(line) for line in lines]


def statistics_tables(statistics: Item) -> list[Table]:
    """What a log is made of."""
    types = [(said(each["type"]), said(each["events"]), bytes_said(each["bytes"])) for each in statistics["types"]]
    busiest = [
        (
            "flood" if each["flood"] else "",
            *(
                said(each[key])
                for key in ("sort", "id", "type", "events", "most_in_minute", "first_index", "last_index")
            ),
        )
        for each in statistics["busiest"]
    ]
    counted = (("NODE", statistics["nodes"]), ("HOUR", statistics["hours"]))
    return [
        Table(("TYPE", "EVENTS", "BYTES"), tuple(types)),
        *(
            Table((header, "EVENTS"), tuple((name, said(count)) for name, count in counts.items()))
            for header, counts in counted
            if counts
        ),
        Table(("", "SORT", "ID", "TYPE", "EVENTS", "IN A MINUTE", "FIRST", "LAST"), tuple(busiest)),
    ]
