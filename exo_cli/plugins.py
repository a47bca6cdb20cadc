"""Commands from other packages: found without importing them, run so that a broken one breaks nothing else.

Two sources: entry points of the group `exo.commands.v1`, and programs `exo-NAME` on PATH. A built-in command wins over
an entry point, an entry point over a program. Nothing of a plugin is imported before it is run. Importing this module
costs little: completion does it too.
"""

import os
import sys

from exo_cli.commands import TABLE

TYPE_CHECKING = False  # typing itself is left out of a TAB's way
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from exo_cli.api import Host
    from exo_cli.engine.core.errors import InternalError

GROUP = "exo.commands.v1"
# Programs of the field that are called exo-NAME and are no commands of ours.
RESERVED = frozenset({"cli", "bench", "tools"})
ENTRY_POINT, PROGRAM = "entry point", "program"
_FIELDS = 6


class Plugin:
    """A command that is offered: where from, and by which distribution."""

    __slots__ = ("dist", "name", "source", "summary", "target", "version")

    def __init__(self, name: str, source: str, target: str, dist: str, version: str, summary: str) -> None:
        """Take the facts. `target` is `module:attribute` or a path."""
        self.name, self.source, self.target = name, source, target
        self.dist, self.version, self.summary = dist, version, summary

    def row(self) -> tuple[str, ...]:
        """As the cache keeps it."""
        return (self.name, self.source, self.target, self.dist, self.version, self.summary)

    def __str__(self) -> str:
        """As an error names it."""
        return f"{self.name} ({self.dist} {self.version})" if self.dist else f"{self.name} ({self.target})"


def found() -> list[Plugin]:
    """The plugins that can be run, one for each name."""
    taken = {row.name for row in TABLE}
    chosen: dict[str, Plugin] = {}
    for plugin in offered():
        if plugin.name not in taken and is_allowed(plugin.name):
            chosen.setdefault(plugin.name, plugin)
    return list(chosen.values())


def offered() -> list[Plugin]:
    """Every plugin that is there, those that are shadowed too, first come first."""
    if os.environ.get("EXO_NO_PLUGINS"):
        return []
    return [*entry_points(), *programs()]


def is_allowed(name: str) -> bool:
    """Whether a command may be called so."""
    return name.isascii() and name.isalnum() and name[0].isalpha() and name.islower() and name not in RESERVED


# -- entry points -----------------------------------------------------------------------------------------------------


