"""Links: which runners belong on a node, and which tasks name an instance. A state has both only the other way round.

They are what makes the ids that an event touches cheap to name, however large the state is.
"""

from exo_cli.engine.core.events import Event, InstanceCreated, InstanceDeleted, TaskCreated, TaskDeleted
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import State

LINKING = frozenset({InstanceCreated, InstanceDeleted, TaskCreated, TaskDeleted})


class Links:
    """Read off a state once; `follow` keeps them true from then on. The inner dicts are ordered sets."""

    def __init__(self, state: State) -> None:
        """The links of this state."""
        self.runners_on: dict[str, dict[str, None]] = {}
        self.tasks_of: dict[str, dict[str, None]] = {}
        for instance in state.instances.values():
            self._place(instance)
        for task_id, task in state.tasks.items():
            self.tasks_of.setdefault(task.instance_id, {})[task_id] = None

    def follow(self, state: State, event: Event) -> None:
        """Take an event that the state is about to take."""
        match event:
            case InstanceCreated():
                self._remove(state, event.instance.instance_id)
                self._place(event.instance)
            case InstanceDeleted():
                self._remove(state, event.instance_id)
            case TaskCreated():
                self._let_go(state, event.task_id)
                self.tasks_of.setdefault(event.task.instance_id, {})[event.task_id] = None
            case TaskDeleted():
                self._let_go(state, event.task_id)
            case _:
                pass

    def _place(self, instance: Instance) -> None:
        for shard in instance.shards:
            self.runners_on.setdefault(shard.node_id, {})[shard.runner_id] = None

    def _remove(self, state: State, instance_id: str) -> None:
        instance = state.instances.get(instance_id)
        for shard in instance.shards if instance else ():
            _drop(self.runners_on, shard.node_id, shard.runner_id)

    def _let_go(self, state: State, task_id: str) -> None:
        if (task := state.tasks.get(task_id)) is not None:
            _drop(self.tasks_of, task.instance_id, task_id)


def _drop(links: dict[str, dict[str, None]], key: str, entry: str) -> None:
    entries = links.get(key, {})
    entries.pop(entry, None)
    if not entries:
        links.pop(key, None)
