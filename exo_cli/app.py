"""The root command: finds the command without importing the others, and turns every end into one exit.

An error becomes `error:` and `hint:` lines (one line of JSON for machines) and its exit code; Ctrl-C and a reader that
went away end the process by the signal itself, so that a shell's loop stops too; a bug leaves a file, not a traceback.
"""

import errno
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from exo_cli import __version__
from exo_cli.api import EndpointOption, HeadersOption, Host, OutputOption, PluginFacts
from exo_cli.commands import TABLE
from exo_cli.console import Console
from exo_cli.engine.core.errors import ExoError, FailedError, InternalError, UsageError
from exo_cli.engine.paths import find_paths

BUILTIN = {row.name: row for row in TABLE}
# typer's own complaints: the class is private where it stands, public as an ancestor of one that is exported.
Complaint: Any = typer.BadParameter.mro()[2]
ColorWord = Literal["auto", "always", "never"]


def _set_color(ctx: typer.Context, value: ColorWord | None) -> None:
    if value is not None:
        Host.of(ctx).console.color = value


ColorOption = Annotated[
    ColorWord | None, typer.Option("--color", help="Whether to use colour.", show_default="auto", callback=_set_color)
]


def _common(color: ColorOption = None) -> None:
    """Carry the options that every command has; each works by its callback."""


def load(name: str) -> Any:
    """A built-in command, imported now, with the common options on each of its leaves."""
    module, _, attribute = BUILTIN[name].target.partition(":")
    command = typer.main.get_command(getattr(importlib.import_module(module), attribute))
    command.name = name
    _add_common(command)
    return command


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
) -> None:
    """Run large language models on the machines you have."""


def new_host() -> Host:
    """A host on this process's streams, with the plugins of this environment."""

    def offered() -> Sequence[PluginFacts]:
        from exo_cli import plugins

        return plugins.offered()

    host = Host(Console())
    host.plugins = offered
    return host


def main(argv: list[str]) -> int:
    """Run one command line; the exit code. Signals end the process itself."""
    host = new_host()
    host.machine = _asks_for_json(argv)
    try:
        return run(host, argv)
    except KeyboardInterrupt:
        # A second one while the first is being reported ends at once.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with suppress(OSError):
            host.console.end_progress()
            host.console.say(host.interrupted)
        die_of(signal.SIGINT)
    except BrokenPipeError:
        die_of(signal.SIGPIPE)
    except InternalError as error:
        return _end(host, kept(error, error.__cause__ or error))
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            return _end(host, kept(InternalError(_bug(error)), error))
        _drop_output()
        return _end(host, FailedError(f"the answer cannot be written: {error.strerror}", "df -h"))
    except ExoError as error:
        return _end(host, error)
    except Exception as error:
        return _end(host, kept(InternalError(_bug(error)), error))


def _bug(error: Exception) -> str:
    return f"this is a bug in exo: {type(error).__name__}: {error}"


def run(host: Host, argv: list[str]) -> int:
    """Parse and run; typer's complaints become usage errors of ours."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("exo", list(argv), obj=host) as ctx:
            command.invoke(ctx)
        sys.stdout.flush()
    except typer.Exit as end:
        sys.stdout.flush()
        return end.exit_code
    except Complaint as complaint:
        raise usage_error(complaint) from None
    return 0


def usage_error(complaint: Any) -> ExoError:
    """What typer complained of, in our words."""
    context: Any = getattr(complaint, "ctx", None)
    text = complaint.format_message()
    path = context.command_path if context else "exo"
    if text.startswith("Usage:"):
        text = "A command is missing"
    text = text.replace("Value error, ", "").replace("Input should be ", "should be ")
    return UsageError(text[:1].lower() + text[1:].rstrip("."), f"{path} --help")


def _asks_for_json(argv: Sequence[str]) -> bool:
    """Whether errors are to be JSON, known before anything is parsed: the parser's own complaints are errors too."""
    for number, word in enumerate(argv):
        if word == "--":
            return False
        value = argv[number + 1] if word in {"-o", "--output"} and number + 1 < len(argv) else None
        if value in {"json", "jsonl"} or word in {"-ojson", "-ojsonl", "--output=json", "--output=jsonl"}:
            return True
    return False


def _end(host: Host, error: ExoError) -> int:
    try:
        host.console.error(error, machine=host.machine)
        sys.stdout.flush()
    except BrokenPipeError:
        die_of(signal.SIGPIPE)
    return int(error.exit_code)


def kept(error: InternalError, cause: BaseException) -> InternalError:
    """Keep the traceback in a file, and have the error name it."""
    report = [f"exo {__version__}, Python {sys.version}, {sys.platform}\n", *traceback.format_exception(cause)]
    try:
        folder = find_paths().state
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"crash-{os.getpid()}.log"
        path.touch(mode=0o600)
        path.write_text("".join(report), errors="backslashreplace")
    except (OSError, ExoError) as reason:
        error.message += f"\nno report could be written: {reason}"
    else:
        error.message += f"\nthe report is in {path}"
        error.hints = error.hints or (f"cat {path}",)
    return error


def _drop_output() -> None:
    """What is left in stdout's buffer, or comes yet, goes nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def die_of(number: signal.Signals) -> NoReturn:
    """End by the signal itself, quietly: what is left in the streams' buffers goes nowhere."""
    with suppress(OSError, ValueError):
        if number == signal.SIGPIPE:
            _drop_output()
        sys.stdout.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pause()
    raise AssertionError("the signal ends the process")
