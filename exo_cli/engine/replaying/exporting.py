"""Exporting: a log, or a part of one, as one file in our own format; redacted when it is to leave the house.

Our own lines are copied as they are. What the public system recorded gets the times and authors that it never had (all
the same), and where one of its events has no place in our state, a record that changes nothing (VotersChanged) keeps
the count. What was passed over is missing in the export, as a gap.
"""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from exo_cli import __version__
from exo_cli.engine.core.errors import BadDataError, UsageError
from exo_cli.engine.core.events import Record, VotersChanged
from exo_cli.engine.core.history import NOBODY, Placed
from exo_cli.engine.core.recording import RecordingFold
from exo_cli.engine.core.redaction import Redaction
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.state import State
from exo_cli.engine.core.wire import Closing, Header, Line, encode_closing, encode_header, encode_record
from exo_cli.engine.log.scan import refuse_beside_segments
from exo_cli.engine.log.sources import PACKED
from exo_cli.engine.paths.target import refuse_existing, shown, whole_file
from exo_cli.engine.replaying.feeding import fold_source
from exo_cli.engine.replaying.questions import from_the_end
from exo_cli.engine.replaying.source import STANDARD_INPUT, Lenient, Source

_OTHER_HASH = "0" * 64
_NO_HEADER = Header(
    version=__version__, cluster_id="", node_id=NOBODY.node, base_index=-1, base_term=0, state_hash="", state={}
)


def export(
    path: str, file: str, *, redact: bool, first: int | None = None, last: int | None = None, lenient: Lenient
) -> int:
    """Write the records of a log from `first` to `last` (negative: from the end) into a new file; how many there are.

    Raises:
        UsageError: the file is there already.
        FailedError: it cannot be written.
        NotFoundError, BadDataError: see `replay`.
    """
    if not file:
        raise UsageError("--export needs a name for the file", "exo replay LOG --export log.exo")
    _, first, last = from_the_end(path, None, first, last)
    with Source(path) as source, _opened(file) as stream:
        lines = Lines(stream, Redaction() if redact else None, first)
        fold = CopyingRecordingFold(lines) if source.is_recording else CopyingFold(lines)
        if last is not None:
            fold.stop_at(last)
        fold_source(fold, source, lenient)
        if not lines.records:
            raise BadDataError(f"{path} holds no records there", f"exo replay {shlex.quote(path)}")
    return lines.records


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """The standard output, or a new file, packed if it is called so."""
    if file == STANDARD_INPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(file)
    refuse_existing(path, f"ls -l {shown(path)}")
    refuse_beside_segments(path)
    with whole_file(path) as plain:
        if path.suffix != PACKED:
            yield plain
            return
        with zstandard.ZstdCompressor(write_checksum=True).stream_writer(plain, closefd=False) as packed:
            yield cast("BinaryIO", packed)


@dataclass
class Lines:
    """The lines that are written: from record `first` on, redacted or not. `records` counts those of events."""

    file: BinaryIO
    redaction: Redaction | None
    first: int | None
    records: int = 0
    has_begun: bool = False

    def header(self, header: Header, state: State, *, diverged: bool) -> None:
        """A header of the log's own, with the state that was folded. Whether its hash was the right one is kept."""
        if self.redaction is not None:
            header = self.redaction.header(header, state)
            header = header.model_copy(
                update={"version": __version__, **({"state_hash": _OTHER_HASH} if diverged else {})}
            )
        self.has_begun = True
        self.file.write(encode_header(header))

    def closing(self, closing: Closing, state: State, *, diverged: bool) -> None:
        """The same of a closing."""
        if self.redaction is not None:
            right = _OTHER_HASH if diverged else self.redaction.state(state).hash()
            closing = closing.model_copy(update={"state_hash": right})
        self.file.write(encode_closing(closing))

    def record(self, record: Record, state: State, like: Header) -> None:
        """A record, and before the first a header at the state that it meets."""
        if self.first is not None and record.index < self.first:
            return
        if not self.has_begun:
            base = {"base_index": state.index, "base_term": state.term, "state": state.dump()}
            at_base = like.model_copy(update={**base, "state_hash": state.hash(), "adopted_from": None})
            self.header(at_base, state, diverged=False)
        self.records += 1
        self.file.write(encode_record(record if self.redaction is None else self.redaction.record(record)))


class CopyingFold(Fold):
    """The fold of our own log, whose lines are written on the way."""

    def __init__(self, lines: Lines) -> None:
        """Nothing was fed yet."""
        super().__init__()
        self._lines, self._header_before = lines, _NO_HEADER

    def feed(self, line: Line, size: int = 0) -> None:
        """See `Fold.feed`."""
        if isinstance(line, Record):
            if not self.is_done and line.index <= self._stop_index:
                self._lines.record(line, self.state, self._header_before)
            super().feed(line, size)
            return
        was_done, had_diverged = self.is_done, self.diverged
        super().feed(line, size)
        diverged = self.diverged and not had_diverged
        if isinstance(line, Header):
            self._header_before = line
        if was_done or not (self._lines.has_begun or self._lines.first is None):
            return
        if isinstance(line, Header):
            self._lines.header(line, self.state, diverged=diverged)
        else:
            self._lines.closing(line, self.state, diverged=diverged)


class CopyingRecordingFold(RecordingFold):
    """The fold of a recording, whose events are written as records on the way."""

    def __init__(self, lines: Lines) -> None:
        """Nothing was fed yet."""
        super().__init__()
        self._lines, self._like = lines, _NO_HEADER.model_copy(update={"timed": False})
        self.watch(self._put)
        self.on_counted = lambda _kind, _index, _size: self._fill()

    def pass_over(self, *, unknown: bool) -> None:
        """See `RecordingFold.pass_over`."""
        self._fill()
        super().pass_over(unknown=unknown)

    def _fill(self) -> None:
        nothing = VotersChanged(voters=self.state.voters)
        self._put(self.state, Placed(self.state.index + 1, nothing), 0)

    def _put(self, state: State, placed: Placed, _size: int) -> None:
        self._lines.record(placed.record(), state, self._like)
