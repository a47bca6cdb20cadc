"""Questions: what is asked of a log beside its state: a story, its events, what it is made of, a part of its state."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from exo_cli.engine.core.errors import BadDataError, NotFoundError, UsageError
from exo_cli.engine.core.history import History, Placed, Thing, about, concluded, row
from exo_cli.engine.core.ids import instance_id_in
from exo_cli.engine.core.lanes import Lanes
from exo_cli.engine.core.reasons import reason_items
from exo_cli.engine.core.recording import RecordingFold
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.state import State
from exo_cli.engine.core.statistics import Statistics
from exo_cli.engine.paths.target import shown
from exo_cli.engine.replaying.sidecar import Sidecar
from exo_cli.engine.replaying.source import home_of, is_pipe, last_index

FILTERS = ("type", "id", "node", "client", "term")
LAST_LINES = 10
_TAIL_BYTES = 1 << 16
_JOURNAL = ("journal.older.jsonl", "journal.jsonl")

Row = dict[str, object]


@dataclass
class Questions:
    """What is asked. `first` and `last` bound what is told of (negative: from the end), not what is folded.

    `beside` are logs of other nodes, whose journals may say more about a thing.
    """

    explain: str | None = None
    why: str | None = None
    node: str | None = None
    stats: bool = False
    lanes: bool = False
    filters: tuple[str, ...] = ()
    first: int | None = None
    last: int | None = None
    on_event: Callable[[Row], None] | None = None
    beside: tuple[str, ...] = ()
    _history: History | None = field(default=None, init=False)
    _statistics: Statistics | None = field(default=None, init=False)
    _lanes: Lanes = field(default_factory=Lanes, init=False)
    _wanted: dict[str, set[str]] = field(default_factory=dict[str, set[str]], init=False)

    def settle(self, path: str, at: int | str | None) -> int | str | None:
        """Count what is negative from the end of the log, before it is opened; `at`, so counted."""
        at, self.first, self.last = from_the_end(path, at, self.first, self.last)
        return at

    def begin(self, fold: Fold, at: int | str | None) -> int | None:
        """Have the fold tell what is needed; the index to stop at, when it is one."""
        point = self._stop(fold, at)
        if self.explain is not None:
            self._history = History(self.explain)
            fold.watch(self._remember)
        if self.stats:
            self._statistics = Statistics()
            fold.watch(self._count)
            if isinstance(fold, RecordingFold):
                fold.on_counted = self._count_kind
        if self.lanes:
            self._lanes = Lanes(self.first, self.last)
            fold.watch(lambda state, placed, _size: self._lanes.see(state, placed))
        if self.on_event is not None:
            for key, value in map(_filter, self.filters):
                self._wanted.setdefault(key, set()).add(value)
            fold.watch(self._tell)
        return point

    def _stop(self, fold: Fold, at: int | str | None) -> int | None:
        if isinstance(at, str):
            if not fold.timed:
                raise no_times()
            fold.stop_after_time(moment_in(at))
            return None
        if at is not None:
            fold.stop_at(at)
        return at

    def _is_in_range(self, index: int) -> bool:
        return (self.first is None or index >= self.first) and (self.last is None or index <= self.last)

    def _remember(self, state: State, placed: Placed, _size: int) -> None:
        if self._history is not None and self._is_in_range(placed.index):
            self._history.see(state, placed)

    def _count(self, state: State, placed: Placed, size: int) -> None:
        if self._statistics is not None and self._is_in_range(placed.index):
            self._statistics.see(state, placed, size)

    def _count_kind(self, kind: str, index: int, size: int) -> None:
        if self._statistics is not None and self._is_in_range(index):
            self._statistics.count(kind, size)

    def _tell(self, state: State, placed: Placed, _size: int) -> None:
        if self.on_event is not None and self._is_in_range(placed.index) and self._passes(state, placed):
            self.on_event(row(state, placed))

    def _passes(self, state: State, placed: Placed) -> bool:
        facts = {
            "type": placed.event.type,
            "node": placed.by.node if placed.by else "",
            "client": (placed.by.client if placed.by else None) or "",
            "term": str(placed.term),
        }
        for key, values in self._wanted.items():
            if key == "id":
                if values.isdisjoint(name for _, name in about(state, placed.event)):
                    return False
            elif facts[key] not in values:
                return False
        return True

    def are_quick(self, at: int | str | None) -> bool:
        """Whether a sidecar has the answers: nothing is told of each event, nor what was wrong at a point."""
        asks = (at is None) if self.explain is not None else (at is not None or self.why is not None)
        return asks and not (self.stats or self.lanes) and self.on_event is None

    def are_plain(self, at: int | str | None) -> bool:
        """Whether only the state at the end is asked for."""
        return at is None and self.explain is None and not (self.stats or self.lanes) and self.on_event is None

    def recall(self, sidecar: Sidecar) -> None:
        """Have the history from the sidecar instead of from each event."""
        if self._history is None:
            return
        at: dict[int, list[Thing]] = {}
        for thing, records in sidecar.postings(self._history.wanted).items():
            for record in records:
                if self._is_in_range(record):
                    at.setdefault(record, []).append(thing)
        for record in sorted(at):
            self._history.take(at[record], {"index": record})
        self._history.fill(sidecar.rows)

    def answers(self, fold: Fold, item: Row, path: str) -> Row:
        """What was found out, to stand beside the state."""
        answers: Row = {}
        if self._history is not None:
            answers["story"] = _story(self._history, fold, item, (path, *self.beside))
        if self.why is not None:
            answers["why"] = _reasons(fold, self.why, self.node, fold.last_at)
        if self._statistics is not None:
            answers["statistics"] = self._statistics.item()
        if self.lanes:
            found = cast("list[Row]", item["findings"])
            answers["lanes"] = self._lanes.item(found, notes_of(path, "refused"), fold.state)
        return answers


def no_times() -> UsageError:
    """A time was given where events have none."""
    return UsageError("the public system's recordings have no times: give an index", "exo replay --help")


def from_the_end(
    path: str, at: int | str | None, first: int | None, last: int | None
) -> tuple[int | str | None, int | None, int | None]:
    """Negative indexes counted from the last record: -1 is the last one."""
    numbers = [at, first, last]
    if any(isinstance(each, int) and each < 0 for each in numbers):
        if is_pipe(path):
            raise UsageError("an index from the end needs a file, not a pipe", "exo replay --help")
        last = last_index(path)
        if last is None:
            raise BadDataError(f"{path} holds no event log", f"ls -l {shown(path)}")
        if (beyond := min(each for each in numbers if isinstance(each, int))) < -last - 1:
            raise NotFoundError(
                f"the log {path} has no {-beyond} records, its last one is {last}", f"exo replay {shown(path)}"
            )
        numbers = [last + 1 + each if isinstance(each, int) and each < 0 else each for each in numbers]
    return numbers[0], cast("int | None", numbers[1]), cast("int | None", numbers[2])


def moment_in(text: str) -> datetime:
    """A time as `--at` takes it: RFC 3339; without a zone it is UTC. Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"neither an index nor a time: {text!a}", "exo replay LOG --at 2026-01-31T12:00:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _filter(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or key not in FILTERS:
        raise UsageError(
            f"not a filter: {text!a} (KEY=VALUE, KEY one of {', '.join(FILTERS)})",
            "exo replay LOG --filter type=RunnerStatusUpdated",
        )
    return key, value


