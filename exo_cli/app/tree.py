"""The tree of commands: the root's options, and the commands below it, of which only the one that runs is imported."""

import importlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from exo_cli import __version__
from exo_cli.api import EndpointOption, HeadersOption, Host, OutputOption, PluginFacts
from exo_cli.app.parameters import lighten
from exo_cli.commands import TABLE
from exo_cli.console import Console
from exo_cli.engine.core.errors import UsageError

BUILTIN = {row.name: row for row in TABLE}
ColorWord = Literal["auto", "always", "never"]


def _set_color(ctx: typer.Context, value: ColorWord | None) -> None:
    if value is not None:
        Host.of(ctx).console.color = value


ColorOption = Annotated[
    ColorWord | None, typer.Option("--color", help="Whether to use colour.", show_default="auto", callback=_set_color)
]


def _answer_help(ctx: typer.Context, value: bool) -> None:
    if value:
        Host.of(ctx).console.data(ctx.get_help())
        raise typer.Exit


# typer's own is made too late for its value to be read the light way.
HelpOption = Annotated[
    bool,
    typer.Option("--help", "-h", help="Show this message and exit.", is_eager=True, callback=_answer_help),
]


def _common(color: ColorOption = None, help: HelpOption = False) -> None:  # noqa: A002 - the option's name
    """Carry the options that every command has; each works by its callback."""


def load(name: str) -> Any:
    """A built-in command, imported now, with the common options on each of its leaves."""
    module, _, attribute = BUILTIN[name].target.partition(":")
    command = typer.main.get_command(getattr(importlib.import_module(module), attribute))
    command.name = name
    _add_common(command)
    return lighten(command)


def _add_common(command: Any) -> None:
    common = typer.Typer(rich_markup_mode=None, add_completion=False)
    common.command()(_common)
    parameters = typer.main.get_command(common).params
    for parameter in parameters:
        parameter.expose_value = False

    def visit(each: Any) -> None:
        each.params.extend(parameters)
        for child in getattr(each, "commands", {}).values():
            visit(child)

    visit(command)


class Stub(TyperCommand):
    """Stands in help for a command that is not imported: its name and one line."""


class LazyGroup(TyperGroup):
    """The root: the table and the plugins by name; only the one that runs is imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Built-in commands in the order of the table, then those of plugins."""
        return [*BUILTIN, *(plugin.name for plugin in _running(ctx))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stub for help."""
        if cmd_name in BUILTIN:
            return Stub(cmd_name, help=BUILTIN[cmd_name].summary, rich_markup_mode=None)
        summaries = (plugin.summary for plugin in _running(ctx) if plugin.name == cmd_name)
        return next((Stub(cmd_name, help=summary, rich_markup_mode=None) for summary in summaries), None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that is meant."""
        name, rest = args[0], args[1:]
        if name in BUILTIN:
            return name, load(name), rest
        for plugin in _running(ctx):
            if plugin.name == name:
                return name, Foreign(plugin), rest
        raise _unknown(name, self.list_commands(ctx))


class Foreign(TyperCommand):
    """A plugin as a command: every word is its own, and it is imported when it is invoked."""

    def __init__(self, plugin: PluginFacts) -> None:
        """Stand for a plugin."""
        super().__init__(plugin.name, rich_markup_mode=None)
        self.plugin = plugin

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Leave the words as they are, `--` and `--help` too."""
        ctx.args = list(args)
        return args

    def invoke(self, ctx: Any) -> NoReturn:
        """Run it, to its own exit code."""
        from exo_cli.plugins import running

        raise typer.Exit(running.run(Host.of(ctx), self.plugin, list(ctx.args)))


def _running(ctx: Any) -> list[PluginFacts]:
    """The plugins that run under their name; none without a host (the pages are made without)."""
    host: Host | None = ctx.find_object(Host)
    return [] if host is None else [plugin for plugin in host.plugins() if plugin.standing == "runs"]


def _unknown(name: str, known: Sequence[str]) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=2)
    return UsageError(f"there is no command {name!a}", *([f"exo {each} --help" for each in near] or ["exo --help"]))


app = typer.Typer(
    name="exo",
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _set_plugins(ctx: typer.Context, value: bool) -> None:
    if not value:
        Host.of(ctx).plugins = tuple


def _answer_version(value: bool) -> None:
    if value:
        Console().data(f"exo {__version__}")
        raise typer.Exit


@app.callback()
def root(
    output: OutputOption = None,
    endpoint: EndpointOption = None,
    headers: HeadersOption = True,
    color: ColorOption = None,
    plugins: Annotated[
        bool,
        typer.Option(
            "--plugins/--no-plugins",
            help="Whether commands of other packages are looked for.",
            is_eager=True,
            callback=_set_plugins,
        ),
    ] = True,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_answer_version)
    ] = False,
    help: HelpOption = False,  # noqa: A002 - the option's name
) -> None:
    """Run large language models on the machines you have."""
