"""A disk that takes its time, fails when told so, and keeps of a torn write what it had reached."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from exo_cli.engine.core.effects import Appended, AppendFailed, Input
from exo_cli.engine.core.events import Record
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.state import State, load
from exo_cli.engine.core.wire import GetTail, Header, Tail, decode_line, encode_header, encode_record

if TYPE_CHECKING:
    from tests.sim.shell import Shell

TAIL_BYTES = 1 << 20


class Disk:
    """The log of one node: it outlives the process."""

    def __init__(self, shell: "Shell") -> None:
        self.shell, self.world = shell, shell.world
        self.header: bytes | None = None
        self.base_index, self.base_term = -1, 0
        self.lines: list[bytes] = []
        self.terms: list[int] = []
        self.is_failing = False
        self.slow = 0.0
        self._busy: tuple[Header | None, list[Record]] | None = None

    @property
    def last_index(self) -> int:
        return self.base_index + len(self.lines)

    def write(self, header: Header | None, records: list[Record], then: Callable[[Input | None], None]) -> None:
        """Begin anew, append, or both; `then` gets Appended or AppendFailed when it is through."""
        world, life = self.world, self.shell.life
        self._busy = (header, records)
        wait = world.rng.uniform(0.2, 1.0) if world.chance(self.slow) else world.rng.uniform(0.0002, 0.01)
        world.later(wait, lambda: self._done(life, then))

    def _done(self, life: int, then: Callable[[Input | None], None]) -> None:
        if life != self.shell.life or not self.shell.is_alive or self._busy is None:
            return
        (header, records), self._busy = self._busy, None
        if header is not None:
            self._begin(header)
        if records and self.is_failing:
            then(AppendFailed("no space left on device"))
            return
        for record in records:
            self._write(record)
        then(Appended(self.last_index) if records else None)

    def _begin(self, header: Header) -> None:
        self.header = encode_header(header)
        self.base_index, self.base_term = header.base_index, header.base_term
        self.lines, self.terms = [], []

    def _write(self, record: Record) -> None:
        if record.index != self.last_index + 1:
            self.world.fail(f"{self.shell.name} writes index {record.index} behind {self.last_index}")
        line = encode_record(record)
        if (known := self.world.lines.setdefault(record.index, line)) != line:
            self.world.fail(f"index {record.index} is {line!r} on {self.shell.name} and was {known!r}")
        self.lines.append(line)
        self.terms.append(record.term)

    def crash(self) -> None:
        """The process is killed: a write under way may have reached the disk whole, in part, or not."""
        busy, self._busy = self._busy, None
        if busy is None or self.is_failing:
            return
        header, records = busy
        if header is not None:
            if self.world.chance(0.5):
                return
            self._begin(header)
        for record in records[: self.world.rng.randint(0, len(records))]:
            self._write(record)

    def fold(self) -> State:
        """The state that the log holds."""
        state = State()
        if self.header is not None:
            header = decode_line(self.header)
            assert isinstance(header, Header)
            state = load(header.state)
        for line in self.lines:
            record = decode_line(line)
            assert isinstance(record, Record)
            apply(state, record)
        return state

    def tail(self, asked: GetTail, tail: Tail) -> Tail:
        """What the node fills into the replica's answer."""
        before = asked.first_index - 1
        if before < self.base_index or before > self.last_index:
            return tail.model_copy(update={"snapshot_needed": True})
        term = self.base_term if before == self.base_index else self.terms[before - self.base_index - 1]
        if term != asked.previous_term:
            return tail.model_copy(update={"snapshot_needed": True})
        lines: list[str] = []
        size = 0
        for line in self.lines[asked.first_index - self.base_index - 1 : tail.head - self.base_index]:
            lines.append(line.decode().rstrip("\n"))
            size += len(line)
            if size > TAIL_BYTES:
                break
        return tail.model_copy(update={"lines": tuple(lines)})
