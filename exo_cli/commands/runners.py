"""`exo runners`: the runner processes and their states; their logs, a restart, and forgetting a lost one."""

from typing import Annotated

import typer

from exo_cli import replay_views, views
from exo_cli.api import EndpointOption, HeadersOption, Host, OutputOption
from exo_cli.console import Format
from exo_cli.engine.client import Client
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import UnavailableError, UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False, invoke_without_command=True)

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Show every change until interrupted.")]
WhyOption = Annotated[bool, typer.Option("--why", help="Say why nothing happens to them, as exo runners why does.")]
RunnerArgument = Annotated[str, typer.Argument(metavar="RUNNER", help="Its id, or the beginning of it.")]


@app.callback()
def runners(
    ctx: typer.Context,
    watch: WatchOption = False,
    reasons: WhyOption = False,
    output: OutputOption = None,
    headers: HeadersOption = True,
    endpoint: EndpointOption = None,
) -> None:
    """List the runner processes and their states."""
    if ctx.invoked_subcommand is None and reasons:
        why(ctx)
    elif ctx.invoked_subcommand is None:
        _list(Host.of(ctx), watch)
    elif watch or reasons:
        option = "--watch" if watch else "--why"
        raise UsageError(f"{option} belongs to the list, not to {ctx.invoked_subcommand}", f"exo runners {option}")


@app.command("list")
def list_runners(
    ctx: typer.Context,
    watch: WatchOption = False,
    output: OutputOption = None,
    headers: HeadersOption = True,
    endpoint: EndpointOption = None,
) -> None:
    """List them; the same as exo runners alone."""
    _list(Host.of(ctx), watch)


def _list(host: Host, watch: bool) -> None:
    with host.connect() as client:
        if watch:
            _watch(host, client)
        host.show_list(views.RUNNER, client.call("runners"), "no runners")


def _watch(host: Host, client: Client) -> None:
    """Until interrupted: a table drawn again on a terminal, changes in a pipe."""
    known: dict[str, Message] = {}
    synced = False
    for event in client.stream("watch", what="runners"):
        if event.get("type") != "changed":
            continue
        items: list[Message] = event.get("items") or []
        _show_changes(host, event, known, items, first=not synced)
        known = {str(item.get("runner_id")): item for item in items}
        synced = True
    raise UnavailableError("the node ended the watch", "exo runners --watch")


def _show_changes(host: Host, event: Message, known: dict[str, Message], items: list[Message], *, first: bool) -> None:
    changed = list(views.changes(views.RUNNER, known, items))
    match host.format:
        case Format.JSON | Format.JSONL:
            host.lines({"type": kind, "revision": event.get("revision"), "object": item} for kind, item in changed)
            if first:
                host.lines([{"type": "SYNCED", "revision": event.get("revision"), "object": None}])
        case Format.TABLE if host.console.on_terminal:
            host.console.clear_screen()
            host.show_list(views.RUNNER, event, "no runners")
        case _:
            rows = [{**item, "status": "gone"} if kind == "DELETED" else item for kind, item in changed]
            if first or rows:
                host.show_list(views.RUNNER, {"items": rows})
            host.headers = False


@app.command()
def why(
    ctx: typer.Context,
    subject: Annotated[
        str, typer.Argument(metavar="ID", help="A runner, instance or node.", show_default="all of them")
    ] = "",
    output: OutputOption = None,
    endpoint: EndpointOption = None,
) -> None:
    """Say why nothing happens to runners: the planner's rules, and the one fact that stops each."""
    host = Host.of(ctx)
    with host.connect() as client:
        reply = client.call("why", id=subject.removeprefix("runner/").removeprefix("instance/"))
    if host.machine or host.format in {Format.JSON, Format.JSONL}:
        host.show_list(replay_views.REASON, reply)
    else:
        for line in replay_views.reason_lines(reply["items"]):
            host.console.data(line)


@app.command()
def logs(
    ctx: typer.Context,
    runner: RunnerArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    endpoint: EndpointOption = None,
) -> None:
    """Print what a runner's process has printed."""
    host = Host.of(ctx)
    with host.connect() as client:
        runner_id = runner.removeprefix("runner/")
        for event in client.stream("runner_logs", runner_id=runner_id, lines=lines, follow=follow):
            if event.get("type") == "line":
                host.console.text(f"{event.get('text', '')}\n")


@app.command()
def restart(
    ctx: typer.Context,
    runner: Annotated[str, typer.Argument(metavar="RUNNER", help="The id of a runner or of its instance.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether to wait until it is ready again.")] = True,
    timeout: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait.")] = 600.0,
    output: OutputOption = None,
    endpoint: EndpointOption = None,
) -> None:
    """Start the runners of an instance afresh.

    The ranks of an instance work as one group, so all of them restart.
    """
    host = Host.of(ctx)
    kind, _, name = runner.rpartition("/")
    with host.connect() as client:
        # A runner's id is its instance's with the rank behind it.
        key = "instance_id" if kind == "instance" or name.count("-") < 2 else "runner_id"
        reply = client.call("restart", **{key: name, **host.command()})
        if wait:
            instance_id = str(reply["item"].get("instance_id"))
            reply["item"] = host.wait_instance(client, instance_id, "ready", timeout)
        host.show_item(views.RUNNER if "runner_id" in reply["item"] else views.INSTANCE, reply)


@app.command()
def forget(
    ctx: typer.Context, runner: RunnerArgument, output: OutputOption = None, endpoint: EndpointOption = None
) -> None:
    """Strike a runner whose node is gone or silent from the list."""
    host = Host.of(ctx)
    with host.connect() as client:
        reply = client.call("forget", runner_id=runner.removeprefix("runner/"), **host.command())
        host.show_item(views.RUNNER, reply)
