"""Following: the log of a running node, told as it grows, and what goes wrong in it as soon as that can be said."""

import shlex
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from exo_cli.engine.core.errors import BadDataError, UsageError
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.wire import BadLineError
from exo_cli.engine.log.growth import growing
from exo_cli.engine.log.scan import segments_of
from exo_cli.engine.replaying.questions import Questions, Row
from exo_cli.engine.replaying.remote import is_url
from exo_cli.engine.replaying.source import Source, is_pipe, last_index

if TYPE_CHECKING:
    from exo_cli.engine.core.invariants.findings import Finding, Key

POLL_SECONDS = 0.1
# As `tail -f`: so much of what was there before.
TOLD_BEFORE = 10


def follow(
    path: str,
    questions: Questions,
    on_finding: Callable[[Row], None],
    *,
    wait: Callable[[], None] = lambda: time.sleep(POLL_SECONDS),
) -> None:
    """Tell of the last records (or those from `questions.first` on), then of each that comes, until interrupted. Of a
    file that is no node's: until it is gone. `wait` passes the time between two looks.

    Raises:
        UsageError: what does not grow: a recording, a pipe, a packed segment.
        NotFoundError, BadDataError: see `replay`.
    """
    folder, files = _files_of(path)
    questions.settle(path, None)
    known = last_index(path)
    head = -1 if known is None else known
    questions.first = max(0, head + 1 - TOLD_BEFORE) if questions.first is None else questions.first
    fold = Fold(check=True)
    questions.begin(fold, None)
    news = _News(fold, head, on_finding)
    begin = files[0] if folder is None else _beginning(segments_of(folder), questions.first)
    for line, size in growing(begin, folder, lambda: _idle(fold, news, wait)):
        try:
            fold.feed(line, size)
        except BadLineError as error:
            raise BadDataError(f"{path} cannot be used: {error}", f"exo replay {shlex.quote(path)}") from None
        news.tell()


def _files_of(path: str) -> tuple[Path | None, list[Path]]:
    if not (is_pipe(path) or is_url(path)):
        with Source(path) as source:
            if source.folder is not None or not (source.is_recording or source.is_packed):
                return source.folder, source.files
    raise UsageError("only the log that a node of exo writes can be followed", f"exo replay {shlex.quote(path)}")


def _beginning(segments: list[Path], first: int) -> Path:
    """The newest segment whose first record is not behind this one: each begins with a whole state."""
    return next((each for each in reversed(segments) if int(each.name[:20]) <= max(0, first)), segments[0])


def _idle(fold: Fold, news: "_News", wait: Callable[[], None]) -> None:
    """Nothing came: time has passed all the same, and what had to settle in it has not."""
    # The node's clock, or nearly: it says when a deadline of a minute is over.
    fold.pass_time(datetime.fromtimestamp(time.clock_gettime(time.CLOCK_REALTIME), UTC))
    news.is_caught_up = True
    news.tell()
    wait()


class _News:
    """Findings, told once when they begin and once when they end."""

    def __init__(self, fold: Fold, head: int, on_finding: Callable[[Row], None]) -> None:
        """What was over before `head` is not told."""
        self.is_caught_up = False
        self._fold, self._head, self._on_finding = fold, head, on_finding
        self._lasting: dict[Key, Finding] = {}
        self._over = 0

    def tell(self) -> None:
        """What is new since the last time."""
        found = self._fold.findings
        self.is_caught_up = self.is_caught_up or self._fold.state.index >= self._head
        if not self.is_caught_up:
            self._over = len(found.over)
            return
        for finding in found.over[self._over :]:
            self._on_finding(finding.item())
        self._over = len(found.over)
        if found.lasting.keys() != self._lasting.keys():
            for key in found.lasting.keys() - self._lasting.keys():
                self._on_finding(found.lasting[key].item())
            self._lasting = dict(found.lasting)
