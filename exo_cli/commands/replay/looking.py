"""Looking: what was in which state when, drawn for the terminal or as a page."""

import os
import shlex
from pathlib import Path

from exo_cli import replay_page, replay_timeline, views
from exo_cli.commands.replay import keeping
from exo_cli.commands.replay.asked import Asked
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.commands.replay.telling import warn_of_torn_tail
from exo_cli.console import wants_color
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import NotFoundError, UsageError
from exo_cli.engine.replaying import replay
from exo_cli.engine.replaying.questions import Questions
from exo_cli.engine.replaying.remote import is_url
from exo_cli.engine.replaying.source import STANDARD_INPUT

STANDARD_OUTPUT = "-"


def look(asked: Asked) -> int:
    """Fold it, draw it, and return the exit code of the fold."""
    _refuse_what_is_not_drawn(asked)
    path = asked.path
    if asked.html is not None and asked.html != STANDARD_OUTPUT:
        keeping.refuse_what_is_there(asked.html, asked.logs)
    questions = Questions(lanes=True, first=asked.first, last=asked.last)
    folded: Message = replay(
        path, at=asked.point, check=asked.check, questions=questions, cache=asked.host.config.sidecars, **asked.lenient
    )
    item: Message = folded["item"]
    warn_of_torn_tail(asked.host, item)
    lanes: Message = item["lanes"]
    end = item["last_index"] if questions.last is None else questions.last
    if questions.first is not None and questions.first > min(end, item["last_index"]):
        raise NotFoundError(
            f"the log {path} has no records from {questions.first} to {end}: its last one is {item['last_index']}",
            f"exo replay {shlex.quote(path)}",
        )
    if asked.html is not None:
        _write(asked, asked.html, replay_page.page(_name_of(path), lanes, item["findings"]))
    if asked.timeline:
        _draw(asked, folded, lanes, item["findings"])
    return int(folded["exit_code"])


def _refuse_what_is_not_drawn(asked: Asked) -> None:
    if asked.html is not None and not asked.timeline and asked.output is not ReplayFormat.TEXT:
        raise UsageError("--output goes with --timeline, not with --html", "exo replay LOG --timeline -o json")
    if asked.html == STANDARD_OUTPUT and asked.timeline:
        raise UsageError("--timeline and --html - would both be on stdout", "exo replay LOG --timeline --html log.html")


def _name_of(path: str) -> str:
    """What the log is called: a file or a folder by its name, a running system by its address."""
    if path == STANDARD_INPUT:
        return "standard input"
    return path if is_url(path) else Path(path).absolute().name or path


def _write(asked: Asked, file: str, page: str) -> None:
    if file == STANDARD_OUTPUT:
        asked.host.console.text(page)
        return
    keeping.keep(page, file, asked.logs)
    asked.host.console.say(f"the page is {file}: open it in a browser")


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
