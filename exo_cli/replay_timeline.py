"""A timeline of lanes for a terminal: a row a lane, a column some records, a letter what most of them saw."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from exo_cli.console import fitted, visible
from exo_cli.replay_lanes import drawn_findings, stretches
from exo_cli.replay_views import finding_line
from exo_cli.views import Item

PIPE_COLUMNS = 100
STALE, REFUSED = "!", "o"
_LEAST_COLUMNS, _GAP = 10, "  "


class Ink(NamedTuple):
    """How a status is drawn: its letter, and its colour as a terminal takes it."""

    letter: str
    color: str


# The statuses in the order in which a runner has them, which is also that of the legend.
INKS: Final[Mapping[str, Ink]] = {
    "Present": Ink("=", "90"),
    "Placed": Ink("-", "34"),
    "Idle": Ink("i", "37"),
    "Connecting": Ink("c", "36"),
    "Connected": Ink("C", "36"),
    "Loading": Ink("l", "33"),
    "Loaded": Ink("L", "33"),
    "WarmingUp": Ink("w", "35"),
    "Ready": Ink("r", "32"),
    "Running": Ink("R", "1;32"),
    "ShuttingDown": Ink("s", "90"),
    "Failed": Ink("F", "1;31"),
}
_OTHER, _STALE_INK, _REFUSED_INK = Ink("?", "0"), Ink(STALE, "7;31"), Ink(REFUSED, "1;33")


def timeline(lanes: Item, findings: Sequence[Item], *, width: int, color: bool) -> Iterator[str]:
    """The lines: a row a lane, the axis, the legend, what is wrong, and how much is left out."""
    names = [_name(lane) for lane in lanes["lanes"]]
    room = min(max((len(each) for each in names), default=0), max(8, width // 3))
    columns = max(_LEAST_COLUMNS, width - room - len(_GAP))
    rows = [_row(lanes, lane, columns) for lane in lanes["lanes"]]
    for name, row in zip(names, rows, strict=True):
        yield (fitted(name, room) + _GAP + _painted(row, color=color)).rstrip()
    for line in _axis(lanes, columns):
        yield f"{' ' * room}{_GAP}{line}"
    if rows:
        yield ""
        yield from _legend(rows, width, color=color)
    yield from _told(lanes, findings)


def _name(lane: Item) -> str:
    indent = "  " if lane["sort"] == "runner" and lane["of"] else ""
    prefix = "node " if lane["sort"] == "node" else ""
    return indent + prefix + visible(str(lane["id"]))


def _row(lanes: Item, lane: Item, columns: int) -> list[Ink | None]:
    """In each column what fills most of it; but what is wrong is never hidden, nor is a failure."""
    first, records = lanes["first_index"], lanes["last_index"] - lanes["first_index"] + 1
    most: list[tuple[bool, bool, float]] = [(False, False, 0.0)] * columns
    row: list[Ink | None] = [None] * columns
    for each in stretches(lanes, lane):
        left, right = ((edge - first) * columns / records for edge in (each.begin, each.end))
        status = each.span["status"]
        for column in range(int(left), min(columns, int(right) + (right > int(right)))):
            share = min(right, column + 1) - max(left, column)
            rank = (bool(each.stale), status == "Failed", share)
            if rank > most[column]:
                most[column] = rank
                # Every other letter stays, to tell what it is that is stale.
                ink = INKS.get(status, _OTHER)
                row[column] = _STALE_INK if each.stale and (column - int(left)) % 2 == 0 else ink
    for mark in lane["refused"]:
        row[min(columns - 1, max(0, int((mark["index"] - first) * columns / records)))] = _REFUSED_INK
    return row


def _painted(row: Sequence[Ink | None], *, color: bool) -> str:
    if not color:
        return "".join(ink.letter if ink else " " for ink in row)
    pieces: list[str] = []
    now: Ink | None = None
    for ink in row:
        if ink != now:
            pieces.append(("\x1b[0m" if now else "") + (f"\x1b[{ink.color}m" if ink else ""))
            now = ink
        pieces.append(ink.letter if ink else " ")
    return "".join(pieces) + ("\x1b[0m" if now else "")


def _axis(lanes: Item, columns: int) -> Iterator[str]:
    yield "|" + "-" * (columns - 2) + "|"
    for begin, end in (("first_index", "last_index"), ("first_at", "last_at")):
        left, right = (visible(str(lanes[name])) if lanes[name] is not None else "" for name in (begin, end))
        if left or right:
            yield f"{left}{right:>{max(len(right) + 1, columns - len(left))}}"


def _legend(rows: Sequence[Sequence[Ink | None]], width: int, *, color: bool) -> Iterator[str]:
    used = {ink for row in rows for ink in row if ink is not None}
    known = [*INKS.items(), ("other", _OTHER), ("stale", _STALE_INK), ("report refused", _REFUSED_INK)]
    line, taken = "", 0
    for name, ink in known:
        if ink not in used:
            continue
        cells = 2 + len(name)
        if taken and taken + len(_GAP) + cells > width:
            yield line
            line, taken = "", 0
        line += (_GAP if taken else "") + f"{_painted([ink], color=color)} {name}"
        taken += cells + (len(_GAP) if taken else 0)
    yield line


def _told(lanes: Item, findings: Sequence[Item]) -> Iterator[str]:
    drawn = drawn_findings(lanes, findings)
    if drawn:
        yield f"\nfindings: {len(drawn)}"
    for each in drawn:
        over = "" if each["until_index"] is None else f", until {each['until_index']}"
        yield finding_line(each) + over
        yield visible(f"    remedy: {each['remedy']}")
    if elsewhere := len(findings) - len(drawn):
        yield f"\nfindings outside of these records: {elsewhere}"
    if lanes["left_out"]:
        yield f"\nleft out: the {lanes['left_out']} oldest spans that are over (--from and --to draw a part of the log)"
