"""The simulated hands of a node: runner processes and downloads that obey the planner, fail on cue, and take time.

A group forms when every rank connects to the very endpoints that the others listen at; a rank that waits for one that
never comes fails after a while, as the real one does, and so does a task that no longer moves.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exo_cli.engine.core.actions import Action
from exo_cli.engine.core.effects import DownloadChanged, RunnerChanged
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.tasks import (
    CancelTask,
    ConnectToGroup,
    CreateRunner,
    DownloadModel,
    GenerationTask,
    LoadModel,
    Shutdown,
    StartWarmup,
    TaskStatus,
)
from tests.builders import a_download, a_status

if TYPE_CHECKING:
    from tests.sim.shell import Shell

STALL_SECONDS = 8.0
POLL_SECONDS = 0.25


@dataclass
class Process:
    """A runner process. `group`: the endpoints it was told; `tasks`: what it works on."""

    runner_id: str
    attempt: int
    instance: Instance
    rank: int
    endpoint: str
    status: str = "starting"
    group: tuple[str | None, ...] = ()
    tasks: dict[str, GenerationTask] = field(default_factory=dict)
    is_over: bool = False


class Hands:
    """What one life of a node does to its machine."""

    def __init__(self, shell: "Shell") -> None:
        self.shell, self.world, self.life = shell, shell.world, shell.life
        self.processes: dict[str, Process] = {}
        self.downloads_tried = 0
        self.loads_tried = 0

    @property
    def _is_over(self) -> bool:
        return not self.shell.is_alive or self.shell.life != self.life

    def do(self, action: Action) -> None:
        """Begin what the planner asked for."""
        match action:
            case CreateRunner():
                self._create(action.runner_id or "")
            case DownloadModel():
                self._download(action.model_id)
            case CancelTask():
                self._cancel(action.runner_id, action.cancelled_task_id)
            case Shutdown():
                self._shut_down(action.runner_id)
            case ConnectToGroup() | LoadModel() | StartWarmup():
                process = self.processes[action.runner_id or ""]
                {"ConnectToGroup": self._connect, "LoadModel": self._load, "StartWarmup": self._warm_up}[action.type](
                    process
                )
            case _:
                for process in self.processes.values():
                    if process.instance.instance_id == action.instance_id:
                        self._work(process, action)

    def say(self, process: Process, status: str, **fields: object) -> None:
        """A process reports, unless it is over or its machine was killed."""
        if self._is_over or self.processes.get(process.runner_id) is not process:
            return
        if process.is_over and status != "Shutdown":
            return
        process.status = status
        process.is_over = status in {"Failed", "Shutdown"}
        if process.is_over:
            process.tasks.clear()
        if status == "Shutdown":
            del self.processes[process.runner_id]
        told = a_status(status, **fields)
        self.world.note(self.shell.name, f"runner {process.runner_id}@{process.attempt} {status}")
        self.shell.deliver(RunnerChanged(process.runner_id, process.attempt, told))

    def _after(self, seconds: float, process: Process, status: str, **fields: object) -> None:
        self.world.later(seconds, lambda: self.say(process, status, **fields))

    # Steps -------------------------------------------------------------------------------------------------------

    def _create(self, runner_id: str) -> None:
        if runner_id in self.processes:
            self.world.fail(f"{self.shell.name} creates {runner_id} twice")
        local = self.shell.replica.tending.local.runners[runner_id]
        endpoint = f"{self.shell.name}:{self.world.rng.randint(20000, 60000)}"
        process = Process(runner_id, local.attempt, local.instance, local.shard.rank, endpoint)
        self.processes[runner_id] = process
        self._after(self.world.rng.uniform(0.05, 0.6), process, "Idle", ring_endpoint=endpoint)

    def _shut_down(self, runner_id: str) -> None:
        if (process := self.processes.get(runner_id)) is None:  # its last report is on its way
            return
        if process.is_over:  # it died before; there is nothing left to wait for
            self._after(0.01, process, "Shutdown")
            return
        self._after(0.01, process, "ShuttingDown")
        self._after(self.world.rng.uniform(0.05, 0.8), process, "Shutdown")

    def crash(self, process: Process) -> None:
        """It dies."""
        if process.status not in {"ShuttingDown", "starting"}:
            self.say(process, "Failed", error_message="killed", signal=9, phase=process.status)

    def _members(self, process: Process) -> list[Process | None]:
        """The processes that really listen where this one was told its group is."""
        found: list[Process | None] = []
        for endpoint in process.group:
            name = (endpoint or ":").partition(":")[0]
            shell = self.world.shells.get(name)
            reachable = shell is not None and shell.is_alive and not self.world.is_cut(name, self.shell.name)
            mine = shell.hands.processes.values() if shell is not None and reachable else ()
            found.append(next((each for each in mine if each.endpoint == endpoint and not each.is_over), None))
        return found

    def _is_together(self, process: Process, statuses: set[str]) -> bool:
        members = self._members(process)
        return all(each is not None and each.group == process.group and each.status in statuses for each in members)

    def _connect(self, process: Process) -> None:
        runners = self.shell.replica.state.runners
        ids = process.instance.runner_ids
        told = {each: runners[each].ring_endpoint for each in ids if each in runners}
        told[process.runner_id] = process.endpoint
        process.group = tuple(told.get(each) for each in ids)
        self.say(process, "Connecting")
        self._wait(process, "Connecting", {"Connecting", "Connected"}, "Connected")

    def _load(self, process: Process) -> None:
        total = len(process.instance.shards[process.rank].layers)
        self.loads_tried += 1
        self.say(process, "Loading", layers_loaded=0, total_layers=total)
        wait = self.world.rng.uniform(0.1, 1.5)
        if "bad-load" in process.instance.model_card.model_id:
            self._after(wait, process, "Failed", error_message="no such tensor", phase="Loading")
            return
        self._after(wait / 2, process, "Loading", layers_loaded=total // 2, total_layers=total)
        self._after(wait, process, "Loaded")

    def _warm_up(self, process: Process) -> None:
        self.say(process, "WarmingUp")
        self._wait(process, "WarmingUp", {"WarmingUp", "Ready", "Running"}, "Ready")

    def _wait(self, process: Process, phase: str, together: set[str], then: str, waited: float = 0.0) -> None:
        """All ranks have to be there; who waits too long fails with the phase named."""
        if self._is_over or process.is_over or process.status != phase:
            return
        if not process.group or self._is_together(process, together):
            self._after(self.world.rng.uniform(0.01, 0.3), process, then)
        elif waited > STALL_SECONDS:
            self.say(process, "Failed", error_message=f"stalled in {phase}", phase=phase)
        else:
            wait = POLL_SECONDS
            self.world.later(wait, lambda: self._wait(process, phase, together, then, waited + wait))

    def _download(self, model_id: str) -> None:
        name = self.shell.name
        self.downloads_tried += 1

        def report(kind: str, **fields: object) -> None:
            if not self._is_over:
                if kind == "Completed":
                    self.shell.files.add(model_id)
                self.shell.deliver(DownloadChanged(a_download(name, model_id, kind, **fields)))

        if model_id in self.shell.files:
            self.world.later(0.01, lambda: report("Completed", total_bytes=100, downloaded_bytes=100))
            return
        wait = self.world.rng.uniform(0.1, 2.0)
        self.world.later(wait / 2, lambda: report("Ongoing", downloaded_bytes=50, total_bytes=100))
        if "bad-download" in model_id or self.world.chance(self.world.drop):
            self.world.later(wait, lambda: report("Failed", error_message="connection reset"))
        else:
            self.world.later(wait, lambda: report("Completed", total_bytes=100, downloaded_bytes=100))

    # Work --------------------------------------------------------------------------------------------------------

    def _work(self, process: Process, task: GenerationTask) -> None:
        if process.is_over:
            return
        process.tasks[task.task_id] = task
        self.say(process, "Running")
        if process.rank == 0:
            self._go_on(process, task, self.world.rng.choice([0.1, 0.5, 1.5, 4.0]), 0.0)

    def _go_on(self, process: Process, task: GenerationTask, left: float, stalled: float) -> None:
        if self._is_over or process.is_over or task.task_id not in process.tasks:
            return
        members = self._members(process) if process.group else [process]
        if not all(each is not None and task.task_id in each.tasks for each in members):
            left, stalled = left + POLL_SECONDS, stalled + POLL_SECONDS
        if stalled > STALL_SECONDS:
            self.say(process, "Failed", error_message="stalled in Running", phase="Running")
        elif left <= 0:
            for each in members:
                if each is not None and each is not process:
                    self.world.shells[each.endpoint.partition(":")[0]].end_chat(task.task_id, TaskStatus.COMPLETE)
            self.shell.end_chat(task.task_id, TaskStatus.COMPLETE)
        else:
            self.world.later(POLL_SECONDS, lambda: self._go_on(process, task, left - POLL_SECONDS, stalled))

    def _cancel(self, runner_id: str, task_id: str) -> None:
        process = self.processes[runner_id]
        if task_id not in process.tasks:
            return
        task = process.tasks[task_id]
        self.world.later(0.05, lambda: self._cancelled(task))

    def _cancelled(self, task: GenerationTask) -> None:
        if not self._is_over:
            self.shell.end_chat(task.task_id, TaskStatus.CANCELLED)

    def drop(self, task_id: str) -> None:
        """A task is over for every process of this machine."""
        for process in list(self.processes.values()):
            if process.tasks.pop(task_id, None) is not None and not process.tasks and process.status == "Running":
                self.say(process, "Ready")
