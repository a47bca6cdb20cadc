"""Lanes to draw: what of each span lies in the records that are drawn, cut where something begins or ends to be wrong.

Both drawings stand on it: lines for a terminal, and a page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from exo_cli.engine.core.invariants.findings import over_at
from exo_cli.views import Item


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a span, in records [begin, end), and the kinds of finding that hold in all of it."""

    span: Item
    begin: int
    end: int
    stale: tuple[str, ...]


def stretches(lanes: Item, lane: Item) -> Iterator[Stretch]:
    """The stretches of one of the lanes, in their order."""
    first, beyond = lanes["first_index"], lanes["last_index"] + 1
    for span in lane["spans"]:
        begin = max(span["from_index"], first)
        end = beyond if span["to_index"] is None else min(span["to_index"], beyond)
        held = [(each["kind"], *_held(each)) for each in span["findings"]]
        cuts = {begin, end, *(cut for _, *both in held for cut in both if cut is not None and begin < cut < end)}
        borders = sorted(cuts) if begin < end else []
        for left, right in pairwise(borders):
            kinds = (kind for kind, since, until in held if since <= left and (until is None or right <= until))
            yield Stretch(span, left, right, tuple(dict.fromkeys(kinds)))


def drawn_findings(lanes: Item, findings: Sequence[Item]) -> list[Item]:
    """Those that hold in what is drawn."""
    first, last = lanes["first_index"], lanes["last_index"]
    held = [(each, *_held(each)) for each in findings]
    return [each for each, since, until in held if since <= last and (until is None or until > first)]


def _held(finding: Item) -> tuple[int, int | None]:
    """From which record to before which one."""
    since = finding["since_index"]
    return since, over_at(since, finding["until_index"])
