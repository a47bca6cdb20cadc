"""Runs one command line and turns every end of it into one exit.

An error becomes `error:` and `hint:` lines (one line of JSON for machines) and its exit code; Ctrl-C and a reader that
went away end the process by the signal itself, so that a shell's loop stops too; a bug leaves a file, not a traceback.
"""

import errno
import fcntl
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import typer

from exo_cli import __version__
from exo_cli.api import Host, PluginFacts
from exo_cli.app.parameters import lighten
from exo_cli.app.tree import app
from exo_cli.console import Console
from exo_cli.engine.core.errors import ExoError, FailedError, InternalError, UsageError
from exo_cli.engine.paths import find_paths

# typer's own complaints: the class is private where it stands, public as an ancestor of one that is exported.
Complaint: Any = typer.BadParameter.mro()[2]


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
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
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
        if (hint := _how_to_write(error, argv)) is None:
            return _end(host, kept(InternalError(_bug(error)), error))
        _drop_output()
        what = "the answer" if error.filename is None else str(error.filename)
        return _end(host, FailedError(f"{what} cannot be written: {error.strerror}", hint))
    except ExoError as error:
        return _end(host, error)
    except Exception as error:
        return _end(host, kept(InternalError(_bug(error)), error))


def _bug(error: Exception) -> str:
    return f"this is a bug in exo: {type(error).__name__}: {error}"


def run(host: Host, argv: list[str]) -> int:
    """Parse and run; typer's complaints become usage errors of ours."""
    command = lighten(typer.main.get_command(app))
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
    import traceback

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


def _how_to_write(error: OSError, argv: Sequence[str]) -> str | None:
    """What helps when stdout does not take an answer; None when this error is not about that."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
        return "df -h"
    with suppress(OSError, ValueError):
        access = fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) & os.O_ACCMODE
        if error.errno == errno.EBADF and access == os.O_RDONLY:
            return f"{shlex.join(['exo', *argv])} > answer.txt"
    return None


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
