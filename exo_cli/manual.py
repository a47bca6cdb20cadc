"""Everything that is written from the tree of commands: man pages and the table that completion walks.

`python -m exo_cli.manual write` puts the files there, `check` compares them with what it would write and names the
command that mends it; the two differ in their last lines alone. The pages of sections 5 and 7 are written by hand; the
table of exit codes in one of them is checked against the enum.
"""

import enum
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from exo_cli import __version__
from exo_cli.app.tree import LazyGroup, app, load
from exo_cli.commands import TABLE
from exo_cli.engine.core.errors import ExitCode

CHECKOUT = Path(__file__).parents[1]
COMMAND_TABLE = "exo_cli/_command_table.py"
EXIT_CODES_PAGE = "man/man7/exo-exit-codes.7"
MENDS = "python -m exo_cli.manual write"
# What completion offers for a value or an argument, by its name in usage lines.
KINDS = {"INSTANCE": "instance", "NODE": "node", "RUNNER": "runner", "MODEL": "model", "LOG": "file", "FILE": "file"}
TAKES_TEXT = ""


def tree() -> tuple[Any, Any]:
    """The root command with every command in it, and its context."""
    root: Any = typer.main.get_command(app)
    assert isinstance(root, LazyGroup), "the root is our own"
    context = typer.Context(root, info_name="exo", help_option_names=["-h", "--help"])
    return root, context