def entry_points() -> list[Plugin]:
    """The group's entry points, from the cache as long as no folder of sys.path has changed."""
    key = _key(sys.path)
    cache = _cache()
    try:
        with open(cache, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is too slow to import for a TAB
            head, *rows = file.read().split("\n")
        if head == key:
            return [Plugin(*cells) for row in rows if len(cells := row.split("\t")) == _FIELDS]
    except (OSError, ValueError):
        pass
    scanned = scan(sys.path)
    draft = f"{cache}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(cache), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        with open(draft, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write("\n".join([key, *("\t".join(plugin.row()) for plugin in scanned)]))
        os.replace(draft, cache)  # noqa: PTH105
    except OSError:
        pass
    return scanned


def _cache() -> str:
    from exo_cli.engine.paths import find_paths

    return f"{find_paths().cache}/plugins-{sys.version_info[0]}.{sys.version_info[1]}.tsv"


def _key(folders: list[str]) -> str:
    parts: list[str] = []
    for folder in folders:
        try:
            parts.append(f"{folder}:{os.stat(folder or '.').st_mtime_ns}")  # noqa: PTH116
        except OSError:
            continue
    return "\x1f".join(parts).replace("\n", " ")


def scan(folders: list[str]) -> list[Plugin]:
    """Read the entry points of every distribution in these folders."""
    plugins: list[Plugin] = []
    for folder in folders:
        try:
            names = sorted(os.listdir(folder or "."))  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                plugins += _read(f"{folder or '.'}/{name}")
    return plugins


def _read(folder: str) -> list[Plugin]:
    text = _text(f"{folder}/entry_points.txt")
    if GROUP not in text:
        return []
    dist, _, version = folder.rpartition("/")[2].rpartition(".")[0].partition("-")
    summary = ""
    for line in (_text(f"{folder}/METADATA") or _text(f"{folder}/PKG-INFO")).split("\n"):
        if not line.strip():
            break
        if line.startswith("Summary:"):
            summary = " ".join(line[8:].split())
    plugins: list[Plugin] = []
    inside = False
    for line in map(str.strip, text.split("\n")):
        if line.startswith("["):
            inside = line == f"[{GROUP}]"
        elif inside and "=" in line:
            name, _, target = line.partition("=")
            cells = (name.strip(), ENTRY_POINT, target.strip().split(" ")[0], dist.replace("_", "-"), version, summary)
            plugins.append(Plugin(*(cell.replace("\t", " ") for cell in cells)))
    return plugins


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


# -- programs on PATH -------------------------------------------------------------------------------------------------


def programs() -> list[Plugin]:
    """The `exo-NAME` programs in the folders of PATH."""
    plugins: list[Plugin] = []
    for folder in _search_path():
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208
        except OSError:
            continue
        plugins += [
            Plugin(name[4:], PROGRAM, path, "", "", f"program {name} on PATH")
            for name in names
            if name.startswith("exo-") and _may_run(path := f"{folder}/{name}")
        ]
    return plugins


def _search_path() -> list[str]:
    """Absolute folders that not everybody can write to."""
    kept: list[str] = []
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        try:
            if folder.startswith("/") and not os.stat(folder).st_mode & 0o002:  # noqa: PTH116
                kept.append(folder)
        except OSError:
            continue
    return kept


def _may_run(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113


def program_for(words: list[str]) -> tuple[Plugin, int] | None:
    """The program whose name takes the most of these words (`exo-foo-bar` for `foo bar`), and how many it takes."""
    plain: list[str] = []
    for word in words:
        if not (word.isascii() and word.replace("_", "").isalnum()):
            break
        plain.append(word)
    if not plain or not is_allowed(plain[0]):
        return None
    folders = _search_path()
    for count in range(len(plain), 0, -1):
        name = "-".join(plain[:count])
        for folder in folders:
            if _may_run(path := f"{folder}/exo-{name}"):
                return Plugin(name, PROGRAM, path, "", "", ""), count
    return None


# -- running ----------------------------------------------------------------------------------------------------------


def run(host: "Host", plugin: Plugin, arguments: list[str]) -> int:
    """Run a plugin with the words that follow its name; its exit code. A program takes this process's place."""
    if plugin.source == PROGRAM:
        _become(host, plugin, arguments)
    target = load(plugin)
    try:
        if not _is_typer(target):
            return int(target(arguments, host) or 0)
        import typer

        mounted = typer.main.get_command(target)
        with mounted.make_context(f"exo {plugin.name}", arguments, obj=host) as context:
            mounted.invoke(context)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        if _is_ours(error):
            raise
        raise broken(plugin, "raised", error) from error
    return 0


def load(plugin: Plugin) -> "Any":
    """What the entry point names. Whatever goes wrong in there, an exit too, is that plugin's error."""
    import importlib

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


def broken(plugin: Plugin, how: str, error: BaseException) -> "InternalError":
    """A plugin's failure, with whose it is and how to be rid of it."""
    from exo_cli.engine.core.errors import InternalError

    summary = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    hints = [f"exo plugin doctor {plugin.name}", *([f"pip uninstall {plugin.dist}"] if plugin.dist else [])]
    return InternalError(f"the plugin {plugin} {how}: {summary}", *hints, code="plugin", details={"dist": plugin.dist})


def _is_typer(target: object) -> bool:
    import typer

    return isinstance(target, typer.Typer)


def _is_ours(error: Exception) -> bool:
    """Errors with a meaning of their own: ours, and typer's complaints about what was typed."""
    import typer

    from exo_cli.engine.core.errors import ExoError

    return isinstance(error, ExoError | typer.Exit | typer.Abort | typer.BadParameter.mro()[2] | BrokenPipeError)


def _become(host: "Host", plugin: Plugin, arguments: list[str]) -> "NoReturn":
    import typer

    longer = program_for([plugin.name, *arguments])
    path, taken = (longer[0].target, longer[1] - 1) if longer else (plugin.target, 0)
    environment = dict(os.environ, EXO_PLUGIN_API="1", EXO_BIN=sys.argv[0], EXO_COLOR=host.console.color)
    if host.chosen is not None:
        environment["EXO_ENDPOINT"] = host.chosen.address
    if host.output is not None:
        environment["EXO_OUTPUT"] = host.output.value
    sys.stdout.flush()
    try:
        os.execve(path, [path, *arguments[taken:]], environment)
    except OSError as error:
        host.console.say(f"error: {path}: {error.strerror}")
        raise typer.Exit(127 if isinstance(error, FileNotFoundError) else 126) from None
