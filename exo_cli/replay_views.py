"""Replay views: what `exo replay` found in a log, as tables and lines."""

import json
import shlex
from collections.abc import Iterator, Sequence

from exo_cli.console import Table, visible
from exo_cli.views import Column, Item, Kind, bytes_said, said, shown

VALUE_CHARACTERS = 300


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
        *([] if (mostly := item["notes"].get("mostly")) is None else [("mostly", _mostly(mostly, item["events"]))]),
        *([] if "compared" not in item else [("its own state", _compared(item["compared"]))]),
        ("findings", str(len(found)) if checked or found else "not looked for (--check)"),
    ]
    return Table(("", ""), tuple(rows))


def _mostly(mostly: Item, events: int) -> str:
    return f"{mostly['sort']} {mostly['id']}: {mostly['events']} of {events} events are about it (see --stats)"


def _compared(differences: Sequence[Item]) -> str:
    said_of = [f"{each['path']} is {said(each['theirs'])} there, {said(each['ours'])} here" for each in differences]
    return "the same" if not differences else f"{len(differences)} differences: {'; '.join(said_of[:5])}"


def finding_lines(found: Sequence[Item], logs: Sequence[str]) -> Iterator[str]:
    """What is wrong, since when, why, how to see how it came to that, and what to do."""
    called = " ".join(map(shlex.quote, logs))
    for each in found:
        since = f"since record {each['since_index']}"
        if each["until_index"] is not None and each["until_index"] != each["since_index"]:
            since += f" until {each['until_index']}"
        events = f"--events --from {max(0, each['since_index'] - 5)} --to {each['since_index'] + 5}"
        story = events if each["id"] == "log" else f"--explain {shlex.quote(each['id'])}"
        yield ""
        yield visible(f"{each['kind']} {each['id']}, {since}")
        yield visible(f"  {each['why']}")
        yield visible(f"  story:  exo replay {called} {story}")
        yield visible(f"  remedy: {each['remedy']}")


ALIGNED = Kind(
    "Alignment",
    "log",
    "path",
    (
        Column("LOG", shown("path"), elastic=True),
        Column("NODE", shown("node")),
        Column("CLUSTER", shown("cluster")),
        Column("FIRST", shown("first_index")),
        Column("LAST", shown("last_index")),
        Column("TERM", shown("last_term")),
        Column("LAG", lambda item: said(item.get("lag")) if item.get("kept") else "put aside"),
        Column("DIFFERS FROM", shown("parts_at")),
    ),
)


def alignment_lines(item: Item) -> Iterator[str]:
    """Where logs of several nodes part, what was adopted and abandoned, and whose history counts."""
    history = visible(str(item["history"]))
    yield f"the same up to record {said(item['agreed_upto'])}; the history that counts is that of {history}"
    if (difference := item["first_difference"]) is not None:
        yield f"first difference: record {difference['index']}"
        for each in difference["records"]:
            at = f" at {each['at']}" if each["at"] else ""
            yield visible(f"  {each['path']}: term {each['term']}{at}: {each['type']} {each['text']}")
    for log in item["logs"]:
        yield from map(visible, _suffix_lines(log))


def _suffix_lines(log: Item) -> Iterator[str]:
    if log["parts_at"] is not None:
        what = "was abandoned" if log["fate"] == "abandoned" else "is contested: another log has the same term"
        yield f"{log['path']}: what it has from record {log['parts_at']} to {log['last_index']} {what}"
    if (left := log["adopted_from"]) is not None and left.get("index", -1) >= 0:
        was = f"up to record {left.get('index')} of term {left.get('term')}"
        yield f"{log['path']}: adopted at record {log['base_index']}, in place of what it had ({was})"
    if log["missing"]:
        yield f"{log['path']}: {log['missing']} records are missing in it"
    if log["torn"]:
        yield f"{log['path']}: its end is torn"


def parting_lines(item: Item) -> Iterator[str]:
    """Where another reducer and ours part ways, and what is different there and at the end."""
    if item["parts_at"] is None:
        yield f"{item['records']} records, and nowhere a difference"
        return
    yield "they part at:"
    yield event_line(item["parts_at"])
    for heading, key in (("behind it:", "there"), ("at the end:", "at_end")):
        yield heading
        for each in item[key]:
            yield visible(f"  {each['path']}: {said(each['ours'])} here, {said(each['theirs'])} there")


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


REASON = Kind(
    "Reason", "runner", "runner_id", (Column("RUNNER", shown("runner_id")), Column("STATUS", shown("status")))
)


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


def rerun_lines(item: Item) -> Iterator[str]:
    """That a rerun has no difference, or where it has the first: the input, and what of its effects is not the same."""
    if (difference := item["difference"]) is None:
        yield f"{item['inputs']} inputs, no difference"
        return
    at = f"input {difference['input']} (line {difference['line']}) at {difference['at']}"
    yield f"{at} differs from what version {item['version']} did: {difference['type']}"
    yield from (f"  {name}: {_in_short(each)}" for name, each in difference["fields"].items())
    for each in difference["changes"]:
        yield f"effects.{each['path']}"
        yield f"  recorded {_in_short(each['recorded'])}"
        yield f"  now      {_in_short(each['now'])}"
    if difference["more_changes"]:
        yield f"... and {difference['more_changes']} more"


def _in_short(value: object) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARACTERS else f"{text[: VALUE_CHARACTERS - 1]}…"
