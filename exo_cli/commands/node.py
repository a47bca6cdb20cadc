"""`exo node`: start, stop, list, show, logs."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from exo_cli import views
from exo_cli.api import EndpointOption, HeadersOption, Host, OutputOption
from exo_cli.console import visible
from exo_cli.engine.client import Client
from exo_cli.engine.client.background import NodeProcess, started
from exo_cli.engine.client.endpoint import how_to_end, is_suspended, local_endpoint, process_state
from exo_cli.engine.core.errors import NotFoundError, UnavailableError, UsageError, WaitTimeoutError
from exo_cli.engine.paths import unusable

app = typer.Typer(
    help="Start, stop and look at nodes.", rich_markup_mode=None, add_completion=False, no_args_is_help=True
)
START_SECONDS = 20.0
GREETINGS_SECONDS = 2.0
STOP_SECONDS = 15.0
NAME_CHARACTERS = 128


@app.command()
def start(
    ctx: typer.Context,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; print node id and pid.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where other nodes reach this one; PORT, PORT+1 and PORT+2 are used."),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="A node to join; may be given several times.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="A name for people.", show_default="the machine's")
    ] = None,
    fsync: Annotated[
        bool, typer.Option("--fsync/--no-fsync", help="Whether records are forced to disk before they count.")
    ] = True,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Record what this node is told and what it does, for 'exo replay FILE --rerun'."
        ),
    ] = None,
    solo: Annotated[bool, typer.Option("--solo", hidden=True)] = False,
    engine: Annotated[str | None, typer.Option(hidden=True, envvar="EXO_ENGINE")] = None,
    output: OutputOption = None,
) -> None:
    """Start a node on this machine.

    It runs in the foreground until it is stopped (Ctrl-C, or exo node stop), or in the background with --detach.
    """
    host = Host.of(ctx)
    _check(listen, peer or [], name, engine, record)
    if detach:
        _start_detached(host, _again(listen, peer or [], name, fsync, engine, record))
        return
    from exo_cli.engine.node import NodeOptions, run

    options = NodeOptions(
        listen=listen,
        peers=tuple(peer or ()),
        name=name,
        solo=solo,
        engine=engine,
        fsync=fsync,
        record=record,
    )
    host.interrupted = "stopped"
    run(options, on_ready=lambda facts: _say_ready(host, facts))


def _check(listen: str | None, peers: list[str], name: str | None, engine: str | None, record: Path | None) -> None:
    """Refuse what no node can be started with, before one is begun. Raises UsageError."""
    from exo_cli.engine.net.addresses import checked_address

    if listen is not None:
        checked_address(listen, "--listen")
    for peer in peers:
        checked_address(peer, "--peer")
    if name is not None and (fault := _name_fault(name)):
        raise UsageError(f"--name {fault}", "exo node start --name desk")
    if record is not None:
        from exo_cli.engine.recorder import check_target

        check_target(record)
    if engine is not None and engine != "mlx" and not (engine.startswith("scripted:") and engine != "scripted:"):
        raise UsageError(f"there is no engine {engine!a}: it is mlx or scripted:FILE", "unset EXO_ENGINE")


def _name_fault(name: str) -> str | None:
    if not name.strip():
        return "is empty"
    if len(name) > NAME_CHARACTERS:
        return f"has {len(name)} characters, at most {NAME_CHARACTERS} are allowed"
    return f"has characters that cannot be shown: {name!a}" if visible(name) != name else None


def _again(
    listen: str | None, peers: list[str], name: str | None, fsync: bool, engine: str | None, record: Path | None
) -> list[str]:
    """The options of this command for the process in the background."""
    words = [] if fsync else ["--no-fsync"]
    given = {"--listen": listen, "--name": name, "--engine": engine, "--record": record}
    words += [f"{option}={value}" for option, value in given.items() if value is not None]
    return words + [f"--peer={peer}" for peer in peers]


def _say_ready(host: Host, facts: dict[str, Any]) -> None:
    listens = f" listens on {facts['listen']}," if facts.get("listen") else ""
    host.console.say(f"node {facts.get('node_id')} ({facts.get('name')}){listens} pid {facts.get('pid')}")
    if facts.get("log_dir"):
        host.console.say(f"its event log is in {facts['log_dir']}")


def _after_greetings(client: Client) -> dict[str, Any]:
    """What the node says of itself once its peers have had a moment to answer."""
    end = time.monotonic() + GREETINGS_SECONDS
    while True:
        facts: dict[str, Any] = client.call("node")["item"]
        is_settled = facts["phase"] in {"following", "leaving"} or not facts["unmet"]
        if is_settled or time.monotonic() > end:
            return facts
        time.sleep(0.05)


def _start_detached(host: Host, arguments: list[str]) -> None:
    with started(host.config.state / "node.log", *arguments) as process:
        _say_started(host, process)


def _say_started(host: Host, process: NodeProcess) -> None:
    with process.wait_answers(local_endpoint(), START_SECONDS, own=True) as client:
        hello = client.hello
        try:
            facts = _after_greetings(client)
        except UnavailableError:
            raise process.wait_ended(STOP_SECONDS) from None
    if facts["phase"] == "leaving":  # it found out that its folders are a copy
        raise process.wait_ended(STOP_SECONDS)
    for address, why in facts["tried"].items():
        host.console.say(f"warning: peer {address}: {why} (it is tried again)")
    item = {
        "node_id": hello.get("node_id"),
        "name": hello.get("name"),
        "pid": process.pid,
        "listen": facts["listen"],
        "output": str(process.log),
    }
    if host.machine or host.output is not None:
        host.show_item(views.NODE, {"item": item})
    else:
        _say_ready(host, item)
        host.console.data(f"{item['node_id']} {item['pid']}")


@app.command()
def stop(
    ctx: typer.Context,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait until it is gone.")] = 30.0,
    endpoint: EndpointOption = None,
) -> None:
    """Stop the node, and wait until it is gone."""
    host = Host.of(ctx)
    with host.connect() as client:
        pid = client.call("stop").get("pid")
        host.console.progress(f"stopping node {client.hello.get('node_id')}, pid {pid}")
        end = time.monotonic() + timeout
        while not _is_gone(client, pid):
            if time.monotonic() > end:
                raise _still_runs(client, pid, timeout)
            time.sleep(0.02)
    host.console.end_progress()


def _still_runs(client: Client, pid: object, timeout: float) -> WaitTimeoutError:
    what, hint = (
        f"the node still runs after {timeout:g} s (pid {pid})",
        f"exo node show --endpoint {client.endpoint.address}",
    )
    if client.endpoint.socket_path is not None and isinstance(pid, int):
        what, hint = what + (", and is suspended" if is_suspended(pid) else ""), how_to_end(pid)
    return WaitTimeoutError(what, hint)


def _is_gone(client: Client, pid: object) -> bool:
    """Whether nothing answers there any more and, on this machine, the process has ended."""
    try:
        Client(client.endpoint).close()
    except UnavailableError as error:
        if error.details.get("reason") != "absent":
            return False
    else:
        return False
    return client.endpoint.socket_path is None or not isinstance(pid, int) or not _runs(pid)


def _runs(pid: int) -> bool:
    if state := process_state(pid):
        # Ended, but its parent has not asked: gone for everybody else.
        return state not in {"Z", "X"}
    if sys.platform == "linux":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@app.command("list")
def list_nodes(
    ctx: typer.Context, output: OutputOption = None, headers: HeadersOption = True, endpoint: EndpointOption = None
) -> None:
    """List the nodes of the cluster."""
    host = Host.of(ctx)
    with host.connect() as client:
        host.show_list(views.NODE, client.call("nodes"), "no nodes")


@app.command()
def show(
    ctx: typer.Context,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE", help="Its id, the beginning of it, or its name.", show_default="the one that is asked"
        ),
    ] = None,
    output: OutputOption = None,
    endpoint: EndpointOption = None,
) -> None:
    """Show one node."""
    host = Host.of(ctx)
    with host.connect() as client:
        host.show_item(views.NODE, client.call("node", node_id=node and node.removeprefix("node/")))


@app.command()
def logs(
    ctx: typer.Context,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
) -> None:
    """Print what this machine's node, started in the background, has said."""
    host = Host.of(ctx)
    if host.chosen is not None and host.chosen.source != "EXO_ENDPOINT":
        raise UsageError("node logs reads a file of this machine, not of another node", "exo runners logs ID")
    path = host.config.state / "node.log"
    try:
        with path.open(errors="replace") as file:
            text = file.read()
            for line in text.splitlines()[-lines:] if lines else ():
                host.console.text(line + "\n")
            while follow:
                if piece := file.read():
                    host.console.text(piece)
                else:
                    time.sleep(0.2)
    except FileNotFoundError:
        raise NotFoundError(f"no node was started in the background here ({path})", "exo node start --detach") from None
    except OSError as error:
        if error.filename is None:
            raise  # of stdout
        raise unusable(path, error, "cannot read") from None
