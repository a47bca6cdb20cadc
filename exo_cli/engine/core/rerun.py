"""A rerun: the steps of a recording through a fresh replica, as it is today, and where its effects first differ.

A step that raises is an answer too: the recording of a node that died of a bug ends with it.
"""

from dataclasses import dataclass

from exo_cli.engine.core.changes import Change, changes_between
from exo_cli.engine.core.replica import Replica
from exo_cli.engine.core.state import State
from exo_cli.engine.core.steps import Beginning, Given, Plain, Start, Step, Tokens, answered, raised


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step that comes out in another way: its number from 1, and paths with what was there and is now."""

    number: int
    step: Step
    changes: tuple[Change, ...]


class Rerun:
    """See the module. `steps` are those that were taken."""

    def __init__(self, beginning: Beginning, state: State) -> None:
        """An equal replica."""
        self.steps = 0
        self._tokens = Tokens()
        self.replica = Replica(
            node_id=beginning.node_id,
            incarnation=beginning.incarnation,
            address=beginning.address,
            facts=beginning.facts,
            state=state,
            version=beginning.version,
            seeds=beginning.seeds,
        )

    def take(self, step: Step, given: Given) -> Difference | None:
        """The next step. After a difference another one says nothing."""
        self.steps += 1
        if step.open_streams is not None:
            self.replica.open_streams = step.open_streams
        changes = tuple(changes_between(step.effects, self._answer(step, given)))
        return Difference(self.steps, step, changes) if changes else None

    def _answer(self, step: Step, given: Given) -> Plain:
        try:
            if isinstance(given, Start):
                return answered(self.replica.start(step.now), self._tokens)
            return answered(self.replica.step(given, step.now), self._tokens)
        except Exception as error:
            return raised(error)
