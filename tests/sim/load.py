"""What people do to the cluster, and what fate does: clients that ask and ask again, and faults, both by the seed."""

from dataclasses import dataclass, field

from exo_cli.engine.core.events import By
from exo_cli.engine.core.intents import Command, DeleteInstance, PlaceInstance, RestartInstance, Submission
from exo_cli.engine.core.runners import SERVING
from exo_cli.engine.core.wire import Answer
from tests.builders import MIB, a_card, a_task, a_wish
from tests.sim.shell import Shell
from tests.sim.world import World

MODELS = ("good", "good", "other", "big", "bad-load", "bad-download")


@dataclass
class Clients:
    """Every command that was ever sent, what it was answered, and the chats."""

    world: World
    answers: dict[str, Answer] = field(default_factory=dict)
    commands: dict[str, Command] = field(default_factory=dict)
    chats: int = 0

    def act(self) -> None:
        """One thing that somebody wants."""
        rng = self.world.rng
        shell = self._somebody()
        if shell is None:
            return
        instances = list(shell.replica.state.instances)
        kind = rng.choice(["place", "place", "delete", "chat", "chat", "chat", "cancel", "restart"])
        if kind == "place":
            self.send(self._wish())
        elif kind == "chat":
            self._chat(shell)
        elif kind == "cancel":
            shell.cancel_chat()
        elif instances:
            chosen = rng.choice(instances)
            self.send(DeleteInstance(instance_id=chosen) if kind == "delete" else RestartInstance(instance_id=chosen))

    def _somebody(self) -> Shell | None:
        alive = [each for each in self.world.shells.values() if each.is_alive]
        return self.world.rng.choice(alive) if alive else None

    def _wish(self) -> PlaceInstance:
        name = self.world.rng.choice(MODELS)
        card = a_card(name, layer_bytes=(200 if name == "big" else 10) * MIB)
        return a_wish(
            card, min_nodes=self.world.rng.randint(1, min(3, len(self.world.shells))), new=self.world.chance(0.3)
        )

    def send(self, command: Command) -> None:
        """Ask until there is an answer, with one id, each time at whatever node is there."""
        command_id = f"cmd-{len(self.commands)}"
        self.commands[command_id] = command
        self._ask(command_id)
        if self.world.chance(0.1):
            self._ask(command_id)

    def _ask(self, command_id: str) -> None:
        if command_id in self.answers:
            return
        shell = self._somebody()
        if shell is None:
            self.world.later(0.5, lambda: self._ask(command_id))
            return
        life, told = shell.life, []

        def hear(answer: Answer) -> None:
            if told:
                self.world.fail(f"{command_id} is answered twice")
            told.append(answer)
            self.world.note("cli", f"{command_id} {answer.status} {answer.changed} {answer.subject} {answer.index}")
            if answer.status == "unknown" or (answer.refusal is not None and answer.refusal.code == "read_only"):
                self.world.later(0.1, lambda: self._ask(command_id))
            else:
                self._keep(command_id, answer)

        def watch() -> None:
            if shell.life != life or not shell.is_alive:
                if not told:
                    self._ask(command_id)
            elif not told and not shell.is_frozen and self.world.now > max(began, shell.thawed) + 12.0:
                self.world.fail(f"{command_id} is not answered by {shell.name} within its deadline")
            elif not told:
                self.world.later(0.5, watch)

        began = self.world.now
        self.world.note("cli", f"{command_id} to {shell.name}: {self.commands[command_id].type}")
        by = By(node=shell.name, client="sim")
        shell.submit(Submission(command_id=command_id, by=by, command=self.commands[command_id]), hear)
        self.world.later(0.5, watch)

    def _keep(self, command_id: str, answer: Answer) -> None:
        earlier = self.answers.setdefault(command_id, answer)
        did = [each for each in (earlier, answer) if each.status == "committed" and each.changed != "unchanged"]
        if len({(each.index, each.subject) for each in did}) > 1:
            self.world.fail(f"{command_id} is answered {earlier} and {answer}")

    def _chat(self, shell: Shell) -> None:
        state = shell.replica.state
        ready = [
            each
            for each in state.instances.values()
            if all(one in state.runners and state.runners[one].status.type in SERVING for one in each.runner_ids)
        ]
        if not ready:
            return
        instance = self.world.rng.choice(ready)
        self.chats += 1
        task = a_task(f"t-{self.chats}", instance.instance_id, client="sim")
        target = self.world.shells[instance.shards[0].node_id]
        if not self.world.is_cut(shell.name, target.name):
            self.world.note("cli", f"{task.task_id} on {instance.instance_id} at {target.name}")
            self.world.later(0.01, lambda: target.open_chat(task))


class Fate:
    """What goes wrong, until it stops."""

    def __init__(self, world: World) -> None:
        self.world = world
        rng = world.rng
        world.drop = rng.choice([0.0, 0.0, 0.05, 0.3])
        world.repeat = rng.choice([0.0, 0.1])
        world.slow = rng.choice([0.0, 0.0, 0.02, 0.1])
        world.delay_seconds = rng.choice([0.005, 0.05, 0.3])
        for shell in world.shells.values():
            shell.disk.slow = rng.choice([0.0, 0.0, 0.1])
        self.kinds = rng.sample(["kill", "cut", "disk", "runner", "freeze", "nothing"], k=rng.randint(1, 6))

    def strike(self) -> None:
        """One fault."""
        world, rng = self.world, self.world.rng
        shell = rng.choice(list(world.shells.values()))
        kind = rng.choice(self.kinds)
        if kind == "kill" and shell.is_alive:
            shell.kill()
            world.later(rng.choice([0.05, 1.0, 4.0, 15.0, 15.0]), lambda: self._revive(shell))
        elif kind == "cut" and len(world.shells) > 1:
            self._cut(shell)
        elif kind == "freeze" and shell.is_alive and not shell.is_frozen:
            shell.freeze(rng.choice([0.3, 2.0, 6.0, 14.0]))
        elif kind == "disk":
            world.note(shell.name, "disk fails")
            shell.disk.is_failing = True
            world.later(rng.uniform(0.1, 4.0), lambda: self._mend(shell))
        elif kind == "runner" and shell.is_alive and shell.hands.processes:
            process = rng.choice(list(shell.hands.processes.values()))
            world.note(shell.name, f"runner {process.runner_id} is killed")
            shell.hands.crash(process)

    def _cut(self, shell: Shell) -> None:
        world = self.world
        others = [each for each in world.shells if each != shell.name]
        chosen = others if world.chance(0.5) else [world.rng.choice(others)]
        pairs = {frozenset((shell.name, each)) for each in chosen}
        world.note(shell.name, f"is cut off from {' '.join(chosen)}")
        world.cuts |= pairs
        world.later(world.rng.choice([0.5, 3.0, 8.0, 20.0, 20.0]), lambda: self._heal(pairs))

    def _heal(self, pairs: set[frozenset[str]]) -> None:
        self.world.note("", f"healed: {sorted(sorted(pair) for pair in pairs)}")
        self.world.cuts -= pairs

    def _revive(self, shell: Shell) -> None:
        if not shell.is_alive:
            shell.start()

    def _mend(self, shell: Shell) -> None:
        self.world.note(shell.name, "disk works")
        shell.disk.is_failing = False

    def stop(self) -> None:
        """Nothing goes wrong from now on."""
        world = self.world
        world.note("", "faults stop")
        world.drop = world.repeat = world.slow = 0.0
        world.cuts.clear()
        for shell in world.shells.values():
            shell.disk.is_failing, shell.disk.slow = False, 0.0
            self._revive(shell)
