"""What a TAB is answered with: candidates for a half-written command line. No typer, no pydantic, no event loop.

`exo __complete SHELL ...` walks the generated table of commands. Names of nodes, models, instances and runners are
asked of this machine's node, for 80 ms at most; without an answer the last ones count. It never fails, never starts a
node and never leaves the machine. What nodes say is not trusted: a value with an odd character is not offered.
"""

import sys

TYPE_CHECKING = False  # typing itself is kept out of a TAB's way
if TYPE_CHECKING:
    from collections.abc import Callable

_OK = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-:/@+=,%.")
BUDGET_SECONDS = 0.08
MOST = 200

Found = list[tuple[str, str]]


def run(argv: list[str], plugins: "Callable[[], Found]" = list) -> int:
    """Answer one TAB: a line `value<TAB>description` for each candidate, then `:done`, or `:files`.

    bash gives the line so far and its word breaks, and gets values only; zsh and fish give the words. `plugins` says
    which commands there are besides our own; it is asked only where a command's name is due.
    """
    try:
        shell, words, current, breaks = _read(argv)
        found, prefix = candidates(words, current, plugins)
    except Exception:
        return 1
    try:
        sys.stdout.write(_written(shell, current, breaks, found, prefix))
        sys.stdout.flush()
    except OSError:
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer goes nowhere
        return 1
    return 0


def _written(shell: str, current: str, breaks: str, found: "Found | None", prefix: str) -> str:
    if found is None:
        return ":files\n"
    lines: list[str] = []
    for value, description in found:
        if shell == "bash":
            cut = max((current.rfind(mark) for mark in "=:" if mark in breaks), default=-1) + 1
            lines.append((prefix + value)[cut:] + ("" if value.endswith("=") else " "))
        else:
            lines.append(f"{prefix}{value}\t{_printable(description)}")
    return "\n".join([*lines, ":done\n"])


def _read(argv: list[str]) -> tuple[str, list[str], str, str]:
    """The shell, the whole words after the program's name, the word being written, and bash's word breaks."""
    shell = argv[0]
    if shell == "bash":
        words, current = split(argv[1])
        return shell, words[1:], current, argv[2] if len(argv) > 2 else ""
    rest = argv[2:] if argv[1:2] == ["--"] else argv[1:]
    return shell, rest[:-1], rest[-1] if rest else "", ""


def candidates(words: list[str], current: str, plugins: "Callable[[], Found]") -> "tuple[Found | None, str]":
    """What can stand for `current`, and the part of it that stays before each; None means a file's name."""
    from exo_cli._command_table import TABLE

    node = TABLE
    pending, seen, only_arguments, at_top = None, 0, False, True
    for word in words:
        if pending is not None:
            pending = None
        elif only_arguments:
            seen += 1
        elif word == "--":
            only_arguments = True
        elif word.startswith("-") and len(word) > 1:
            name, given, _ = word.partition("=")
            kind = node["options"].get(name, ("", None))[1]
            pending = kind if kind is not None and not given else None
        elif word in node["commands"]:
            node, seen, at_top = node["commands"][word], 0, False
        else:
            seen += 1
    prefix = ""
    if pending is None and current.startswith("--") and "=" in current and not only_arguments:
        name, _, rest = current.partition("=")
        pending = node["options"].get(name, ("", None))[1]
        if pending is not None:
            prefix, current = name + "=", rest
    if pending is not None:
        found = _values(pending)
    elif current.startswith("-") and not only_arguments:
        found = [(name, text) for name, (text, _) in node["options"].items() if name.startswith("--") or current == "-"]
    elif node["commands"] and not seen and not only_arguments:
        found = [(name, child["help"]) for name, child in node["commands"].items()]
        found += plugins() if at_top else []
    else:
        found = _argument(node["arguments"], seen)
    return None if found is None else [each for each in found if each[0].startswith(current)], prefix


def _argument(arguments: list[tuple[str, bool]], seen: int) -> Found | None:
    """Values for the argument at a place; the last one may be repeatable."""
    if not arguments or (seen >= len(arguments) and not arguments[-1][1]):
        return []
    return _values(arguments[min(seen, len(arguments) - 1)][0])


def _values(kind: "str | tuple[str, ...]") -> Found | None:
    if isinstance(kind, tuple):
        return [(value, "") for value in kind]
    if kind == "file":
        return None
    return _of_node(kind) if kind else []


def _of_node(kind: str) -> Found:
    """What this machine's node says, else what it said last."""
    from exo_cli.engine.paths import find_paths

    paths = find_paths()
    cache = f"{paths.cache}/complete-{kind}"
    lines = _ask(str(paths.control_socket), kind)
    if lines is None:
        lines = _remembered(cache)
    else:
        _remember(cache, lines)
    found: Found = []
    for line in lines[:MOST]:
        value, _, description = line.partition("\t")
        if value and _OK.issuperset(value) and not value.startswith("-"):
            found.append((value, description))
    return found


def _ask(path: str, kind: str) -> list[str] | None:
    import json
    import socket
    import time

    end = time.monotonic() + BUDGET_SECONDS
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(BUDGET_SECONDS)
        connection.connect(path)
        connection.sendall(b'{"id":1,"method":"complete","params":{"kind":"%b"}}\n' % kind.encode())
        buffer = b""
        # The greeting comes first, the answer is the second line.
        while buffer.count(b"\n") < 2:
            connection.settimeout(max(0.001, end - time.monotonic()))
            piece = connection.recv(65536)
            if not piece or time.monotonic() > end:
                return None
            buffer += piece
        lines = json.loads(buffer.split(b"\n")[1])["result"]["lines"]
        return [line for line in lines if isinstance(line, str)]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()


def _remembered(cache: str) -> list[str]:
    try:
        with open(cache, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib is slow to import
            return file.read().split("\n")
    except OSError:
        return []


def _remember(cache: str, lines: list[str]) -> None:
    import os

    draft = f"{cache}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(cache), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        with open(draft, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            file.write("\n".join(line.replace("\n", " ") for line in lines[:MOST]))
        os.replace(draft, cache)  # noqa: PTH105
    except OSError:
        pass


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:120]


def split(line: str) -> tuple[list[str], str]:
    """An unfinished line as a shell would split it: the whole words, and the one being written."""
    words: list[str] = []
    word, quote, escaped, started = "", "", False, False
    for letter in line:
        if escaped:
            word, escaped = word + letter, False
        elif letter == "\\" and quote != "'":
            escaped = started = True
        elif quote:
            quote, word = ("", word) if letter == quote else (quote, word + letter)
        elif letter in "'\"":
            quote, started = letter, True
        elif letter in " \t\n":
            if started or word:
                words.append(word)
            word, started = "", False
        else:
            word += letter
    return words, word
