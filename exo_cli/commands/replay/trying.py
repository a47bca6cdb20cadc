"""Trying: what a log would show with other events, the least of it that shows a fault, where something began."""

from exo_cli import replay_views, views
from exo_cli.commands.replay.asked import Asked
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import UsageError
from exo_cli.engine.replaying import trials


def shrink(asked: Asked) -> int:
    """Print the test."""
    finding, placed, test = trials.shrink(asked.path, asked.shrink or "")
    asked.host.console.say(f"{finding.kind} of {finding.id}: {len(placed)} events are enough")
    asked.host.console.text(test)
    return 0


def bisect(asked: Asked) -> int:
    """Print the index."""
    asked.host.console.data(str(trials.bisect(asked.path, asked.bisect or "")))
    return 0


def edit(asked: Asked) -> int:
    """Print what is found in the edited log, and what is no longer."""
    console = asked.host.console
    told: Message = trials.trial(asked.path, asked.without, [_addition(each) for each in asked.added])
    if asked.output is ReplayFormat.TEXT:
        for name in ("vanished", "new", "findings"):
            console.data(f"{name}: {len(told[name])}")
            for each in told[name]:
                console.data(replay_views.finding_line(each))
    else:
        console.document(views.item_document("Trial", None, told))
    return 1 if told["grave"] else 0


def _addition(text: str) -> tuple[int, str]:
    index, _, file = text.partition("=")
    if not index.isdecimal() or not file:
        raise UsageError(f"not INDEX=FILE: {text!a}", "exo replay LOG --with 97=event.json")
    return int(index), file
