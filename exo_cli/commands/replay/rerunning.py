"""Rerunning: whether the inputs of a recorded node have the effects today that they had then."""

from exo_cli import replay_views, views
from exo_cli.commands.replay.asked import Asked
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.console import visible
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import UsageError
from exo_cli.engine.replaying.rerunning import rerun as step_again


def rerun(asked: Asked) -> int:
    """Print the first difference, or that there is none."""
    console = asked.host.console
    if asked.path == str(asked.host.config.log):
        raise UsageError("--rerun takes a recording of exo node start --record", "exo replay FILE --rerun")
    told: Message = step_again(asked.path)
    item: Message = told["item"]
    if item["torn_tail"]:
        console.say(f"warning: the recording ends in the middle of a line ({item['torn_tail']})")
    if asked.output is ReplayFormat.TEXT:
        for line in replay_views.rerun_lines(item):
            console.data(visible(line))
    else:
        console.document(views.item_document("Rerun", None, item))
    return int(told["exit_code"])
