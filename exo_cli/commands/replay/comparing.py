"""Comparing: the logs of several nodes side by side."""

from exo_cli import replay_views, views
from exo_cli.commands.replay.asked import Asked
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.replaying.comparing import compare, explain
from exo_cli.engine.replaying.source import Lenient


def tell(asked: Asked) -> int:
    """Print how far each is, where they part, and what no log says; or the story of one thing in them."""
    lenient = Lenient(asked.skip_bad, asked.skip_unknown or not asked.strict)
    if asked.explain is not None:
        return _explain(asked, asked.explain, lenient)
    compared: Message = compare(asked.logs, check=asked.check, lenient=lenient)
    item: Message = compared["item"]
    if asked.output is ReplayFormat.TEXT:
        _summarise(asked, item)
    else:
        asked.host.console.document(views.item_document("Alignment", compared["revision"], item))
    return int(compared["exit_code"])


def _explain(asked: Asked, name: str, lenient: Lenient) -> int:
    told: Message = explain(asked.logs, name, check=asked.check, lenient=lenient)
    if asked.output is not ReplayFormat.TEXT:
        asked.host.console.document(views.item_document("Replay", told["revision"], told["item"]))
        return int(told["exit_code"])
    for line in replay_views.story_lines(told["item"]["story"]):
        asked.host.console.data(line)
    return int(told["exit_code"])


def _summarise(asked: Asked, item: Message) -> None:
    console = asked.host.console
    # What a node put aside when it joined for the first time has nothing in it.
    shown = [each for each in item["logs"] if each["kept"] or each["last_index"] >= 0]
    console.table(views.table(replay_views.ALIGNED, shown))
    console.data("")
    for line in replay_views.alignment_lines(item):
        console.data(line)
    for line in replay_views.finding_lines(item["findings"], asked.logs):
        console.data(line)
