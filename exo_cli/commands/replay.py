"""`exo replay LOG`: the state that a recorded log adds up to, and what is wrong in it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from exo_cli import views
from exo_cli.api import Host
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import ExitCode

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class ReplayFormat(StrEnum):
    """Text for people, JSON for scripts."""

    TEXT = "text"
    JSON = "json"


@app.command()
def replay(
    ctx: typer.Context,
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A segment, or a folder of segments.")],
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
    from exo_cli.engine import replayer

    host = Host.of(ctx)
    folded: Message = replayer.replay(
        log, at=at, check=check, strict=strict, skip_bad=skip_bad, skip_unknown=skip_unknown
    )
    item: Message = {key: value for key, value in folded.items() if key != "revision"}
    if output is ReplayFormat.JSON:
        host.console.document(views.item_document("Replay", folded.get("revision"), item))
    else:
        _summarise(host, item)
    if check and item.get("findings"):
        raise typer.Exit(int(ExitCode.FAILED))


def _summarise(host: Host, item: Message) -> None:
    host.console.table(views.replay_summary(item), headers=False)
    findings: list[Message] = item.get("findings") or []
    if findings:
        host.console.data("")
        host.console.table(views.findings(findings))