def children(command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """The commands below one, each with its own context."""
    if not isinstance(command, TyperGroup):
        return
    names = [row.name for row in TABLE] if isinstance(command, LazyGroup) else command.list_commands(context)
    for name in names:
        child: Any = load(name) if isinstance(command, LazyGroup) else command.get_command(context, name)
        if not child.hidden:
            yield name, child, typer.Context(child, info_name=name, parent=context)


def summary(command: Any) -> str:
    """The first line of its help, without the full stop."""
    return str(command.help or "").strip().split("\n")[0].rstrip(".")


def choices(parameter: Any) -> tuple[str, ...]:
    """The words that a parameter takes, when they are fixed."""
    fixed = parameter.type_descriptor.choices or ()
    return tuple(str(each.value if isinstance(each, enum.Enum) else each) for each in fixed)


def options(command: Any, context: Any) -> list[Any]:
    """The options that are shown."""
    shown = [each for each in command.get_params(context) if isinstance(each, TyperOption) and not each.hidden]
    return [each for each in shown if each.name != "help"] + [each for each in shown if each.name == "help"]


def arguments(command: Any, context: Any) -> list[Any]:
    """The arguments that are shown."""
    return [each for each in command.get_params(context) if isinstance(each, TyperArgument) and not each.hidden]


# -- the table that completion walks ----------------------------------------------------------------------------------


def completion_table() -> str:
    """The module `_command_table`."""
    return f'''"""The tree of commands as completion walks it. Written by `{MENDS}`; do not edit."""

# fmt: off
# An option's second part: None for a flag, its words, or the kind of value that it takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TABLE: "dict[str, Any]" = {_literal(_node(*tree()), "")}
'''


def _literal(value: object, indent: str) -> str:
    """A value as Python text, a key a line, so that a change of one option is a change of one line."""
    if not isinstance(value, dict) or not value:
        return repr(value)
    inner = indent + " "
    rows = [f"{inner}{key!r}: {_literal(each, inner)},\n" for key, each in value.items()]
    return "{\n" + "".join(rows) + indent + "}"


def _node(command: Any, context: Any) -> dict[str, Any]:
    found: dict[str, tuple[str, str | tuple[str, ...] | None]] = {}
    for option in options(command, context):
        for name in _names(option, long_last=False):
            found[name] = ((option.help or "").rstrip("."), _value_kind(option))
    return {
        "help": summary(command),
        "commands": {name: _node(child, below) for name, child, below in children(command, context)},
        "options": found,
        "arguments": [(_value_kind(each) or "", each.nargs == -1) for each in arguments(command, context)],
    }


def _names(option: Any, *, long_last: bool) -> list[str]:
    """How an option is written. Sorted, since those of --help come in the order of a set."""
    return sorted((*option.opts, *option.secondary_opts), key=lambda each: each.startswith("--") is long_last)


def _value_kind(parameter: Any) -> str | tuple[str, ...] | None:
    if getattr(parameter, "is_flag", False):
        return None
    return choices(parameter) or KINDS.get(parameter.metavar or "", TAKES_TEXT)


# -- man pages --------------------------------------------------------------------------------------------------------


def escaped(text: str) -> str:
    """Text as man(7) takes it: nothing of it is read as a request or turned into another character."""
    for plain, safe in (("\\", "\\e"), ("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga"), ("^", "\\(ha"), ("~", "\\(ti")):
        text = text.replace(plain, safe)
    text = text.replace('"', "\\(dq")
    return "\n".join("\\&" + line if line[:1] in {".", "'"} else line for line in text.split("\n"))


def paragraphs(text: str) -> list[str]:
    """Blocks between blank lines as paragraphs."""
    lines: list[str] = []
    for block in text.strip().split("\n\n"):
        lines += [".PP", *(escaped(line.strip()) for line in block.split("\n"))]
    return lines[1:]


def page(command: Any, context: Any, path: tuple[str, ...]) -> str:
    """The man page of one command."""
    name = "-".join(path)
    below = [(each, child) for each, child, _ in children(command, context)]
    lines = [
        f'.\\" Written by {escaped(MENDS)}; do not edit.',
        f'.TH {name.upper()} 1 {_date()} "exo {__version__}" "exo Manual"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(summary(command))}",
        ".SH SYNOPSIS",
        f".B {escaped(' '.join(path))}",
        *(escaped(piece) for piece in command.collect_usage_pieces(context)),
        ".SH DESCRIPTION",
        *paragraphs(command.help or summary(command)),
        *_section("ARGUMENTS", [_argument_lines(each) for each in arguments(command, context)]),
        *_section("OPTIONS", [_option_lines(each, context) for each in options(command, context)]),
        *_section("COMMANDS", [_command_lines(name, each, summary(child)) for each, child in below]),
        ".SH EXIT STATUS",
        "0 when it is done; the others are in",
        ".BR exo\\-exit\\-codes (7).",
        ".SH SEE ALSO",
        *_see_also(path, [each for each, _ in below]),
    ]
    return "\n".join(lines) + "\n"


def _date() -> str:
    """Pages are committed: their date is fixed, or given by whoever builds a release."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _section(title: str, entries: list[list[str]]) -> list[str]:
    return [f".SH {title}", *(line for entry in entries for line in entry)] if entries else []


def _argument_lines(argument: Any) -> list[str]:
    name = argument.metavar or argument.name.upper()
    return [".TP", f".I {escaped(name)}", *paragraphs(argument.help or "")]


def _option_lines(option: Any, context: Any) -> list[str]:
    names = _names(option, long_last=True)
    words = "|".join(choices(option))
    value = "" if option.is_flag else f" \\fI{escaped(option.metavar or words or option.name.upper())}\\fR"
    lines = [".TP", ", ".join(f"\\fB{escaped(each)}\\fR" for each in names) + value, *paragraphs(option.help or "")]
    if word := _default(option, context):
        lines.append(f"Default: {escaped(word)}.")
    if option.envvar:
        lines.append(f"Environment: \\fB{escaped(str(option.envvar))}\\fR.")
    return lines


def _default(option: Any, context: Any) -> str:
    """What an option is when it is left out; empty where that goes without saying."""
    if isinstance(option.show_default, str):
        return option.show_default
    default = option.get_default(context)
    if option.is_flag:
        return str((option.opts if default else option.secondary_opts)[0]) if option.secondary_opts else ""
    if isinstance(default, float) and default.is_integer():
        return str(int(default))
    return "" if default is None else str(getattr(default, "value", default))


def _command_lines(name: str, command: str, text: str) -> list[str]:
    return [".TP", f".BR {escaped(name)}\\-{escaped(command)} (1)", escaped(text)]


def _see_also(path: tuple[str, ...], below: list[str]) -> list[str]:
    pages = [("-".join(path[:-1]), 1)] if len(path) > 1 else []
    pages += [("-".join((*path, name)), 1) for name in below]
    if len(path) == 1:
        pages += [
            ("exo-config", 5),
            ("exo-exit-codes", 7),
            ("exo-findings", 7),
            ("exo-output", 7),
            ("exo-plugins", 7),
            ("exo-recordings", 7),
        ]
    return [
        f".BR {escaped(name)} ({section}){',' if number < len(pages) else ''}"
        for number, (name, section) in enumerate(pages, 1)
    ]


def pages() -> dict[str, str]:
    """The path and text of the page of every command."""
    found: dict[str, str] = {}

    def visit(command: Any, context: Any, path: tuple[str, ...]) -> None:
        file = f"man/man1/{'-'.join(path)}.1"
        assert file not in found, f"two commands would share {file}: no hyphens in the names of commands"
        found[file] = page(command, context, path)
        for name, child, below in children(command, context):
            visit(child, below, (*path, name))

    visit(*tree(), ("exo",))
    return found


# -- write and check --------------------------------------------------------------------------------------------------


def texts() -> dict[str, str]:
    """Every file that is written from the tree, by its path in the checkout."""
    return {COMMAND_TABLE: completion_table(), **pages()}


def exit_code_faults() -> list[str]:
    """Where the hand-written table of exit codes differs from the enum."""
    written = (CHECKOUT / EXIT_CODES_PAGE).read_text()
    listed = {int(number): name for number, name in re.findall(r"^\.B (\d+) ([a-z_]+)$", written, re.MULTILINE)}
    meant = {code.value: code.name.lower() for code in ExitCode}
    return [
        f"{EXIT_CODES_PAGE}: {number} is {listed.get(number, 'missing')}, in the program {meant.get(number, 'missing')}"
        for number in sorted(listed.keys() | meant.keys())
        if listed.get(number) != meant.get(number)
    ]


def main(argv: list[str]) -> int:
    """`write` or `check`; the exit code."""
    if argv not in (["write"], ["check"]):
        sys.stderr.write("usage: python -m exo_cli.manual write|check\n")
        return 2
    meant = texts()
    present = {str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "man/man1").glob("*.1")}
    stale = [
        path
        for path, text in meant.items()
        if not (CHECKOUT / path).is_file() or (CHECKOUT / path).read_text(encoding="utf-8") != text
    ]
    extra = sorted(present - meant.keys())
    faults = exit_code_faults()
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    if argv == ["check"]:
        for path in (*stale, *extra):
            sys.stderr.write(f"{path} is not what the commands say now; this mends it: {MENDS}\n")
        return int(bool(stale or extra or faults))
    for path in stale:
        (CHECKOUT / path).parent.mkdir(parents=True, exist_ok=True)
        (CHECKOUT / path).write_text(meant[path], encoding="utf-8")
    for path in extra:
        (CHECKOUT / path).unlink()
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
