"""The walk view: one record of a log among its neighbours, and the state that it leaves, as lines of a screen."""

from collections.abc import Iterator

from exo_cli.console import cut, visible
from exo_cli.engine.core.events import DownloadKind
from exo_cli.engine.core.items import runner_items
from exo_cli.engine.core.tasks import OPEN
from exo_cli.engine.core.walking import Stand
from exo_cli.replay_views import event_line, finding_line

KEYS = "right/left: a record   page up/down: twenty   home/end   /: find, n N: again   q: leave"
_BOLD, _REVERSED, _RED = "\x1b[1m", "\x1b[7m", "\x1b[31m"


def walk_lines(stand: Stand, where: str, columns: int, lines: int, prompt: str | None) -> list[str]:
    """As many lines as the screen has: the records, the state beside them, what is wrong there, and the keys."""
    shown = [f"{_BOLD}{cut(visible(where), columns)}"]
    for place, each in enumerate(stand.rows):
        marked = _REVERSED if place == stand.here else ""
        shown.append(marked + cut(event_line(each), columns))
    shown += [_RED + cut(finding_line(each.item()), columns) for each in stand.findings]
    shown.append("")
    shown += [cut(line, columns) for line in sorted(state_lines(stand), key=lambda line: not line.startswith("*"))]
    room = lines - 1
    if len(shown) > room:
        shown = [*shown[: room - 1], cut(f"... {len(shown) - room + 1} lines more", columns)]
    shown += [""] * (room - len(shown))
    return [*shown, cut(KEYS if prompt is None else f"/{visible(prompt)}", columns)]


def state_lines(stand: Stand) -> Iterator[str]:
    """Nodes, instances with their runners, downloads and tasks that go on; with a star what the record is about."""
    state = stand.state

    def line(name: str, text: str) -> str:
        return visible(f"{'*' if name in stand.touched else ' '} {text}")

    for node_id, node in state.nodes.items():
        master = ", master" if node_id == state.master else ""
        yield line(node_id, f"node {node.facts.name} ({node_id}){master}")
    placed: set[str] = set()
    for each in runner_items(state):
        instance_id = str(each["instance_id"])
        if instance_id not in placed and instance_id in state.instances:
            placed.add(instance_id)
            yield line(instance_id, f"instance {instance_id} of {each['model']}")
        runner_id = str(each["runner_id"])
        since = f" since record {state.runners[runner_id].since_index}" if runner_id in state.runners else ""
        error = f": {each['error']}" if each["error"] else ""
        where = f" on {each['node_id']}" if each["node_id"] else ", which nothing places"
        yield line(runner_id, f"  runner {runner_id}{where}: {each['status'] or 'not there yet'}{since}{error}")
    for progress in [each for models in state.downloads.values() for each in models.values()]:
        if progress.kind is not DownloadKind.COMPLETED:
            name = f"{progress.node_id}/{progress.model_id}"
            done = f"{progress.downloaded_bytes} of {progress.total_bytes} bytes"
            yield line(name, f"download {name}: {progress.kind}, {done}")
    for task_id, task in state.tasks.items():
        if task.task_status in OPEN:
            yield line(task_id, f"{task.type} {task_id} of {task.instance_id}: {task.task_status}")
