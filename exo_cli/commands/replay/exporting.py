"""Exporting: the events of a log as a file of our own, to keep or to send to somebody."""

from exo_cli.commands.replay.asked import Asked
from exo_cli.engine.replaying.exporting import export
from exo_cli.engine.replaying.source import Lenient


def write(asked: Asked) -> int:
    """Write it, and say how much it was."""
    file = asked.export or ""
    lenient = Lenient(asked.skip_bad, asked.skip_unknown)
    n_records = export(asked.path, file, redact=asked.redact, first=asked.first, last=asked.last, lenient=lenient)
    asked.host.console.say(f"{n_records} events written to {'stdout' if file == '-' else file}")
    return 0