def _reasons(fold: Fold, wanted: str, node: str | None, at: datetime | None) -> list[Row]:
    rows = reason_items(fold.state, wanted, at, node=node or "", foreign=not fold.timed)
    if not rows:
        raise NotFoundError(
            f"no instance that is placed, and no runner of one, is called {wanted!a}: the planner has no part in it",
            f"exo replay LOG --explain {wanted}",
        )
    return rows


def _story(history: History, fold: Fold, item: Row, paths: Sequence[str]) -> Row:
    things = history.exact
    names = dict.fromkeys(name for _, name in things)
    if not names:
        raise NotFoundError(f"nothing in the log is called {history.wanted!a}", "exo replay LOG --stats")
    if len(names) > 1:
        lines = "".join(f"\n  {name}" for name in list(names)[:20])
        raise UsageError(f"{history.wanted!a} is ambiguous{lines}", "exo replay LOG --explain ID", code="ambiguous")
    [name] = names
    findings = [each for each in cast("list[Row]", item["findings"]) if _names(each, name)]
    moments = history.of(name)
    return {
        "id": name,
        "sorts": [sort for sort, _ in things],
        "moments": moments,
        "left_out": history.left_out,
        "now": concluded(fold.state, things[0], ended_before=any(_is_end(each, name) for each in moments)),
        "findings": findings,
        "refused": [note for path in paths for note in _untold(path, name, moments)],
        "output": next((said for path in paths if (said := _last_lines(path, name))), list[str]()),
    }


def _names(finding: Row, name: str) -> bool:
    """Whether a finding is about it, or has to do with it."""
    return finding["id"] == name or name in re.split(r"[\s/,:;]+", f"{finding['id']} {finding['why']}")


def _is_end(moment: Row, runner_id: str) -> bool:
    return str(moment["what"]).startswith(f"{runner_id}: ") and "-> RunnerShutdown" in str(moment["what"])


def _untold(path: str, name: str, moments: Sequence[Row]) -> Iterator[Row]:
    """What the node whose log it is turned down, or knew and could not report: it never reached the log."""
    for note in notes_of(path, "refused", "hello refused", "address refused", "snapshot refused", "failed"):
        if not any(name in str(each) for each in note.values()):
            continue
        if note["kind"] != "failed":
            yield note
            continue
        attempt = f"(attempt {note.get('attempt')})"
        reported = (str(each["what"]) for each in moments if "-> RunnerFailed" in str(each["what"]))
        if not any(what.startswith(f"{note.get('id')}: ") and attempt in what for what in reported):
            yield note | {"reason": f"runner {note.get('id')} {attempt} failed: {note.get('error')}"}


def notes_of(path: str, *kinds: str) -> Iterator[Row]:
    """The lines of these kinds in the journal of the node whose log it is, oldest first; what is no line of one is
    passed over.
    """
    home = home_of(path)
    for file in (home / "state" / "journal" / each for each in _JOURNAL) if home else ():
        with suppress(OSError), file.open(errors="replace") as lines:
            for line in lines:
                with suppress(ValueError, RecursionError):
                    note = json.loads(line)
                    if isinstance(note, dict) and cast("Row", note).get("kind") in kinds:
                        yield note


def _last_lines(path: str, runner_id: str) -> list[str]:
    home = home_of(path)
    file = Path("/nonexistent") if home is None else home / "state" / "runners" / f"{runner_id}.log"
    if instance_id_in(runner_id) == "" or "/" in runner_id:
        return []
    with suppress(OSError), file.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, 2) - _TAIL_BYTES))
        return stream.read().decode(errors="replace").splitlines()[-LAST_LINES:]
    return []
