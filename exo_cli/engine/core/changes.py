"""Changes: where two plain values differ."""

from collections.abc import Iterator
from typing import cast

Change = tuple[str, object, object]


def changes_between(before: object, now: object, path: str = "") -> Iterator[Change]:
    """The paths at which two plain values differ, with both; None is nothing."""
    if isinstance(before, dict) and isinstance(now, dict):
        ones, others = cast("dict[str, object]", before), cast("dict[str, object]", now)
        for name in sorted(ones.keys() | others.keys()):
            yield from changes_between(ones.get(name), others.get(name), f"{path}.{name}" if path else name)
    elif isinstance(before, list) and isinstance(now, list):
        lists = cast("list[object]", before), cast("list[object]", now)
        for place in range(max(map(len, lists))):
            one, other = (each[place] if place < len(each) else None for each in lists)
            yield from changes_between(one, other, f"{path}[{place}]")
    elif before != now:
        yield path, before, now
