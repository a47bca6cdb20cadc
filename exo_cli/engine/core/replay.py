"""Replay: folding the lines of a log into the state again, and telling what they show.

A pure fold in constant memory: it is fed with headers, records and closings one by one, from the first to the last. The
state at the base of the first header is taken as it is; what later headers and the closings say is compared with what
was folded. A log with a gap is folded as it is; behind one, nothing is compared until a header brings a whole state.
"""

from exo_cli.engine.core.events import Record
from exo_cli.engine.core.invariants.checks import Checks
from exo_cli.engine.core.invariants.findings import Findings
from exo_cli.engine.core.invariants.hard import at_point, gap, misplaced
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.state import State, load
from exo_cli.engine.core.tasks import OPEN, ImageEdits, ImageGeneration, TaskStatus, TextGeneration
from exo_cli.engine.core.wire import BadLineError, Closing, Header, Line

FORMAT = "exo-log/1"
_NEVER = 1 << 64


class Fold:
    """A log, folded as far as it was fed. `check` judges it by the invariants on the way."""

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

    def stop_at(self, index: int) -> None:
        """`is_done` becomes true at this index, and what is fed after it is passed over."""
        self._stop_index = index

    def feed(self, line: Line) -> None:
        """Take the next line.

        Raises:
            BadLineError: a header whose state is none.
        """
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

    def result(self) -> dict[str, object]:
        """What the log adds up to: the item of the Replay document."""
        if self._check:
            self._checks = self._checks or Checks(self.state, self.findings)
            self._checks.end(self.state)
        return {
            "format": FORMAT,
            "events": self.events,
            "first_index": self.first_index,
            "last_index": self.state.index,
            "state_hash": self.state.hash(),
            "torn_tail": self.torn_tail,
            "state": self.state.dump(),
            "findings": [finding.item() for finding in self.findings.in_order()],
            "notes": self._notes(),
        }

    def _record(self, record: Record) -> None:
        state, index = self.state, record.index
        if index != state.index + 1 or record.term < state.term:
            if index > self._stop_index:
                self.is_done = True
                return
            self._misplaced(record)
        if self.first_index is None:
            self.first_index = index
        if not self._check:
            apply(state, record)
        else:
            self._apply_checked(record)
        self.events += 1
        if index == self._stop_index:
            self.is_done = True

    def _misplaced(self, record: Record) -> None:
        for finding in misplaced(self.state, record):
            self.findings.add(finding)
        self._is_whole = self._is_whole and record.index == self.state.index + 1

    def _apply_checked(self, record: Record) -> None:
        state, event = self.state, record.event
        checks = self._checks = self._checks or Checks(state, self.findings)
        touched = checks.before(state, event, record.index, record.at)
        apply(state, record)
        checks.after(state, touched, event, record.index, record.at)

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
        chats = [each for each in self.state.tasks.values() if isinstance(each, _CHATS)]
        counts = {
            "worker_tasks": len(self.state.tasks) - len(chats),
            "cancelled_tasks": sum(each.task_status == TaskStatus.CANCELLED for each in chats),
            "finished_tasks": sum(each.task_status not in {*OPEN, TaskStatus.CANCELLED} for each in chats),
            "findings_left_out": self.findings.left_out,
        }
        return notes | {name: count for name, count in counts.items() if count}


_CHATS = (TextGeneration, ImageGeneration, ImageEdits)
