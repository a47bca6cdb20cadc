"""Comparing: the logs of several nodes side by side."""

from exo_cli import replay_views, views
from exo_cli.api import Host
from exo_cli.commands.replay.asked import Asked
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import UsageError
from exo_cli.engine.replaying.comparing import compare
from exo_cli.engine.replaying.source import Lenient


def tell(asked: Asked) -> int:
    """Print how far each is, where they part, and what no log says."""
    if asked.has_questions:
        raise UsageError("of several logs only --check can be asked", "exo replay LOG --explain ID")
    lenient = Lenient(asked.skip_bad, asked.skip_unknown or not asked.strict)
    compared: Message = compare(asked.logs, check=asked.check, lenient=lenient)
    item: Message = compared["item"]
    if asked.output is ReplayFormat.TEXT:
        _summarise(asked.host, item)
    else:
        asked.host.console.document(views.item_document("Alignment", compared["revision"], item))
    return int(compared["exit_code"])


def _summarise(host: Host, item: Message) -> None:
    console = host.console
    console.table(views.table(replay_views.ALIGNED, item["logs"]))
    console.data("")
    for line in replay_views.alignment_lines(item):
        console.data(line)
    if found := item["findings"]:
        console.data("")
        console.table(replay_views.findings(found))
