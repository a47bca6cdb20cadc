"""Runs a plugin so that a broken one breaks nothing else: whatever it raises is an error with its package's name.

As a program (`python -m exo_cli.plugins.running NAME`) it imports one plugin and says how that went.
"""

import importlib
import itertools
import json
import os
import sys
import time
from typing import Any, NoReturn

import typer

from exo_cli.api import Host, PluginFacts
from exo_cli.engine.core.errors import ExoError, InternalError
from exo_cli.plugins import PROGRAM, entry_points, is_allowed, may_run, search_path


def run(host: Host, plugin: PluginFacts, arguments: list[str]) -> int:
    """Run a plugin with the words that follow its name; its exit code. A program takes this process's place."""
    if plugin.source == PROGRAM:
        _become(host, plugin, arguments)
    target = load(plugin)
    try:
        if not _is_typer(target):
            return int(target(arguments, host) or 0)
        mounted = _plain(typer.main.get_command(target))
        with mounted.make_context(f"exo {plugin.name}", arguments, obj=host) as context:
            mounted.invoke(context)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        if _is_ours(error):
            raise
        raise broken(plugin, "raised", error) from error
    return 0


def _plain(command: Any) -> Any:
    """Its help, as that of every command: no boxes, nothing that a pipe would choke on."""
    command.rich_markup_mode = None
    for child in getattr(command, "commands", {}).values():
        _plain(child)
    return command


def load(plugin: PluginFacts) -> Any:
    """What the entry point names. Whatever goes wrong in there, an exit too, is that plugin's error."""
    module, _, attribute = plugin.target.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in attribute.split(".") if attribute else ():
            target = getattr(target, part)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise broken(plugin, "cannot be loaded", error) from error
    if not _is_typer(target) and (hasattr(target, "make_context") or not callable(target)):
        kind = "a click command" if hasattr(target, "make_context") else f"a {type(target).__name__}"
        reason = TypeError(f"it offers {kind}; exo takes a typer.Typer or a callable (argv, host)")
        raise broken(plugin, "cannot be used", reason) from reason
    return target


def broken(plugin: PluginFacts, how: str, error: BaseException) -> InternalError:
    """A plugin's failure, with whose it is and how to be rid of it."""
    summary = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    hints = [f"exo plugin doctor {plugin.name}", *([f"pip uninstall {plugin.dist}"] if plugin.dist else [])]
    return InternalError(f"the plugin {plugin} {how}: {summary}", *hints, code="plugin", details={"dist": plugin.dist})


def _is_typer(target: object) -> bool:
    return isinstance(target, typer.Typer)


def _is_ours(error: Exception) -> bool:
    """Errors with a meaning of their own: ours, and typer's complaints about what was typed."""
    return isinstance(error, ExoError | typer.Exit | typer.Abort | typer.BadParameter.mro()[2] | BrokenPipeError)


def _become(host: Host, plugin: PluginFacts, arguments: list[str]) -> NoReturn:
    path, taken = _program_for([plugin.name, *arguments]) or (plugin.target, 1)
    environment = dict(os.environ, EXO_PLUGIN_API="1", EXO_BIN=sys.argv[0], EXO_COLOR=host.console.color)
    if host.chosen is not None:
        environment["EXO_ENDPOINT"] = host.chosen.address
    if host.output is not None:
        environment["EXO_OUTPUT"] = host.output.value
    sys.stdout.flush()
    try:
        os.execve(path, [path, *arguments[taken - 1 :]], environment)
    except OSError as error:
        host.console.say(f"error: {path}: {error.strerror}")
        raise typer.Exit(127 if isinstance(error, FileNotFoundError) else 126) from None


def _program_for(words: list[str]) -> tuple[str, int] | None:
    """The program whose name takes the most of these words (`exo-foo-bar` for `foo bar`), and how many it takes."""
    plain = list(itertools.takewhile(lambda word: word.isascii() and word.isalnum(), words))
    if not plain or not is_allowed(plain[0]):
        return None
    folders = search_path()
    for count in range(len(plain), 0, -1):
        paths = (f"{folder}/exo-{'-'.join(plain[:count])}" for folder in folders)
        if path := next(filter(may_run, paths), None):
            return path, count
    return None


def probe(name: str) -> int:
    """Import one plugin and say how that went, as JSON on stdout: what `plugin doctor` runs in a process of its own."""
    plugin = next(each for each in entry_points() if each.name == name)
    began, error = time.perf_counter(), None
    try:
        load(plugin)
    except InternalError as reason:
        error = reason.message
    sys.stdout.write("\n" + json.dumps({"import_ms": (time.perf_counter() - began) * 1000, "error": error}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(probe(sys.argv[1]))
