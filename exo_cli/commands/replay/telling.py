"""Telling: what a log adds up to, and what it says of what was asked."""

from collections.abc import Sequence

from exo_cli import replay_views, views
from exo_cli.api import Host
from exo_cli.commands.replay.asked import Asked
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import NotFoundError, UsageError
from exo_cli.engine.replaying import replay
from exo_cli.engine.replaying.questions import Questions


def tell(asked: Asked) -> int:
    """Fold it, print the answer, and return the exit code."""
    host, output = asked.host, asked.output
    if asked.node is not None and asked.why is None:
        raise UsageError("--node belongs to --why", "exo replay LOG --why ID --node NODE")
    if asked.show is not None and (beside := [name for name in ("explain", "why", "stats") if asked.is_given(name)]):
        raise UsageError(f"--show and --{beside[0]} do not go together", "exo replay --help")
    questions = Questions(
        explain=asked.explain,
        why=asked.why,
        node=asked.node,
        stats=asked.stats,
        filters=asked.filters,
        first=asked.first,
        last=asked.last,
        on_event=(lambda row: say_event(host, row, output)) if asked.is_telling else None,
    )
    folded: Message = replay(
        asked.path, at=asked.point, check=asked.check, questions=questions, cache=host.config.sidecars, **asked.lenient
    )
    item: Message = folded["item"]
    warn_of_torn_tail(host, item)
    if asked.show is not None:
        host.console.document(_part(item["state"], asked.show))
    elif output is ReplayFormat.JSON:
        host.console.document(views.item_document("Replay", folded.get("revision"), item))
    elif not asked.is_telling:
        _summarise(host, item, asked.logs, checked=asked.check)
    return int(folded["exit_code"])


def warn_of_torn_tail(host: Host, item: Message) -> None:
    """Say that the last record is not whole."""
    if item.get("torn_tail"):
        host.console.say(f"warning: the log ends in the middle of a record: {views.said(item['torn_tail'])}")


def say_event(host: Host, row: Message, output: ReplayFormat) -> None:
    """Print an event as a line, of text or JSON."""
    if output is ReplayFormat.TEXT:
        host.console.data(replay_views.event_line(row))
    elif output is ReplayFormat.JSONL:
        host.console.json_line(row)


def _part(state: Message, path: str) -> object:
    """What stands in the state at a path of names with dots between; a name may hold dots itself."""
    found: object = state
    left = path
    while left:
        if not isinstance(found, dict):
            raise NotFoundError(f"the state has nothing at {path!a}", "exo replay LOG -o json")
        names = [name for name in map(str, found) if left == name or left.startswith(f"{name}.")]
        if not names:
            known = ", ".join(list(map(str, found))[:20])
            raise UsageError(f"the state has nothing at {path!a}: there is {known or 'nothing'}", "exo replay --help")
        name = max(names, key=len)
        found, left = found[name], left[len(name) + 1 :]
    return found


def _summarise(host: Host, item: Message, logs: Sequence[str], *, checked: bool) -> None:
    if (story := item.get("story")) is not None:
        for line in replay_views.story_lines(story):
            host.console.data(line)
    if (reasons := item.get("why")) is not None:
        for line in replay_views.reason_lines(reasons):
            host.console.data(line)
    if (statistics := item.get("statistics")) is not None:
        for table in replay_views.statistics_tables(statistics):
            host.console.table(table)
            host.console.data("")
    if item.keys() & {"story", "why", "statistics"}:
        return
    host.console.table(replay_views.replay_summary(item, checked=checked), headers=False)
    for line in replay_views.finding_lines(item["findings"], logs):
        host.console.data(line)
