"""One seed, one story: a cluster grows, people use it, things break, then peace, then everything has to be well."""

from pathlib import Path

from exo_cli.engine.core.intents import RestartInstance
from tests.sim.checks import check_all, waiting
from tests.sim.load import Clients, Fate
from tests.sim.shell import Shell
from tests.sim.world import BrokenPromiseError, World

FAULTS_SECONDS = 40.0
PEACE_SECONDS = 100.0
REPAIR_AFTER_SECONDS = 40.0
IDLE_SECONDS = 30.0
END_SECONDS = FAULTS_SECONDS + PEACE_SECONDS + IDLE_SECONDS
IDLE_RECORDS = 8


def a_world(seed: int, n_nodes: int | None = None) -> World:
    """Nodes that are not started yet; the first is the master, the others are sent to it."""
    world = World(seed)
    names = [f"n{number}" for number in range(n_nodes or world.rng.choice([1, 2, 2, 3, 3, 4]))]
    for place, name in enumerate(names):
        world.shells[name] = Shell(world, name, ("n0:7101",) if place else ())
    return world


def run(seed: int, records: Path | None = None) -> World:
    """Live through a seed; every life of every node is recorded in the folder `records`.

    Raises:
        BrokenPromiseError: a promise was broken.
    """
    world = a_world(seed)
    world.records = records
    try:
        _live(world)
    except BrokenPromiseError as error:
        error.world = world  # type: ignore[attr-defined]
        raise
    except Exception as error:
        failed = BrokenPromiseError(f"seed {seed}, {world.now:.3f} s: {type(error).__name__}: {error}")
        failed.world = world  # type: ignore[attr-defined]
        raise failed from error
    finally:
        for recorder in world.recorders:
            recorder.close()
    return world


def _live(world: World) -> None:
    clients, fate = Clients(world), Fate(world)
    for shell in world.shells.values():
        world.later(world.rng.uniform(0.0, 3.0), shell.start)
    _repeat(world, clients.act, world.rng.choice([0.5, 2.0]), FAULTS_SECONDS)
    _repeat(world, fate.strike, world.rng.choice([1.0, 4.0]), FAULTS_SECONDS)
    world.run(FAULTS_SECONDS)
    fate.stop()
    _repeat(world, clients.act, 5.0, FAULTS_SECONDS + 10.0)
    world.run(FAULTS_SECONDS + REPAIR_AFTER_SECONDS)
    _repair(world, clients)
    world.run(FAULTS_SECONDS + PEACE_SECONDS)
    before = len(world.lines)
    world.run(END_SECONDS)
    if len(world.lines) > before + IDLE_RECORDS:
        world.fail(f"an idle cluster wrote {len(world.lines) - before} records")
    while world.now < END_SECONDS + 5.0 and not _is_quiet(world):
        world.run(world.now + 0.05)
    check_all(world, clients)


def _is_quiet(world: World) -> bool:
    """Nothing is on its way just now (what fails for ever is tried now and then)."""
    shells = world.shells.values()
    reports = any(shell.replica.follower.outbox or waiting(shell) for shell in shells)
    return not reports and len({shell.replica.state.index for shell in shells}) == 1


def _repeat(world: World, act: object, every: float, until: float) -> None:
    assert callable(act)
    if world.now < until:
        act()
        world.later(world.rng.expovariate(1 / every), lambda: _repeat(world, act, every, until))


def _repair(world: World, clients: Clients) -> None:
    """What failed for good in the bad times gets another go, as its owner would do."""
    state = next(iter(world.shells.values())).replica.state
    for instance_id, failures in state.failures.items():
        if failures.terminal and state.instances[instance_id].model_card.model_id != "bad-load":
            clients.send(RestartInstance(instance_id=instance_id))
