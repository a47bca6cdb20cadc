"""Replay: folding the lines of a log into the state again, and telling what they show.

A pure fold in constant memory: it is fed with headers, records and closings one by one, from the first to the last. The
state at the base of the first header is taken as it is; what later headers and the closings say is compared with what
was folded. A log with a gap is folded as it is; behind one, nothing is compared until a header brings a whole state.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from exo_cli.engine.core.events import Event, Record
from exo_cli.engine.core.foreign.translator import Translator
from exo_cli.engine.core.history import Placed
from exo_cli.engine.core.invariants.checks import SETTLED, Checks
from exo_cli.engine.core.invariants.findings import Finding, Findings, key_of
from exo_cli.engine.core.invariants.hard import at_point, gap, misplaced
from exo_cli.engine.core.items import moment
from exo_cli.engine.core.reasons import is_stuck, stuck_told
from exo_cli.engine.core.reducer import apply, fold_event
from exo_cli.engine.core.state import State, load
from exo_cli.engine.core.tasks import OPEN, GenerationTask, TaskStatus
from exo_cli.engine.core.wire import BadLineError, Closing, Header, Line

FORMAT = "exo-log/1"
Watcher = Callable[[State, Placed, int], None]
_NEVER = 1 << 64
# When something is said to be what a log is mostly about.
MOSTLY_EVENTS, MOSTLY_SHARE = 1000, 0.2


class Fold:
    """A log, folded as far as it was fed. `check` judges it by the invariants on the way."""

    format = FORMAT

    def __init__(self, *, check: bool = False) -> None:
        """Nothing was fed yet."""
        self.state = State()
        self.findings = Findings()
        self.events = 0
        self.first_index: int | None = None
        self.is_done = False
        self.torn_tail: dict[str, object] | None = None
        self.diverged = False
        self._check = check
        self._checks: Checks | None = None
        self._stop_index = _NEVER
        self._has_header = False
        self._is_whole = True
        self._skipped: dict[str, int] = {}
        self._stop_time: datetime | None = None
        self.last_at: datetime | None = None
        self.timed = True
        self._translator = Translator()
        self._watchers: list[Watcher] = []
        self._size = 0

    def watch(self, watcher: Watcher) -> None:
        """Have it see each event with the state that it meets, and the bytes that it takes."""
        self._watchers.append(watcher)

    def stop_after_time(self, at: datetime) -> None:
        """`is_done` becomes true at the first record that is later."""
        self._stop_time = at

    def stop_at(self, index: int) -> None:
        """`is_done` becomes true at this index, and what is fed after it is passed over."""
        self._stop_index = index

    def feed(self, line: Line, size: int = 0) -> None:
        """Take the next line, which is so many bytes long.

        Raises:
            BadLineError: a header whose state is none.
        """
        self._size = size
        if type(line) is Record and not self.is_done:
            self._record(line)
        elif isinstance(line, Header) and not self.is_done:
            self._header(line)
        elif isinstance(line, Closing) and not self.is_done:
            self._closing(line)

    def skip(self, *, unknown: bool) -> None:
        """A line was passed over: a whole record of an unknown event, or damage (whose index nobody knows)."""
        self._is_whole = False
        self._count("unknown_events" if unknown else "damaged_lines")
        if unknown:
            self.state.index += 1
            why = f"record {self.state.index} is of an event type that this version does not know"
            self.findings.add(at_point("unknown_event", self.state.index, why, "pip install --upgrade exo-cli"))

    def tear(self, path: str, offset: int, n_bytes: int) -> None:
        """The log has a torn tail: so many bytes from the offset on are no record."""
        self.torn_tail = {"path": path, "offset": offset, "bytes": n_bytes}

    def mark(self) -> dict[str, object]:
        """How far a fold without checks has come, beside its state: with both, another one goes on from here."""
        return {
            "events": self.events,
            "first_index": self.first_index,
            "diverged": self.diverged,
            "is_whole": self._is_whole,
            "timed": self.timed,
            "last_at": moment(self.last_at),
            "findings": [each.item() for each in self.findings.in_order()],
            "left_out": self.findings.left_out,
        }

    def resume(self, state: State, mark: Mapping[str, Any]) -> None:
        """Go on from a state and the mark of the fold that had it."""
        self.state, self._has_header, self.is_done = state, True, state.index >= self._stop_index
        self.events, self.first_index = mark["events"], mark["first_index"]
        self.diverged, self._is_whole, self.timed = mark["diverged"], mark["is_whole"], mark["timed"]
        self.last_at = datetime.fromisoformat(mark["last_at"]) if mark["last_at"] else None
        for each in mark["findings"]:
            self.findings.add(Finding(**each))
        self.findings.left_out = mark["left_out"]

    def pass_time(self, at: datetime) -> None:
        """It is this late, and nothing more is in the log: what had to be settled by now is not."""
        if self._checks is not None:
            self._checks.pass_time(self.state, at)

    def result(self) -> dict[str, object]:
        """What the log adds up to: the item of the Replay document."""
        if self._check:
            self._checks = self._checks or self._new_checks()
            self._checks.end(self.state)
            self._find_stuck()
        return {
            "format": self.format,
            "events": self.events,
            "first_index": self.first_index,
            "last_index": self.state.index,
            "state_hash": self.state.hash(),
            "torn_tail": self.torn_tail,
            "state": self.state.dump(),
            "findings": [self._found(finding) for finding in self.findings.in_order()],
            "notes": self._notes(),
        }

    def _found(self, finding: Finding) -> dict[str, object]:
        return finding.item() if self.timed else finding.item() | {"remedy": self._translator.remedy(*key_of(finding))}

    def _record(self, record: Record) -> None:
        state, index = self.state, record.index
        if index != state.index + 1 or record.term < state.term:
            if index > self._stop_index:
                self.is_done = True
                return
            self._misplaced(record)
        if self._stop_time is not None and record.at > self._stop_time:
            self.is_done = True
            return
        if self.first_index is None:
            self.first_index = index
        if not self.timed:
            self._take(record.event, index, self._size)
            self.is_done = index == self._stop_index
            return
        self.last_at = record.at
        if self._watchers:
            placed = Placed(index, record.event, record.at, record.term, record.by, record.cause)
            self._show(placed, self._size)
        if not self._check:
            apply(state, record)
        else:
            checks = self._checks = self._checks or self._new_checks()
            touched = checks.before(state, record.event, index, record.at)
            apply(state, record)
            checks.after(state, touched, record.event, index, record.at)
        self.events += 1
        if index == self._stop_index:
            self.is_done = True

    def _take(self, event: Event, index: int, size: int) -> None:
        """An event that has neither a time nor an author."""
        if self._watchers:
            self._show(Placed(index, event), size)
        if not self._check:
            fold_event(self.state, event, index, None)
        else:
            checks = self._checks = self._checks or self._new_checks()
            touched = checks.before(self.state, event, index, None)
            fold_event(self.state, event, index, None)
            checks.after(self.state, touched, event, index, None)
        self.state.index = index
        self.events += 1

    def _find_stuck(self) -> None:
        """Instances that serve nobody and in which nothing can move again, as far as the log goes."""
        for instance in self.state.instances.values():
            known = [each for runner_id in instance.runner_ids if (each := self.state.runners.get(runner_id))]
            waited = [self.last_at - each.since for each in known if self.last_at and each.since]
            if self.timed and min(waited, default=SETTLED) < SETTLED:
                continue
            if is_stuck(self.state, instance, self.last_at, foreign=not self.timed):
                since = max((each.since_index for each in known), default=self.state.index)
                why = stuck_told(self.state, instance, self.last_at, foreign=not self.timed)
                remedy = f"exo runners restart {instance.instance_id}"
                self.findings.add(Finding("no_progress", instance.instance_id, since, why, remedy, events=[since]))

    def _show(self, placed: Placed, size: int) -> None:
        for watcher in self._watchers:
            watcher(self.state, placed, size)

    def _new_checks(self) -> Checks:
        return Checks(self.state, self.findings, timed=self.timed)

    def _misplaced(self, record: Record) -> None:
        for finding in misplaced(self.state, record):
            self.findings.add(finding)
        self._is_whole = self._is_whole and record.index == self.state.index + 1

    def _header(self, header: Header) -> None:
        if not self._has_header and self.first_index is None:
            self._adopt(header)
        elif header.base_index != self.state.index:
            if header.adopted_from is None:
                came = f"a segment that begins at {header.base_index + 1} came"
                self.findings.add(gap(header.base_index + 1, self.state.index, came))
            self._adopt(header)
        elif not self._is_whole:
            self._adopt(header)
        else:
            self._compare(header.state_hash, header.base_index, header.version)
        self._has_header = True
        self.is_done = self.state.index >= self._stop_index

    def _adopt(self, header: Header) -> None:
        """Go on from the state that a header brings."""
        self.timed = header.timed
        try:
            state = load(header.state)
        except ValueError as error:
            raise BadLineError(f"the header's state cannot be used: {str(error).splitlines()[0]}") from None
        if state.index != header.base_index:
            raise BadLineError(f"the header's state is that of record {state.index}, its base {header.base_index}")
        self.state, self._is_whole = state, True
        self._compare(header.state_hash, header.base_index, header.version)
        if self._checks is not None:
            self._checks.adopt(state)

    def _closing(self, closing: Closing) -> None:
        if closing.index != self.state.index:
            came = f"a closing of record {closing.index} came"
            self.findings.add(gap(closing.index + 1, self.state.index, came))
            self._is_whole = False
        elif self._is_whole:
            self._compare(closing.state_hash, closing.index, None)

    def _compare(self, recorded: str, index: int, version: str | None) -> None:
        """The first difference counts; what follows from it is not told again."""
        if not recorded or self.diverged or recorded == (computed := self.state.hash()):
            return
        self.diverged = True
        why = f"at record {index} the state has the hash {computed}, and the log says {recorded}"
        remedy = f"pip install exo-cli=={version}" if version else "exo --version"
        self.findings.add(at_point("diverged", index, why, remedy))

    def _count(self, name: str) -> None:
        self._skipped[name] = self._skipped.get(name, 0) + 1

    def _notes(self) -> dict[str, object]:
        """What is worth knowing and no finding: lines passed over, and finished tasks that nothing takes away."""
        notes: dict[str, object] = dict(self._skipped)
        chats = [each for each in self.state.tasks.values() if isinstance(each, GenerationTask)]
        counts = {
            "worker_tasks": len(self.state.tasks) - len(chats),
            "cancelled_tasks": sum(each.task_status == TaskStatus.CANCELLED for each in chats),
            "finished_tasks": sum(each.task_status not in {*OPEN, TaskStatus.CANCELLED} for each in chats),
            "findings_left_out": self.findings.left_out,
        }
        return notes | {name: count for name, count in counts.items() if count} | self._mostly()

    def _mostly(self) -> dict[str, object]:
        """What a good part of a longer log is about: a flood, perhaps."""
        longest = self._checks.longest_story() if self._checks is not None else None
        if longest is None or longest[1] < max(MOSTLY_EVENTS, MOSTLY_SHARE * self.events):
            return {}
        (sort, name), events = longest
        return {"mostly": {"sort": sort, "id": name, "events": events}}
