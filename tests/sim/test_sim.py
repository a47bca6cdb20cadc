"""A smoke of the simulation (`make sim` and `python -m tests.sim --seeds N` are the long forms), and two stories of it.

The seeds of REGRESSIONS once broke a promise; what was wrong then is said beside each.
"""

import pytest

from exo_cli.engine.core.backoff import KeyedBackoff
from exo_cli.engine.core.intents import DeleteInstance
from tests.builders import a_card, a_wish
from tests.sim.load import Clients
from tests.sim.story import a_world, run
from tests.sim.world import World

REGRESSIONS = {
    4: "the shutdown of a sibling cleared a terminal failure",
    5: "a follower of a dead master took over",
    82: "a follower let its runner go before it knew that the failure was terminal",
}


@pytest.mark.parametrize("seed", [1, 2, *REGRESSIONS])
def test_all_is_well_in_the_end(seed):
    run(seed)


def test_a_seed_tells_one_story():
    assert run(7).told(20000) == run(7).told(20000)


def alone(model_id: str) -> tuple[World, Clients]:
    """One healthy node, and a model that somebody wants."""
    world = a_world(1, n_nodes=1)
    for shell in world.shells.values():
        shell.start()
    world.run(1.0)
    clients = Clients(world)
    clients.send(a_wish(a_card(model_id)))
    return world, clients


def test_a_model_that_never_loads_writes_a_bounded_log():
    """Begun five times, then its failure is final: nothing more is written, however long it stays."""
    world, _ = alone("bad-load")
    world.run(60.0)
    shell = world.shells["n0"]
    assert shell.hands.loads_tried == 5
    written = len(world.lines)
    assert written <= 4 + 2 + 5 * 4
    world.run(600.0)
    assert len(world.lines) == written


def test_twenty_failed_loads_write_a_bounded_log():
    """Restarted by hand again and again: so many records a try, never one a tick of the planner."""
    world, clients = alone("bad-load")
    instance_id = ""
    while world.shells["n0"].hands.loads_tried < 20:
        world.run(world.now + 100.0)
        instance_id = next(iter(world.shells["n0"].replica.state.instances))
        clients.send(DeleteInstance(instance_id=instance_id))
        clients.send(a_wish(a_card("bad-load")))
    assert len(world.lines) <= 6 + 20 * 4 + 5 * 3 + 4


def test_a_model_that_never_arrives_writes_a_bounded_log():
    """Tried for ever, at most every ten seconds; a try that gets no farther than the last one writes nothing."""
    world, _ = alone("bad-download")
    world.run(300.0)
    shell = world.shells["n0"]
    assert shell.hands.downloads_tried >= 20
    assert shell.hands.downloads_tried <= 300.0 / KeyedBackoff().cap_seconds + 8
    assert len(world.lines) <= 10
