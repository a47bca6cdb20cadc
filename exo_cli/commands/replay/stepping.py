"""Stepping: walking through the records of a log by keys, with the state beside them."""

from exo_cli.commands.replay.asked import Asked
from exo_cli.engine.core.errors import BadDataError, NotFoundError, UsageError
from exo_cli.engine.core.walking import Walk
from exo_cli.engine.replaying import trials
from exo_cli.engine.replaying.questions import from_the_end
from exo_cli.screen import Screen
from exo_cli.walk_view import walk_lines

AROUND, PAGE = 4, 20
_STEPS = {"right": 1, "down": 1, "l": 1, "j": 1, " ": 1, "left": -1, "up": -1, "h": -1, "k": -1,
          "page down": PAGE, "page up": -PAGE}  # fmt: skip


def step(asked: Asked) -> int:
    """Draw, and go where the keys say, until somebody leaves."""
    if not Screen.is_there():
        raise UsageError("--step needs a terminal on both sides", "exo replay LOG --events")
    index, _, _ = from_the_end(asked.path, asked.point, None, None)
    if isinstance(index, str):
        raise UsageError("--step goes to an index, not to a time", "exo replay LOG --step --at 97")
    recorded = trials.recorded(asked.path, skip_bad=asked.skip_bad, skip_unknown=asked.skip_unknown)
    if not recorded.placed:
        raise BadDataError(f"{asked.path} holds no records", "exo replay --help")
    walk = Walk(recorded, recorded.judge(recorded.placed).in_order())
    place = 0 if index is None else walk.place_of(index)
    if place is None:
        last = recorded.placed[-1].index
        raise NotFoundError(f"the log has no record {index}, its last one is {last}", "exo replay LOG --step --at -1")
    asked.host.console.end_progress()
    with Screen() as screen:
        _go(screen, walk, place)
    return 0


def _go(screen: Screen, walk: Walk, place: int) -> None:
    wanted, prompt, note = "", None, ""
    while True:
        columns, lines = screen.measure()
        stand = walk.stand(place, min(AROUND, max(1, lines // 6)))
        where = f"record {stand.rows[stand.here]['index']} ({place + 1} of {len(walk)}){note}"
        screen.draw(walk_lines(stand, where, columns, lines, prompt))
        key, note, step = screen.key(), "", None
        if key == "gone" or (key == "q" and prompt is None):
            return
        if prompt is not None:
            prompt, wanted, step = _typed(prompt, wanted, key)
        else:
            prompt = "" if key == "/" else None
            step = {"n": 1, "N": -1}.get(key) if wanted else None
            place = {"home": 0, "g": 0, "end": len(walk) - 1, "G": len(walk) - 1}.get(key, place + _STEPS.get(key, 0))
            place = min(max(place, 0), len(walk) - 1)
        if step is not None:
            found = walk.find(wanted, place, step)
            place, note = (place, f": nowhere {wanted!a}") if found is None else (found, "")


def _typed(prompt: str, wanted: str, key: str) -> tuple[str | None, str, int | None]:
    """What a key does to what is typed behind the slash: it, what is looked for, and in which direction from now."""
    match key:
        case "enter":
            return None, prompt or wanted, 1 if prompt or wanted else None
        case "escape":
            return None, wanted, None
        case "back":
            return prompt[:-1], wanted, None
        case _:
            return prompt + (key if len(key) == 1 else ""), wanted, None
