"""The control surface: what commands can ask of a node, over its socket or from another machine.

Reads are answered from the committed state at once. Wishes become commands with an id and one answer. Waiting looks at
the state whenever it has changed: what comes and goes between two looks is not told. Every wait has a deadline.
"""

from typing import TYPE_CHECKING

from exo_cli.engine.control import Method
from exo_cli.engine.surface.reads import Reads
from exo_cli.engine.surface.talks import Talks
from exo_cli.engine.surface.wishes import Wishes

if TYPE_CHECKING:
    from exo_cli.engine.node import Node

TELLING = frozenset({"chat", "runner_logs", "wait", "watch"})
"""The methods that tell events before their result; the others have nothing to say but that."""


def methods(node: "Node") -> dict[str, Method]:
    """The table: every method by the name that clients ask for it."""
    reads, wishes, talks = Reads(node), Wishes(node), Talks(node)
    return {
        "status": reads.status,
        "nodes": reads.nodes,
        "node": reads.node_item,
        "runners": reads.runners,
        "instances": reads.instances,
        "watch": reads.watch,
        "why": reads.why,
        "runner_logs": reads.runner_logs,
        "complete": reads.complete,
        "place": wishes.place,
        "delete": wishes.delete,
        "forget": wishes.forget,
        "restart": wishes.restart,
        "stop": wishes.stop,
        "wait": talks.wait,
        "chat": talks.chat,
    }
