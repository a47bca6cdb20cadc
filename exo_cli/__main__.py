"""Entry point. Imports nothing beyond sys until it knows what is asked: it is on the completion path."""

import sys


def main() -> int:
    """Answer `--version` and `__complete` at once; everything else is the app's."""
    _fill_missing()
    argv = sys.argv[1:]
    if argv[:1] == ["__complete"]:
        from exo_cli.complete import run

        return run(argv[1:], _plugins)
    if argv == ["--version"]:
        import os

        from exo_cli import __version__

        try:
            os.write(1, f"exo {__version__}\n".encode())
        except OSError:
            pass  # the app says why, as for every answer
        else:
            return 0
    import signal

    # While modules are imported, Ctrl-C ends the process as it would any program; from then on the app speaks of it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from exo_cli.app import main as app

    return app(argv)


def _fill_missing() -> None:
    """Open what of stdin, stdout and stderr is closed, before a socket or a file gets its number.

    What is said to a closed stderr goes nowhere. A closed stdout becomes one that refuses what is written to it, as the
    closed one would: a command with an answer fails, and one that has none does not notice.
    """
    import os

    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one; commands of others that we become need it as well.
            os.set_inheritable(os.open(os.devnull, flags), True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _plugins() -> list[tuple[str, str]]:
    from exo_cli import plugins

    return [
        (plugin.name, plugin.summary) for plugin in plugins.offered(cached=False) if plugin.standing == plugins.RUNS
    ]


if __name__ == "__main__":
    raise SystemExit(main())
