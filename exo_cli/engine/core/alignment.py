"""Alignment: the logs of several nodes side by side, index by index: how far each is, and where their histories part.

At one index all have the same record. Where they have not, the one of the higher term counts, and a log that has
another there holds a suffix that was abandoned (Raft, section 5.3: a leader's log overrules the others' uncommitted
ends). Two records of one index and one term are no suffix but two masters of one term: `contested`.

`Unreported` holds what nodes knew and their journals say against what the logs say.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from exo_cli.engine.core.events import DownloadKind, Event, NodeDownloadProgress, RunnerStatusUpdated
from exo_cli.engine.core.invariants.findings import Finding
from exo_cli.engine.core.items import moment
from exo_cli.engine.core.runners import RunnerFailed
from exo_cli.engine.core.state import State

TEXT_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Position:
    """A record of one log. `content` is all that must be the same elsewhere; `event` is None where it is not ours."""

    index: int
    term: int
    content: object
    type: str
    text: str
    at: datetime | None = None
    event: Event | None = None


Row = Mapping[int, Position]


def in_step(logs: Sequence[Iterator[Position]]) -> Iterator[Row]:
    """What stands at each index, by the number of the log; the lowest index first."""
    heads = {number: first for number, log in enumerate(logs) if (first := next(log, None)) is not None}
    while heads:
        index = min(each.index for each in heads.values())
        row = {number: each for number, each in heads.items() if each.index == index}
        yield row
        for number in row:
            following = next(logs[number], None)
            if following is None:
                del heads[number]
            else:
                heads[number] = following


@dataclass(slots=True)
class Copy:
    """One of the logs. `is_kept`: it is a node's log, and not what a node put aside when it took another's state."""

    path: str
    is_kept: bool = True
    node_id: str | None = None
    cluster_id: str | None = None
    base_index: int | None = None
    adopted_from: Mapping[str, int] | None = None
    torn: bool = False
    first_index: int | None = None
    last_index: int = -1
    last_term: int = 0
    last_at: datetime | None = None
    missing: int = 0
    parts_at: int | None = None
    fate: str | None = None

    def take(self, position: Position) -> None:
        """Its next record."""
        if self.first_index is None:
            self.first_index = position.index
        else:
            self.missing += max(0, position.index - self.last_index - 1)
        self.last_index, self.last_term, self.last_at = position.index, position.term, position.at

    def part(self, own: Position, reference: Position) -> None:
        """It has another record than the one that counts."""
        self.parts_at, self.fate = own.index, "abandoned" if own.term < reference.term else "contested"

    def item(self, head: int) -> dict[str, object]:
        """Plain values; `lag` is how many records it is behind the longest."""
        return {
            "path": self.path,
            "kept": self.is_kept,
            "node": self.node_id,
            "cluster": self.cluster_id,
            "base_index": self.base_index,
            "adopted_from": self.adopted_from,
            "first_index": self.first_index,
            "last_index": self.last_index,
            "last_term": self.last_term,
            "last_at": moment(self.last_at),
            "lag": max(0, head - self.last_index),
            "missing": self.missing,
            "torn": self.torn,
            "parts_at": self.parts_at,
            "fate": self.fate,
        }


@dataclass(slots=True)
class Alignment:
    """The copies, fed with the rows of `in_step`."""

    copies: Sequence[Copy]
    difference: dict[str, object] | None = None
    agreed_upto: int = -1

    def see(self, row: Row) -> Position | None:
        """Take a row; the record that counts, None when only what was put aside has one."""
        for number, position in row.items():
            self.copies[number].take(position)
        standing = [each for number, each in row.items() if self._stands(number)]
        reference = _that_counts(standing)
        if reference is not None:
            for number, position in row.items():
                if self.copies[number].parts_at is None and position.content != reference.content:
                    self._part(number, position, reference, row)
            if self.difference is None:
                self.agreed_upto = reference.index
        return reference

    def _stands(self, number: int) -> bool:
        return self.copies[number].is_kept and self.copies[number].parts_at is None

    def _part(self, number: int, position: Position, reference: Position, row: Row) -> None:
        copy = self.copies[number]
        copy.part(position, reference)
        if copy.is_kept and self.difference is None:
            records = [_told(self.copies[n].path, each) for n, each in row.items() if self.copies[n].is_kept]
            self.difference = {"index": position.index, "records": records}

    @property
    def head(self) -> Copy:
        """The copy whose history counts and that is the longest of those."""
        kept = [each for each in self.copies if each.is_kept]
        return max(kept, key=lambda each: (each.fate is None, each.last_term, each.last_index))

    def item(self) -> dict[str, object]:
        """Plain values."""
        head = self.head.last_index
        return {
            "logs": [each.item(head) for each in self.copies],
            "agreed_upto": self.agreed_upto,
            "first_difference": self.difference,
        }


def _that_counts(standing: Sequence[Position]) -> Position | None:
    """Of the highest term; of these the one that most have."""
    if not standing:
        return None
    term = max(each.term for each in standing)
    newest = [each for each in standing if each.term == term]
    if all(each.content == newest[0].content for each in newest):
        return newest[0]
    return max(newest, key=lambda each: sum(each.content == other.content for other in newest))


def _told(path: str, position: Position) -> dict[str, object]:
    return {
        "path": path,
        "term": position.term,
        "at": moment(position.at),
        "type": position.type,
        "text": position.text[:TEXT_CHARACTERS],
    }


@dataclass(frozen=True, slots=True)
class Failure:
    """What a node's journal says that failed: a runner in one `attempt`, or the download of a model (no attempt).

    `index` is the last record that the node had then; `refused` what was said to reports about it.
    """

    node_id: str
    id: str
    attempt: int | None
    instance_id: str
    at: str
    index: int
    error: str
    refused: tuple[str, ...] = ()


@dataclass(slots=True)
class Unreported:
    """Failures that nodes knew of, less those that the history says."""

    failures: list[Failure]
    _told: set[tuple[str, int | None]] = field(default_factory=set[tuple[str, int | None]])
    _told_elsewhere: set[tuple[str, int | None]] = field(default_factory=set[tuple[str, int | None]])
    _wanted: set[tuple[str, int | None]] = field(init=False)

    def __post_init__(self) -> None:
        """Only what is looked for is kept."""
        self._wanted = {(each.id, each.attempt) for each in self.failures}

    def see(self, row: Row, reference: Position | None) -> None:
        """What stands at an index, and what of it counts."""
        for position in row.values():
            key = _failed(position.event)
            if key in self._wanted:
                counts = reference is not None and position.content == reference.content
                (self._told if counts else self._told_elsewhere).add(key)

    def findings(self, state: State) -> Iterable[Finding]:
        """What no log says that counts, by the state that the history has come to."""
        for each in self.failures:
            key = (each.id, each.attempt)
            if key not in self._told:
                self._told.add(key)
                yield Finding(
                    "unreported", each.id, each.index, self._why(each, key), _remedy(each, state), events=[each.index]
                )

    def _why(self, failure: Failure, key: tuple[str, int | None]) -> str:
        attempt = "" if failure.attempt is None else f" (attempt {failure.attempt})"
        where = "it stands only in records that were abandoned" if key in self._told_elsewhere else "no log has it"
        refused = f"; its report was refused: {', '.join(failure.refused)}" if failure.refused else ""
        return (
            f"node {failure.node_id} knew at {failure.at}, after record {failure.index}, that {failure.id}{attempt} "
            f"failed: {failure.error or 'no reason given'}; {where}{refused}"
        )


def _failed(event: Event | None) -> tuple[str, int | None] | None:
    match event:
        case RunnerStatusUpdated(runner_status=RunnerFailed()):
            return event.runner_id, event.attempt
        case NodeDownloadProgress(download_progress=progress) if progress.kind == DownloadKind.FAILED:
            return f"{progress.node_id}/{progress.model_id}", None
        case _:
            return None


def _remedy(failure: Failure, state: State) -> str:
    if failure.instance_id in state.instances:
        return f"exo runners restart {failure.instance_id}"
    if failure.id in state.runners:
        return f"exo runners forget {failure.id}"
    return "exo node list"
