"""Commands from other packages, found without importing them; `running` is what runs one.

Two sources: entry points of the group `exo.commands.v1`, and programs `exo-NAME` on PATH. A built-in command wins over
an entry point, an entry point over a program. Nothing of a plugin is imported before it is run. Importing this module
costs little: completion does it too.
"""

import os
import sys

from exo_cli.commands import TABLE

GROUP = "exo.commands.v1"
# Programs of the field that are called exo-NAME and are no commands of ours.
RESERVED = frozenset({"cli", "bench", "tools"})
ENTRY_POINT, PROGRAM = "entry point", "program"
RUNS = "runs"
_FIELDS = 6


class Plugin:
    """A command that is offered: where from, by which distribution, and whether it `runs` under that name."""

    __slots__ = ("dist", "name", "source", "standing", "summary", "target", "version")

    def __init__(self, name: str, source: str, target: str, dist: str, version: str, summary: str) -> None:
        """Take the facts. `target` is `module:attribute` or a path."""
        self.name, self.source, self.target = name, source, target
        self.dist, self.version, self.summary = dist, version, summary
        self.standing = RUNS

    def row(self) -> tuple[str, ...]:
        """As the cache keeps it."""
        return (self.name, self.source, self.target, self.dist, self.version, self.summary)

    def __str__(self) -> str:
        """As an error names it."""
        return f"{self.name} ({self.dist} {self.version})" if self.dist else f"{self.name} ({self.target})"


def offered(*, cached: bool = True) -> list[Plugin]:
    """Every plugin that is there, each with its standing: of one name only the first runs.

    Not `cached` reads the distributions anew, which costs less than importing what knows where the cache lies.
    """
    if os.environ.get("EXO_NO_PLUGINS"):
        return []
    taken = {row.name: "shadowed by the built-in command" for row in TABLE}
    plugins = [*(entry_points() if cached else scan(sys.path)), *programs()]
    for plugin in plugins:
        if not is_allowed(plugin.name):
            plugin.standing = "reserved name" if plugin.name in RESERVED else "not a command's name"
        else:
            plugin.standing = taken.get(plugin.name, RUNS)
            taken.setdefault(plugin.name, f"shadowed by {plugin.dist or plugin.target}")
    return plugins


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
    for folder in search_path():
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208
        except OSError:
            continue
        plugins += [
            Plugin(name[4:], PROGRAM, path, "", "", f"program {name} on PATH")
            for name in names
            if name.startswith("exo-") and may_run(path := f"{folder}/{name}")
        ]
    return plugins


def search_path() -> list[str]:
    """Absolute folders that not everybody can write to."""
    kept: list[str] = []
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        try:
            if folder.startswith("/") and not os.stat(folder).st_mode & 0o002:  # noqa: PTH116
                kept.append(folder)
        except OSError:
            continue
    return kept


def may_run(path: str) -> bool:
    """Whether it is a program."""
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113
