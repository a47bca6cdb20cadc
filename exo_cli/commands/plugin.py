"""`exo plugin`: the commands that other packages add; which are there, and whether they work."""

import json
import subprocess
import sys
from typing import Annotated

import typer

from exo_cli import views
from exo_cli.api import HeadersOption, Host, OutputOption, PluginFacts
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import InternalError, NotFoundError

app = typer.Typer(
    help="Look at the commands that other packages add.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)
LOAD_SECONDS = 10.0
SLOW_MS = 200.0


def _column(header: str, key: str, *, wide: bool = False) -> views.Column:
    return views.Column(header, lambda item: views.said(item.get(key)), wide=wide, elastic=key == "summary")


COLUMNS = (
    _column("PLUGIN", "name"),
    _column("STANDING", "standing"),
    _column("SOURCE", "source"),
    _column("PACKAGE", "dist"),
    _column("VERSION", "version"),
    _column("TARGET", "target", wide=True),
    _column("SUMMARY", "summary"),
)
PLUGIN = views.Kind("Plugin", "plugin", "name", COLUMNS)
EXAMINED = views.Kind(
    "Plugin", "plugin", "name", (*COLUMNS[:4], _column("IMPORT", "import_said"), _column("HEALTH", "health"))
)


@app.command("list")
def list_plugins(ctx: typer.Context, output: OutputOption = None, headers: HeadersOption = True) -> None:
    """List them, those that another one shadows too."""
    host = Host.of(ctx)
    host.show_list(PLUGIN, {"items": [_facts(plugin) for plugin in host.plugins()]}, "no plugins")


@app.command()
def doctor(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="PLUGIN", help="One of them.", show_default="all")] = None,
    output: OutputOption = None,
    headers: HeadersOption = True,
) -> None:
    """Import each in a process of its own, and say how that went."""
    host = Host.of(ctx)
    plugins = [plugin for plugin in host.plugins() if name in {None, plugin.name}]
    if name is not None and not plugins:
        raise NotFoundError(f"there is no plugin {name!a}", "exo plugin list")
    items = [_examined(plugin) for plugin in plugins]
    host.show_list(EXAMINED, {"items": items}, "no plugins")
    if sick := [item["name"] for item in items if item["error"]]:
        raise InternalError(f"cannot be loaded: {', '.join(sick)}", "exo plugin list -o wide", code="plugin")


def _facts(plugin: PluginFacts) -> Message:
    keys = ("name", "standing", "source", "dist", "version", "target", "summary")
    return {key: getattr(plugin, key) or None for key in keys}


def _examined(plugin: PluginFacts) -> Message:
    found: Message = {"import_ms": None, "error": None}
    if plugin.source == "entry point":
        found |= _probe(plugin.name)
    milliseconds, error = found["import_ms"], found["error"]
    slow = milliseconds is not None and milliseconds > SLOW_MS
    return {
        **_facts(plugin),
        **found,
        "import_said": "-" if milliseconds is None else f"{milliseconds:.0f} ms",
        "health": error or ("slow to import" if slow else "well"),
    }


def _probe(name: str) -> Message:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "exo_cli.plugins.running", name],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=LOAD_SECONDS,
            check=False,
        )
        found: Message = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"its import did not end within {LOAD_SECONDS:.0f} s"}
    except (ValueError, IndexError):
        return {"error": f"its import ended the process with {done.returncode}"}
    return found
