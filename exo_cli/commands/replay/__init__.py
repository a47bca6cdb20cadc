"""`exo replay LOG`: the state that a recorded log adds up to, what is wrong in it, and the story of one thing.

`options` has the options, `asked` what was given, `ways` which way of answering that is: each has a module of its own,
imported when asked.
"""

from importlib import import_module

import typer

from exo_cli.api import Host
from exo_cli.commands.replay import options
from exo_cli.commands.replay.asked import Asked
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.commands.replay.progress import progress_shown
from exo_cli.commands.replay.ways import way_of

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def replay(
    ctx: typer.Context,
    logs: options.Logs = None,
    at: options.At = None,
    first: options.First = None,
    last: options.Last = None,
    show: options.Show = None,
    explain: options.Explain = None,
    why: options.Why = None,
    node: options.Node = None,
    events: options.Events = False,
    filters: options.Filters = None,
    follow: options.Follow = False,
    stats: options.Stats = False,
    step: options.Step = False,
    without: options.Without = None,
    added: options.With = None,
    shrink: options.Shrink = None,
    bisect: options.Bisect = None,
    reducer: options.Reducer = None,
    export: options.Export = None,
    redact: options.Redact = False,
    rerun: options.Rerun = False,
    timeline: options.Timeline = False,
    html: options.Html = None,
    check: options.Check = False,
    strict: options.Strict = False,
    skip_bad: options.SkipBad = False,
    skip_unknown: options.SkipUnknown = False,
    output: options.Output = ReplayFormat.TEXT,
) -> None:
    """Fold a recorded event log through the reducer again.

    Begin with --check: what is stale or contradictory in the log, since when, why, and what to run. Then --explain ID
    tells how it came to that, --why ID what it waits for when nothing moves, --stats what floods, --timeline or --html
    what was in which state when. Without any of them: what the log adds up to. Nothing is ever written to a log. What
    the public system recorded (events.bin, events.bin.zst, the array of its /events) is read as well.
    """
    given = dict(locals())
    host = Host.of(given.pop("ctx"))
    given |= {name: tuple(given[name] or ()) for name in ("filters", "without", "added")}
    given["logs"] = tuple(logs or (str(host.config.log),))
    asked = Asked(host=host, **given)
    module, _, function = way_of(asked).function.partition(":")
    with progress_shown(host.console):
        code = getattr(import_module(f"{__name__}.{module}"), function)(asked)
    raise typer.Exit(code)
