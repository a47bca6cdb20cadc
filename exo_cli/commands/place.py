"""`exo place MODEL`: put a model on machines; done when every runner is ready."""

from enum import StrEnum
from typing import Annotated

import typer

from exo_cli import views
from exo_cli.api import EndpointOption, Host, OutputOption, model_name
from exo_cli.console import MACHINE, visible
from exo_cli.engine.client import Client
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import ExoError

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Strategy(StrEnum):
    """How a model is cut over several nodes."""

    PIPELINE = "pipeline"
    TENSOR = "tensor"


@app.command()
def place(
    ctx: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="smollm2, a folder, a GGUF file, or a Hugging Face id (org/name).")
    ],
    min_nodes: Annotated[int, typer.Option(min=1, metavar="N", help="The least number of nodes to use.")] = 1,
    strategy: Annotated[Strategy | None, typer.Option(help="How the model is cut.", show_default="pipeline")] = None,
    nodes: Annotated[
        str | None, typer.Option(metavar="NODE,NODE", help="Only these nodes, in this order of preference.")
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=1, metavar="TOKENS", help="Room for a conversation, in tokens.")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Another instance, even where one is placed already.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Place even where memory seems too small.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be placed; change nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether to wait until it is ready.")] = True,
    timeout: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait.")] = 600.0,
    output: OutputOption = None,
    endpoint: EndpointOption = None,
) -> None:
    """Put a model on machines and wait until it is ready.

    Prints the id of the instance. Asking twice for the same is one instance, unless --new is given.
    """
    host = Host.of(ctx)
    with host.connect() as client:
        reply = client.call(
            "place",
            deadline_seconds=60,
            model=model_name(model),
            strategy=strategy,
            min_nodes=min_nodes,
            nodes=[each.removeprefix("node/") for each in nodes.split(",") if each] if nodes else [],
            context_tokens=context,
            new=new,
            force=force,
            dry_run=dry_run,
            **host.command(),
        )
        item: Message = reply["item"]
        if host.format not in MACHINE and not dry_run:
            _show(host, reply)
        if wait and not dry_run and item.get("status") != "ready":
            item = reply["item"] = _ready(host, client, item, timeout)
        if dry_run:
            host.show_item(views.INSTANCE, reply)
        elif host.format in MACHINE:
            _show(host, reply)


def _show(host: Host, reply: Message) -> None:
    """The id alone, for `$(exo place ...)`; documents and names where they were asked for."""
    if host.output is None or host.output not in {*MACHINE, "name"}:
        host.console.data(visible(str(reply["item"]["instance_id"])))
    else:
        host.show_item(views.INSTANCE, reply)


def _ready(host: Host, client: Client, item: Message, timeout: float) -> Message:
    instance_id = item["instance_id"]
    host.interrupted = f"interrupted; {instance_id} is still being placed (exo delete {instance_id} takes it off)"
    try:
        ready = host.wait_instance(client, instance_id, "ready", timeout)
    except ExoError as error:
        if not error.hints:
            error.hints = ("exo runners", f"exo delete {instance_id}")
        raise
    host.console.progress(views.progress_line(ready))
    host.console.end_progress()
    return {**item, **ready}
