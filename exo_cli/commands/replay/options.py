"""The options of `exo replay`: what each is called, and what its help says."""

from enum import StrEnum
from typing import Annotated

import typer


class ReplayFormat(StrEnum):
    """Text for people, JSON for scripts; of `--events` JSON Lines, one an event."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


Logs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LOG",
        help="A file of events, a folder of them, a node's home, http://HOST:PORT of the public system, or - for "
        "stdin. Several are compared.",
        show_default="this machine's node's",
    ),
]
At = Annotated[
    str | None, typer.Option(metavar="INDEX|TIME", help="Stop after this record; -1 is the last, -2 before it.")
]
First = Annotated[int | None, typer.Option("--from", metavar="INDEX", help="Only records from this one on.")]
Last = Annotated[int | None, typer.Option("--to", metavar="INDEX", help="Only records up to this one.")]
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
    typer.Option(
        "--filter",
        metavar="KEY=VALUE",
        help="Only events whose type, id, node, client or term is this; of one KEY given again, any.",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Print the events that come, and what goes wrong.")]
Stats = Annotated[bool, typer.Option("--stats", help="Count by type, node and hour, and name what floods.")]
Step = Annotated[bool, typer.Option("--step", help="Walk through the events by keys, with the state beside them.")]
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
Reducer = Annotated[
    str | None,
    typer.Option(metavar="MODULE:FUNCTION", help="Fold with another reducer too, and say where the two part ways."),
]
Export = Annotated[str | None, typer.Option(metavar="FILE", help="Write the events to FILE in exo's own format.")]
Redact = Annotated[bool, typer.Option("--redact", help="Of --export: short names for ids, no hosts, addresses, texts.")]
Rerun = Annotated[
    bool, typer.Option("--rerun", help="Step a recording of node start --record again, and name what differs.")
]
Timeline = Annotated[bool, typer.Option("--timeline", help="Draw what was in which state when.")]
Html = Annotated[str | None, typer.Option("--html", metavar="FILE", help="The same as a page to look at in a browser.")]
Check = Annotated[
    bool, typer.Option("--check", help="Find what is stale or contradictory; end with 1 if there is something.")
]
Strict = Annotated[bool, typer.Option("--strict", help="A torn tail is an error too.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Pass over damaged records.")]
SkipUnknown = Annotated[bool, typer.Option("--skip-unknown", help="Pass over unknown events.")]
Output = Annotated[ReplayFormat, typer.Option("--output", "-o", help="Format of the answer.")]
