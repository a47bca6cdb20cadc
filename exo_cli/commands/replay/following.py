"""Following: the events of a running node's log as they come, and what goes wrong."""

from exo_cli import replay_views
from exo_cli.commands.replay.asked import Asked
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.commands.replay.telling import say_event
from exo_cli.console import visible
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.replaying import following
from exo_cli.engine.replaying.questions import Questions


def follow(asked: Asked) -> int:
    """Print until interrupted; a finding when it begins, and when it is over."""
    host, output = asked.host, ReplayFormat.TEXT if asked.output is ReplayFormat.TEXT else ReplayFormat.JSONL

    def say_finding(finding: Message) -> None:
        if output is ReplayFormat.JSONL:
            host.console.json_line({"finding": finding})
            return
        state = "over" if finding["until_index"] is not None else "finding"
        host.console.data(f"{state:>8}{replay_views.finding_line(finding)}")
        if state == "finding":
            host.console.data(f"  remedy  {visible(str(finding['remedy']))}")

    questions = Questions(filters=asked.filters, first=asked.first, on_event=lambda row: say_event(host, row, output))
    following.follow(asked.path, questions, say_finding)
    return 0
