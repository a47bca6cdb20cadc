"""Reducing: where another reducer and ours part ways."""

from exo_cli import replay_views, views
from exo_cli.commands.replay.asked import Asked
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.replaying.reducing import part
from exo_cli.engine.replaying.source import Lenient


def tell(asked: Asked) -> int:
    """Print the record and what is different behind it."""
    console = asked.host.console
    parted: Message = part(asked.path, asked.reducer or "", Lenient(asked.skip_bad, asked.skip_unknown))
    if asked.output is ReplayFormat.TEXT:
        for line in replay_views.parting_lines(parted["item"]):
            console.data(line)
    else:
        console.document(views.item_document("Parting", parted["revision"], parted["item"]))
    return int(parted["exit_code"])
