"""The recorder: it stands in front of a replica and writes down what it is stepped with and what it answers.

A recording is `core.steps`' lines in a file of its own, for `exo replay FILE --rerun`. Each line is with the system
before its effects are carried out, so a kill costs no more than the last one; nothing is synced. What it cannot write
costs the node nothing: it says so once, and the recording ends there.
"""

import logging
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path

from exo_cli.engine.core.effects import Effects, Input, Now
from exo_cli.engine.core.errors import UsageError
from exo_cli.engine.core.replica import Replica
from exo_cli.engine.core.steps import (
    LIMIT_BYTES,
    Beginning,
    Given,
    Plain,
    Start,
    Tokens,
    answered,
    encode_beginning,
    encode_step,
    raised,
)

RECORDING_BYTES = 256 << 20
_LOG = logging.getLogger(__name__)


def check_target(path: Path) -> None:
    """Refuse to write over anything. Raises UsageError."""
    if os.path.lexists(path):
        raise UsageError(f"--record {path}: it is there already", f"mv {shlex.quote(str(path))} OTHER")


class Recorder:
    """See the module: the two doors of a replica, which is stepped by nobody else."""

    def __init__(
        self, path: Path, replica: Replica, seeds: Sequence[str] = (), limit_bytes: int = RECORDING_BYTES
    ) -> None:
        """Make the file, for this user alone, and write what a replica that has not been stepped yet was made of.

        Raises:
            UsageError: there is such a file, or it cannot be made.
        """
        check_target(path)
        self._path, self._replica, self._limit_bytes = path, replica, limit_bytes
        self._tokens = Tokens()
        self._open_streams = 0
        self._size = 0
        self._file: FileIO | None
        try:
            # "x" is O_EXCL: it never follows a link, nor opens what came since.
            self._file = FileIO(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))
        except OSError as error:
            folder = shlex.quote(str(path.absolute().parent))
            raise UsageError(f"cannot record into {path}: {error.strerror}", f"ls -ld {folder}") from None
        beginning = Beginning(
            version=replica.version,
            node_id=replica.node_id,
            incarnation=replica.incarnation,
            address=replica.address,
            facts=replica.facts,
            seeds=tuple(seeds),
            state=replica.state.dump(),
        )
        self._write(encode_beginning(beginning))

    def start(self, now: Now) -> Effects:
        """The first step."""
        return self._recorded(Start(), now, partial(self._replica.start, now))

    def step(self, given: Input, now: Now) -> Effects:
        """Every other one."""
        return self._recorded(given, now, partial(self._replica.step, given, now))

    def close(self) -> None:
        """Let go of the file."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _recorded(self, given: Given, now: Now, take: Callable[[], Effects]) -> Effects:
        streams = self._replica.open_streams
        try:
            effects = take()
        except Exception as error:
            self._note(given, now, streams, partial(raised, error))
            raise
        self._note(given, now, streams, partial(answered, effects, self._tokens))
        return effects

    def _note(self, given: Given, now: Now, streams: int, answer: Callable[[], Plain]) -> None:
        if self._file is None:
            return
        changed = None if streams == self._open_streams else streams
        self._open_streams = streams
        try:
            line = encode_step(given, now, changed, answer(), self._tokens)
        except (ValueError, TypeError, RecursionError) as error:
            self._end(f"a step cannot be written: {error}")
        else:
            self._write(line)

    def _write(self, line: bytes) -> None:
        assert self._file is not None, "a recording that has ended takes no line"
        if len(line) > LIMIT_BYTES or self._size + len(line) > self._limit_bytes:
            self._end(f"it has {self._size} bytes, and the next line {len(line)}")
            return
        try:
            written = self._file.write(line)
        except OSError as error:
            self._end(str(error))
        else:
            self._size += written
            if written < len(line):
                self._end("the disk took only a part of a line")

    def _end(self, why: str) -> None:
        _LOG.warning("the recording %s ends here, the node goes on: %s", self._path, why)
        self.close()
