"""Entry point. Imports nothing beyond sys until it knows what is asked: it is on the completion path."""

import sys


def main() -> int:
    """Answer `--version` and `__complete` at once; everything else is the app's."""
    argv = sys.argv[1:]
    if argv[:1] == ["__complete"]:
        from exo_cli.complete import run

        return run(argv[1:], _plugins)
    if argv == ["--version"]:
        from exo_cli import __version__

        sys.stdout.write(f"exo {__version__}\n")
        return 0
    import signal

    # While modules are imported, Ctrl-C ends the process as it would any program; from then on the app speaks of it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from exo_cli.app import main as app

    return app(argv)


def _plugins() -> list[tuple[str, str]]:
    from exo_cli import plugins

    return [
        (plugin.name, plugin.summary) for plugin in plugins.offered(cached=False) if plugin.standing == plugins.RUNS
    ]


if __name__ == "__main__":
    raise SystemExit(main())
