"""Tending: this node's own runners, downloads and chats, between what happens here and what the log hears of it.

It turns what the processes say into reports (forwards only, loading and busy/idle only when they last a second), keeps
the table of admitted chats, and asks the planner what to do next. It decides nothing about the cluster.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from exo_cli.engine.core.actions import Action
from exo_cli.engine.core.effects import EndTask, Note
from exo_cli.engine.core.events import DownloadKind, DownloadProgress
from exo_cli.engine.core.intents import Command, ReportDownload, ReportRunner, ReportTask
from exo_cli.engine.core.planner import Local, LocalRunner, plan
from exo_cli.engine.core.runners import RunnerFailed, RunnerShutdown, RunnerStatus
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import (
    OPEN,
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

LASTING_SECONDS = 1.0
STABLE_SECONDS = 60.0


@dataclass(slots=True)
class Admitted:
    """A chat that this node works on. `is_mine`: this node is rank 0's and owns its history."""

    task: GenerationTask
    since: float
    is_mine: bool
    begun: bool = False
    ending: bool = False
    attempts: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class _Held:
    """A status that is reported once it has lasted."""

    status: RunnerStatus
    since: float


def failures_in(command: Command, state: State) -> Iterator[Note]:
    """What a report says that failed, for the journal: the report itself may never come to the log."""
    match command:
        case ReportRunner(status=RunnerFailed() as status):
            instance = state.instance_of_runner(command.runner_id)
            yield Note(
                "failed",
                {
                    "index": state.index,
                    "id": command.runner_id,
                    "instance": instance.instance_id if instance else "",
                    "attempt": command.attempt,
                    "error": status.error_message or "",
                },
            )
        case ReportDownload(progress=progress) if progress.kind == DownloadKind.FAILED:
            name = f"{progress.node_id}/{progress.model_id}"
            yield Note("failed", {"index": state.index, "id": name, "error": progress.error_message or ""})
        case _:
            pass


