"""Items: what people read of runners and instances is what holds now, and what went before is named as such."""

import pytest

from exo_cli.engine.core.items import going_items, instance_item, runner_items
from exo_cli.engine.core.state import Failures
from tests.builders import a_state, a_status, an_instance

PAIR = an_instance("i", ("a", "b"))


@pytest.mark.parametrize(
    ("status", "error"),
    [("Ready", None), ("Running", None), ("Loading", "died"), (None, "died"), ("Failed", "now")],
)
def test_an_error_of_the_past_is_no_error_of_a_runner_that_serves(status, error):
    fields = {"error_message": "now"} if status == "Failed" else {}
    state = a_state(instances=[PAIR], runners={"i-1": a_status(status, **fields)} if status else {})
    state.failures["i"] = Failures(count=2, last_index=3, last_error="died", runner_id="i-1")
    first, second = runner_items(state)
    assert (first["error"], first["last_error"], first["failures"]) == (None, None, 2)
    assert (second["error"], second["last_error"]) == (error, "now" if status == "Failed" else "died")


def test_progress_says_which_rank_does_what():
    state = a_state(instances=[PAIR], runners={"i-0": "WarmingUp", "i-1": "Idle"})
    item = instance_item(state, PAIR)
    assert (item["status"], item["progress"]) == ("loading", "rank 0 warms up, rank 1 has started")


def test_what_is_going_is_an_item_until_its_last_runner_is():
    state = a_state(instances=[PAIR], runners={"i-0": "Ready", "i-1": "Ready", "j-0": "ShuttingDown"})
    assert [(item["instance_id"], item["status"]) for item in going_items(state)] == [("j", "deleting")]
