"""Tables over events that stand beside a match for speed: each is held against what the match does."""

import json
import re
from pathlib import Path

import pytest

from exo_cli.engine.core import lanes
from exo_cli.engine.core.history import Placed
from exo_cli.engine.core.invariants.hard import JUDGED, wrong
from exo_cli.engine.core.invariants.links import LINKING, Links
from exo_cli.engine.core.invariants.stories import LEAVING, left
from exo_cli.engine.core.lanes import Lanes
from exo_cli.engine.core.reducer import fold_event
from exo_cli.engine.core.runners import TRANSITIONS
from exo_cli.engine.core.state import State
from exo_cli.replay_timeline import INKS
from tests.core.test_redaction import EXAMPLES


def states():
    """The empty one, and one that has everything that the examples name."""
    full = State()
    for event in EXAMPLES:
        if event.type.endswith(("Created", "Joined", "Updated", "Progress", "Info")):
            fold_event(full, event, 0, None)
    return [State(), full]


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.type)
def test_what_no_table_has_does_nothing_there(event):
    for state in states():
        if type(event) not in JUDGED:
            assert wrong(state, event) is None
        if type(event) not in LEAVING:
            assert left(state, event) == ()
        if type(event) not in LINKING:
            before = Links(state)
            after = Links(state)
            after.follow(state, event)
            assert (after.runners_on, after.tasks_of) == (before.runners_on, before.tasks_of)
        if type(event) not in lanes._TELLING:
            drawn = Lanes()
            drawn.see(state, Placed(0, event))
            told = drawn.item((), (), state)["lanes"]
            assert all(span["row"] is None for lane in told for span in lane["spans"])


def test_each_status_has_its_ink_and_its_colour_in_one_order():
    css, js = (Path(f"exo_cli/pages/replay.{name}").read_text() for name in ("css", "js"))
    statuses = [name.removeprefix("Runner") for name in TRANSITIONS if name != "RunnerShutdown"]
    drawn = [*(name for name in INKS if name not in statuses), *statuses]
    [order] = re.findall(r"const order = (\[.*?\]);", js)
    assert json.loads(order) == drawn == list(INKS)
    assert set(re.findall(r'\[data-status="(\w+)"\] \{ fill', css)) == set(drawn)