class Tending:
    """What this node does for itself; see the module."""

    def __init__(self, node_id: str) -> None:
        """Nothing runs yet."""
        self.local = Local(node_id)
        self.admitted: dict[str, Admitted] = {}
        self._held: dict[str, _Held] = {}
        self._told: dict[str, str] = {}
        self._ready_since: dict[str, float] = {}
        self._attempts: dict[str, int] = {}
        self._reached: dict[str, int] = {}
        self._telling: set[str] = set()

    # Reports -----------------------------------------------------------------------------------------------------

    def runner_changed(self, runner_id: str, attempt: int, status: RunnerStatus, now: float) -> list[Command]:
        """Note what a process says; the reports that are due at once."""
        runner = self.local.runners.get(runner_id)
        if runner is None or runner.attempt != attempt:
            return []
        before, runner.status = runner.kind, status
        if isinstance(status, RunnerFailed) and runner.asked == "Shutdown":
            runner.asked = None  # who fails while being ended is at no fault; the planner asks again until it is gone
            return []
        if status.type != before and runner.asked != "Shutdown":
            runner.asked = None
        instance_id = runner.instance.instance_id
        if isinstance(status, RunnerFailed):
            self.local.starts.record_failure(instance_id, now)
        if isinstance(status, RunnerShutdown):
            del self.local.runners[runner_id]
            self._told.pop(runner_id, None)
        if status.type == "RunnerReady":
            self._ready_since.setdefault(runner_id, now)
        elif status.type != "RunnerRunning":
            self._ready_since.pop(runner_id, None)
        return self._due(runner_id, attempt, status, now)

    def _due(self, runner_id: str, attempt: int, status: RunnerStatus, now: float) -> list[Command]:
        """Report now, or hold back what must last a second first (work, the rest after it, progress of a load)."""
        told = self._told.get(runner_id)
        pair = (told, status.type)
        if pair in {("RunnerReady", "RunnerReady"), ("RunnerRunning", "RunnerRunning")}:
            self._held.pop(runner_id, None)
            return []
        lasting = pair in {("RunnerLoading", "RunnerLoading"), ("RunnerRunning", "RunnerReady")}
        if lasting or status.type == "RunnerRunning":
            held = self._held.get(runner_id)
            same = held is not None and held.status.type == status.type
            self._held[runner_id] = _Held(status, held.since if same and held else now)
            return []
        self._held.pop(runner_id, None)
        return [self._report(runner_id, attempt, status)]

    def _report(self, runner_id: str, attempt: int, status: RunnerStatus) -> ReportRunner:
        runner = self.local.runners.get(runner_id)
        if runner is not None:
            self._told[runner_id] = status.type
            runner.unsettled += 1
        return ReportRunner(node_id=self.local.node_id, runner_id=runner_id, attempt=attempt, status=status)

    def settled(self, report: ReportRunner | ReportDownload) -> None:
        """The master answered a report (it is in the log, or refused)."""
        if isinstance(report, ReportDownload):
            self._telling.discard(report.progress.model_id)
            if report.progress.kind in {DownloadKind.COMPLETED, DownloadKind.FAILED}:
                self.local.downloading.discard(report.progress.model_id)
            return
        runner = self.local.runners.get(report.runner_id)
        if runner is not None and runner.attempt == report.attempt and runner.unsettled:
            runner.unsettled -= 1

    def download_changed(self, progress: DownloadProgress, now: float) -> list[Command]:
        """A download moved, ended or failed. After a failure it has moved only when it is farther than ever before."""
        model_id, reached = progress.model_id, self._reached.get(progress.model_id, -1)
        self._reached[model_id] = max(reached, progress.downloaded_bytes)
        is_over = progress.kind in {DownloadKind.COMPLETED, DownloadKind.FAILED}
        if not is_over and self.local.downloads.attempts(model_id) and progress.downloaded_bytes <= reached:
            return []
        if not is_over and model_id in self._telling:
            return []  # the master has not taken the last one yet: it gets the next
        self._telling.add(model_id)
        if progress.kind == DownloadKind.COMPLETED:
            self.local.downloads.reset(model_id)
        if progress.kind == DownloadKind.FAILED:
            if progress.permanent:
                self.local.downloads.forbid(model_id)
            else:
                self.local.downloads.record_failure(model_id, now)
        return [ReportDownload(progress=progress)]

    def tick(self, now: float) -> list[Command]:
        """What has lasted long enough to be told."""
        reports: list[Command] = []
        for runner_id, held in list(self._held.items()):
            runner = self.local.runners.get(runner_id)
            if runner is None:
                del self._held[runner_id]
            elif now - held.since >= LASTING_SECONDS:
                del self._held[runner_id]
                reports.append(self._report(runner_id, runner.attempt, held.status))
        for runner_id, since in self._ready_since.items():
            if now - since >= STABLE_SECONDS and (runner := self.local.runners.get(runner_id)):
                self.local.starts.reset(runner.instance.instance_id)
        for each in self.admitted.values():
            if each.is_mine and not each.begun and not each.ending and now - each.since >= LASTING_SECONDS:
                each.begun = True
                running = each.task.model_copy(update={"task_status": TaskStatus.RUNNING})
                reports.append(ReportTask(task=running, ends=False))
        return reports

    # Chats -------------------------------------------------------------------------------------------------------

    def admit(self, task: GenerationTask, is_mine: bool, now: float) -> None:
        """A chat for a runner of this node."""
        self.admitted.setdefault(task.task_id, Admitted(task, now, is_mine))

    def cancel(self, task_id: str) -> list[EndTask]:
        """Somebody no longer wants it; what was never forwarded ends at once."""
        each = self.admitted.get(task_id)
        if each is None or each.task.task_status not in OPEN:
            return []
        each.task = each.task.model_copy(update={"task_status": TaskStatus.CANCELLED})
        if any(task_id in runner.forwarded for runner in self.local.runners.values()):
            return []
        return self._end(each, "cancelled", "cancelled before it began")

    def end(self, task: GenerationTask) -> list[Command]:
        """A chat is over; its history, if this node owns it."""
        each = self.admitted.pop(task.task_id, None)
        for runner in self.local.runners.values():
            runner.forwarded.discard(task.task_id)
            runner.cancelled.discard(task.task_id)
        if each is None or not each.is_mine:
            return []
        return [ReportTask(task=task, begins=not each.begun)]

    def stranded(self, state: State) -> list[EndTask]:
        """Chats that cannot go on: their instance is gone, or one of its runners failed or was shut down."""
        ends: list[EndTask] = []
        for each in self.admitted.values():
            if each.ending:
                continue
            instance = state.instances.get(each.task.instance_id)
            if instance is None:
                ends += self._end(each, "instance_deleted", f"instance {each.task.instance_id} was deleted")
            elif why := self._broken(each, state):
                ends += self._end(each, "runner_failed", why)
        return ends

    def _broken(self, each: Admitted, state: State) -> str | None:
        instance = state.instances[each.task.instance_id]
        for runner_id in instance.runner_ids:
            mine = self.local.runners.get(runner_id)
            told = state.runners.get(runner_id)
            status = mine.status if mine else (told.status if told else None)
            if isinstance(status, RunnerFailed):
                return f"runner {runner_id} failed: {status.error_message or 'no reason given'}"
            if status is None and mine is None:
                return f"runner {runner_id} was shut down"
            attempt = mine.attempt if mine else (told.attempt if told else None)
            if attempt is not None and each.attempts.setdefault(runner_id, attempt) != attempt:
                return f"runner {runner_id} was shut down and began anew"
            if status is not None and status.type in {"RunnerShuttingDown", "RunnerShutdown"}:
                return f"runner {runner_id} was shut down"
        return None

    def _end(self, each: Admitted, code: str, error: str) -> list[EndTask]:
        each.ending = True
        return [EndTask(each.task.task_id, code, error)]

    # Planning ----------------------------------------------------------------------------------------------------

    def actions(self, state: State, now: float) -> Iterator[Action]:
        """What to do next, until nothing is left to do; each action is marked as under way before it is given out."""
        self._forget(state)
        tasks = {task_id: each.task for task_id, each in self.admitted.items() if not each.ending}
        while (action := plan(self.local, state, tasks, now)) is not None:
            self._mark(action, state)
            yield action

    def _mark(self, action: Action, state: State) -> None:
        local = self.local
        match action:
            case CreateRunner():
                assert action.runner_id is not None, "the planner names the runner that it creates"
                instance = state.instances[action.instance_id]
                # Above every attempt before it: those of other lives of this node (it joined since, which is a record),
                # and those of this one, of which the state may not have heard yet.
                attempt = max(0, state.index, self._attempts.get(action.runner_id, -1) + 1)
                self._attempts[action.runner_id] = attempt
                local.runners[action.runner_id] = LocalRunner(action.runner_id, instance, attempt)
            case DownloadModel():
                local.downloading.add(action.model_id)
            case ConnectToGroup() | LoadModel() | StartWarmup() | Shutdown():
                runner = local.runners[action.runner_id or ""]
                runner.asked = action.type
                if isinstance(action, ConnectToGroup):
                    told = {each: state.runners.get(each) for each in runner.instance.runner_ids}
                    runner.group = {each: known.attempt for each, known in told.items() if known is not None}
            case CancelTask():
                local.runners[action.runner_id].cancelled.add(action.cancelled_task_id)
            case _:
                for runner in local.runners.values():
                    if runner.instance.instance_id == action.instance_id:
                        runner.forwarded.add(action.task_id)

    def _forget(self, state: State) -> None:
        """Nothing is held against what is gone: an unwanted model is tried afresh when it is placed again."""
        wanted = {instance.model_card.model_id for instance in state.instances.values()}
        for model_id in self.local.downloads.keys() - wanted:
            self.local.downloads.reset(model_id)
        for model_id in self._reached.keys() - wanted:
            del self._reached[model_id]
        for instance_id in self.local.starts.keys() - state.instances.keys():
            self.local.starts.reset(instance_id)
        for runner_id in [each for each in self._attempts if each not in self.local.runners]:
            if state.instance_of_runner(runner_id) is None:
                del self._attempts[runner_id]
