"""Progress: how far the reading of a long log is, for a person who waits."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from exo_cli.console import Console

PATIENCE_SECONDS = 1.0
_BAR = 30


@contextmanager
def progress_shown(console: Console) -> Iterator[None]:
    """Have it drawn, once reading takes longer than a second, until the block ends; nothing where nobody looks."""
    if not console.redraws:
        yield
        return
    from exo_cli.engine.replaying.source import Source

    began = time.monotonic()

    def tell(lines: int, part: float | None) -> None:
        if time.monotonic() - began >= PATIENCE_SECONDS:
            console.progress(progress_line(lines, part))

    Source.on_progress = tell
    try:
        yield
    finally:
        Source.on_progress = None
        console.end_progress()


def progress_line(lines: int, part: float | None) -> str:
    """A bar where it is known how much there is, and the records that were read."""
    done = "" if part is None else f"{'#' * int(_BAR * part):<{_BAR}} {part:4.0%}  "
    return f"{done}{lines:,} records read"
