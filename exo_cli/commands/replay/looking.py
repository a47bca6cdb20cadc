"""Looking: what was in which state when, drawn for the terminal or as a page."""

import os
import shlex

from exo_cli import replay_timeline, views
from exo_cli.commands.replay.asked import Asked
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.commands.replay.telling import warn_of_torn_tail
from exo_cli.console import wants_color
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import NotFoundError, UsageError
from exo_cli.engine.replaying import replay
from exo_cli.engine.replaying.questions import Questions


def look(asked: Asked) -> int:
    """Fold it, draw it, and return the exit code of the fold."""
    _refuse_what_is_not_drawn(asked)
    path = asked.path
    questions = Questions(lanes=True, first=asked.first, last=asked.last)
    folded: Message = replay(path, at=asked.point, check=asked.check, questions=questions, **asked.lenient)
    item: Message = folded["item"]
    warn_of_torn_tail(asked.host, item)
    lanes: Message = item["lanes"]
    end = item["last_index"] if questions.last is None else questions.last
    if questions.first is not None and questions.first > min(end, item["last_index"]):
        raise NotFoundError(
            f"the log {path} has no records from {questions.first} to {end}: its last one is {item['last_index']}",
            f"exo replay {shlex.quote(path)}",
        )
    if asked.timeline:
        _draw(asked, folded, lanes, item["findings"])
    return int(folded["exit_code"])


def _refuse_what_is_not_drawn(asked: Asked) -> None:
    others = {
        "--show": asked.show,
        "--explain": asked.explain,
        "--why": asked.why,
        "--node": asked.node,
        "--stats": asked.stats or None,
        "--events": asked.events or None,
        "--filter": asked.filters or None,
    }
    drawing = "--timeline" if asked.timeline else "--html"
    for name, given in others.items():
        if given is not None:
            raise UsageError(f"{drawing} and {name} do not go together", "exo replay LOG --timeline --from -1000")


def _draw(asked: Asked, folded: Message, lanes: Message, findings: list[Message]) -> None:
    console = asked.host.console
    if asked.output is not ReplayFormat.TEXT:
        console.document(views.item_document("Lanes", folded["revision"], lanes | {"findings": findings}))
        return
    lines = replay_timeline.timeline(
        lanes,
        findings,
        width=console.columns or replay_timeline.PIPE_COLUMNS,
        color=wants_color(console.out, console.color, os.environ),
    )
    for line in lines:
        console.data(line)
