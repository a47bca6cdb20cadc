"""`exo replay LOG`: the state that a recorded log adds up to, what is wrong in it, and the story of one thing."""

from enum import StrEnum
from typing import Annotated, NoReturn

import typer

from exo_cli import views
from exo_cli.api import Host
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import NotFoundError, UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class ReplayFormat(StrEnum):
    """Text for people, JSON for scripts; of `--events` JSON Lines, one an event."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


Log = Annotated[
    str | None,
    typer.Argument(
        metavar="LOG",
        help="A file of events, a folder of them, a node's home, or - for stdin.",
        show_default="this machine's node's",
    ),
]
At = Annotated[
    str | None, typer.Option(metavar="INDEX|TIME", help="Stop after this record; -1 is the last, -2 before it.")
]
First = Annotated[int | None, typer.Option("--from", metavar="INDEX", help="Tell of records from this one on.")]
Last = Annotated[int | None, typer.Option("--to", metavar="INDEX", help="Tell of records up to this one.")]
Show = Annotated[
    str | None, typer.Option(metavar="PART", help="Print a part of the state: runners, tasks, nodes.ID.facts, ...")
]
Explain = Annotated[
    str | None,
    typer.Option(metavar="ID", help="The story of a runner, instance, task, node or model: who did what, when."),
]
Why = Annotated[
    str | None,
    typer.Option("--why", metavar="ID", help="Why nothing happens to a runner, instance or node: each rule's verdict."),
]
Node = Annotated[str | None, typer.Option("--node", metavar="NODE", help="Of --why: only runners of this node.")]
Events = Annotated[bool, typer.Option("--events", help="Print the events, one a line.")]
Filters = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="KEY=VALUE", help="Only events whose type, id, node, client or term is this."),
]
Stats = Annotated[bool, typer.Option("--stats", help="Count by type, node and hour, and name what floods.")]
Without = Annotated[
    list[int] | None, typer.Option("--without", metavar="INDEX", help="What is found when this record is left out.")
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="INDEX=FILE", help="What is found with the event in FILE put in before INDEX."),
]
Shrink = Annotated[
    str | None,
    typer.Option(metavar="FINDING", help="A test with the least events that show a finding (KIND:ID), on stdout."),
]
Bisect = Annotated[
    str | None,
    typer.Option(metavar="CONDITION", help="The first record at which 'PATH op VALUE' holds, or a finding began."),
]
Check = Annotated[bool, typer.Option("--check", help="End with 1 when something is found to be wrong.")]
Strict = Annotated[bool, typer.Option("--strict", help="A torn tail is an error too.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Pass over damaged records.")]
SkipUnknown = Annotated[bool, typer.Option("--skip-unknown", help="Pass over unknown events.")]
Output = Annotated[ReplayFormat, typer.Option("--output", "-o", help="Format of the answer.")]


@app.command()
def replay(
    ctx: typer.Context,
    log: Log = None,
    at: At = None,
    first: First = None,
    last: Last = None,
    show: Show = None,
    explain: Explain = None,
    why: Why = None,
    node: Node = None,
    events: Events = False,
    filters: Filters = None,
    stats: Stats = False,
    without: Without = None,
    added: With = None,
    shrink: Shrink = None,
    bisect: Bisect = None,
    check: Check = False,
    strict: Strict = False,
    skip_bad: SkipBad = False,
    skip_unknown: SkipUnknown = False,
    output: Output = ReplayFormat.TEXT,
) -> None:
    """Fold a recorded event log through the reducer again.

    Shows what it adds up to; --check what is stale or contradictory in it, since when, why, and what to run; --explain
    how it came to that; --stats what floods it. The log is never written to. What the public system recorded
    (events.bin, events.bin.zst, the array of its /events) is read as well.
    """
    from exo_cli.engine.replaying import replay as fold
    from exo_cli.engine.replaying.questions import Questions

    host = Host.of(ctx)
    path = str(host.config.log) if log is None else log
    if without or added or shrink or bisect:
        _try(host, path, output, without or [], added or [], shrink, bisect)
    telling = events or bool(filters)
    questions = Questions(
        explain=explain,
        why=why,
        node=node,
        stats=stats,
        filters=tuple(filters or ()),
        first=first,
        last=last,
        on_event=(lambda row: _say_event(host, row, output)) if telling else None,
    )
    lenient = {"strict": strict, "skip_bad": skip_bad, "skip_unknown": skip_unknown}
    folded: Message = fold(path, at=_point(at), check=check, questions=questions, **lenient)
    item: Message = folded["item"]
    if item.get("torn_tail"):
        host.console.say(f"warning: the log ends in the middle of a record: {views.said(item['torn_tail'])}")
    if show is not None:
        host.console.document(_part(item["state"], show))
    elif output is ReplayFormat.JSON:
        host.console.document(views.item_document("Replay", folded.get("revision"), item))
    elif not telling:
        _summarise(host, item, checked=check)
    raise typer.Exit(folded["exit_code"])


def _try(
    host: Host,
    path: str,
    output: ReplayFormat,
    without: list[int],
    added: list[str],
    shrink: str | None,
    bisect: str | None,
) -> NoReturn:
    """What is asked of the log as it might have been; the exit code is of that."""
    from exo_cli.engine.replaying import trials

    if sum((bool(without or added), shrink is not None, bisect is not None)) > 1:
        raise UsageError("--shrink and --bisect stand alone", "exo replay --help")
    if shrink is not None:
        finding, placed, test = trials.shrink(path, shrink)
        host.console.say(f"{finding.kind} of {finding.id}: {len(placed)} events are enough")
        host.console.text(test)
        raise typer.Exit(0)
    if bisect is not None:
        host.console.data(str(trials.bisect(path, bisect)))
        raise typer.Exit(0)
    told: Message = trials.trial(path, without, [_addition(each) for each in added])
    if output is ReplayFormat.TEXT:
        for name in ("vanished", "new", "findings"):
            host.console.data(f"{name}: {len(told[name])}")
            for each in told[name]:
                host.console.data(views.finding_line(each))
    else:
        host.console.document(views.item_document("Trial", None, told))
    raise typer.Exit(1 if told["grave"] else 0)


def _addition(text: str) -> tuple[int, str]:
    index, _, file = text.partition("=")
    if not index.isdecimal() or not file:
        raise UsageError(f"not INDEX=FILE: {text!a}", "exo replay LOG --with 97=event.json")
    return int(index), file


def _point(at: str | None) -> int | str | None:
    """An index as a number; anything else is judged as a time."""
    if at is None or not at.removeprefix("-").isdecimal():
        return at
    return int(at)


def _say_event(host: Host, row: Message, output: ReplayFormat) -> None:
    if output is ReplayFormat.TEXT:
        host.console.data(views.event_line(row))
    elif output is ReplayFormat.JSONL:
        host.console.json_line(row)


def _part(state: Message, path: str) -> object:
    """What stands in the state at a path of names with dots between; a name may hold dots itself."""
    found: object = state
    left = path
    while left:
        if not isinstance(found, dict):
            raise NotFoundError(f"the state has nothing at {path!a}", "exo replay LOG -o json")
        names = [name for name in map(str, found) if left == name or left.startswith(f"{name}.")]
        if not names:
            known = ", ".join(list(map(str, found))[:20])
            raise UsageError(f"the state has nothing at {path!a}: there is {known or 'nothing'}", "exo replay --help")
        name = max(names, key=len)
        found, left = found[name], left[len(name) + 1 :]
    return found


def _summarise(host: Host, item: Message, *, checked: bool) -> None:
    if (story := item.get("story")) is not None:
        for line in views.story_lines(story):
            host.console.data(line)
        return
    if (reasons := item.get("why")) is not None:
        for line in views.reason_lines(reasons):
            host.console.data(line)
        return
    if (statistics := item.get("statistics")) is not None:
        for table in views.statistics_tables(statistics):
            host.console.table(table)
            host.console.data("")
        return
    host.console.table(views.replay_summary(item, checked=checked), headers=False)
    if found := item.get("findings"):
        host.console.data("")
        host.console.table(views.findings(found))
