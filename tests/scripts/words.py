"""Effects and states in words, short enough to read a story by."""

import re

from exo_cli.engine.core.effects import Ask, Effects, EndTask, Publish
from exo_cli.engine.core.events import Event, InstanceCreated, NodeDownloadProgress, RunnerStatusUpdated
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import State
from exo_cli.engine.core.wire import Batch, decode_line

_INSTANCE = re.compile(r"\bi-[a-z0-9]{12}\b")
_CLUSTER = re.compile(r"\bc-[a-z0-9]{12}\b")
_QUIET = {"Pulse", "Heartbeat"}


class Words:
    """It remembers which instance it called i1."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def meant(self, text: str) -> str:
        """The real id behind i1 or i1-0."""
        real = {short: long for long, short in self._names.items()}
        head, dash, rank = text.partition("-")
        return real.get(head, head) + dash + rank

    def short(self, text: str) -> str:
        """The same text with short ids."""

        def name(found: re.Match[str]) -> str:
            return self._names.setdefault(found[0], f"i{len(self._names) + 1}")

        return _CLUSTER.sub("c-1", _INSTANCE.sub(name, text))

    def effects(self, who: str, effects: Effects) -> list[str]:
        """One line an effect, in the order in which they are carried out."""
        lines = [f"note {each.kind}{self._fields(each.fields)}" for each in effects.note if each.kind != "dropped"]
        if effects.restart is not None:
            lines.append(f"restart at {effects.restart.base_index}")
        lines += [f"append {each.index}.{each.term} {event(each.event)}" for each in effects.append]
        lines += [told for each in effects.send if (told := _send(each))]
        for action in effects.act:
            if isinstance(action, EndTask):
                lines.append(f"act end {action.task_id} {action.code}: {action.error}")
            else:
                what = getattr(action, "runner_id", None) or getattr(action, "model_id", None) or action.task_id
                lines.append(f"act {action.type} {what}")
        for answered in effects.answer:
            answer = answered.answer
            refusal = f" {answer.refusal.code}: {answer.refusal.reason}" if answer.refusal else ""
            subject = f" {answer.subject}" if answer.subject else ""
            told = f"{answer.changed}{subject} at {answer.index}" if answer.status == "committed" else answer.status
            lines.append(f"answer {answered.reply_to} {told}{refusal}")
        if effects.leave is not None:
            lines.append(f"leave {effects.leave.reason}")
        return [self.short(f"{who} {each}") for each in lines]

    def _fields(self, fields: dict[str, object]) -> str:
        return "".join(f" {value}" for value in fields.values())

    def state(self, state: State) -> list[str]:
        """A state in a few lines."""
        lines = [f"index {state.index} term {state.term} master {state.master} nodes {' '.join(state.nodes)}"]
        lines += [f"instance {_instance(each)}" for each in state.instances.values()]
        lines += [f"runner {name} {each.status.type}@{each.attempt}" for name, each in state.runners.items()]
        lines += [f"failures {name} {each.count}{' terminal' * each.terminal}" for name, each in state.failures.items()]
        lines += [f"task {name} {each.task_status}" for name, each in state.tasks.items()]
        for node_id, models in state.downloads.items():
            lines += [f"download {node_id} {each.model_id} {each.kind}" for each in models.values()]
        return [self.short(f"  {each}") for each in lines]


def event(told: Event) -> str:
    """An event in words."""
    match told:
        case InstanceCreated():
            return f"InstanceCreated {_instance(told.instance)}"
        case RunnerStatusUpdated():
            return f"{told.runner_id} {told.runner_status.type}@{told.attempt}"
        case NodeDownloadProgress():
            progress = told.download_progress
            return f"download {progress.node_id} {progress.model_id} {progress.kind}"
        case _:
            names = ("instance_id", "task_id", "node_id", "master", "task_status", "reason", "incarnation", "voters")
            return " ".join([told.type, *(str(getattr(told, name)) for name in names if hasattr(told, name))])


def _instance(instance: Instance) -> str:
    parts = " ".join(f"{each.node_id}:{each.start_layer}-{each.end_layer}" for each in instance.shards)
    return f"{instance.instance_id} {instance.model_card.model_id} {parts}"


def _send(send: object) -> str | None:
    match send:
        case Publish() if isinstance(send.message, Batch):
            indexes = [getattr(decode_line(each.encode()), "index", None) for each in send.message.lines]
            return f"publish {indexes[0]} to {indexes[-1]}"
        case Publish() if send.message.type not in _QUIET:
            return f"publish {send.message.type}"
        case Ask():
            return f"ask {send.address.partition(':')[0]} {send.message.type}"
        case _:
            return None
