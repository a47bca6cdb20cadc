"""`exo replay LOG`: the state that a recorded log adds up to, and what is wrong in it."""

from enum import StrEnum
from typing import Annotated

import typer

from exo_cli import views
from exo_cli.api import Host
from exo_cli.engine.client.endpoint import Message

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class ReplayFormat(StrEnum):
    """Text for people, JSON for scripts."""

    TEXT = "text"
    JSON = "json"


@app.command()
def replay(
    ctx: typer.Context,
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="A segment, a folder of segments, a node's home, or - for stdin.")
    ],
    at: Annotated[int | None, typer.Option(min=-1, metavar="INDEX", help="Stop after this record.")] = None,
    check: Annotated[bool, typer.Option("--check", help="End with 1 when something is found to be wrong.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A torn tail is an error too.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Pass over damaged records.")] = False,
    skip_unknown: Annotated[bool, typer.Option("--skip-unknown", help="Pass over unknown events.")] = False,
    output: Annotated[ReplayFormat, typer.Option("--output", "-o", help="Format of the answer.")] = ReplayFormat.TEXT,
) -> None:
    """Fold a recorded event log through the reducer again.

    Shows what it adds up to and what is stale or contradictory in it. The log is never written to.
    """
    from exo_cli.engine.replayer import replay as fold

    host = Host.of(ctx)
    folded: Message = fold(log, at=at, check=check, strict=strict, skip_bad=skip_bad, skip_unknown=skip_unknown)
    item: Message = folded["item"]
    if item.get("torn_tail"):
        host.console.say(f"warning: the log ends in the middle of a record: {views.said(item['torn_tail'])}")
    if output is ReplayFormat.JSON:
        host.console.document(views.item_document("Replay", folded.get("revision"), item))
    else:
        _summarise(host, item, checked=check)
    raise typer.Exit(folded["exit_code"])


def _summarise(host: Host, item: Message, *, checked: bool) -> None:
    host.console.table(views.replay_summary(item, checked=checked), headers=False)
    if found := item.get("findings"):
        host.console.data("")
        host.console.table(views.findings(found))
