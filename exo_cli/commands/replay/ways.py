"""Ways of answering: which options choose each, which others it takes, and the function that answers."""

from dataclasses import fields
from typing import Final, NamedTuple

from exo_cli.commands.replay.asked import Asked
from exo_cli.engine.core.errors import UsageError

_LENIENT: Final = ("skip_bad", "skip_unknown")
_NAMES: Final = {"first": "--from", "last": "--to", "filters": "--filter", "added": "--with", "output": "--output"}


class Way(NamedTuple):
    """`function` stands in a module beside this one, which is imported when it is asked for."""

    function: str
    chosen_by: tuple[str, ...]
    takes: tuple[str, ...]


TELLING: Final = Way(
    "telling:tell",
    (),
    ("at", "first", "last", "show", "explain", "why", "node", "events", "filters", "stats", "check", "strict",
     "output", *_LENIENT),
)  # fmt: skip
COMPARING: Final = Way("comparing:tell", (), ("explain", "check", "strict", "output", *_LENIENT))
WAYS: Final = (
    Way("following:follow", ("follow",), ("first", "events", "filters", "output")),
    Way("trying:edit", ("without", "added"), ("output",)),
    Way("trying:shrink", ("shrink",), ()),
    Way("trying:bisect", ("bisect",), ()),
    Way("reducing:tell", ("reducer",), ("output", *_LENIENT)),
    Way("stepping:step", ("step",), ("at", *_LENIENT)),
    Way("exporting:write", ("export",), ("redact", "first", "last", *_LENIENT)),
    Way("rerunning:rerun", ("rerun",), ("output",)),
    Way(
        "looking:look", ("timeline", "html"),
        ("at", "first", "last", "check", "strict", "output", *_LENIENT),
    ),
)  # fmt: skip


def way_of(asked: Asked) -> Way:
    """The way that the options choose.

    Raises:
        UsageError: two of them, or one with an option that it does not take.
    """
    given = [each.name for each in fields(Asked) if each.name not in {"host", "logs"} and asked.is_given(each.name)]
    chosen = [way for way in WAYS if any(name in given for name in way.chosen_by)]
    way = chosen[0] if chosen else COMPARING if len(asked.logs) > 1 else TELLING
    others = [name for name in given if name not in (*way.chosen_by, *way.takes)]
    if not others:
        return way
    if way is COMPARING:
        raise UsageError("of several logs only --check or --explain can be asked", "exo replay LOG LOG --explain ID")
    if way is TELLING:
        owner = next(each for each in WAYS if others[0] in each.takes)
        raise UsageError(f"{_option(others[0])} belongs to {_option(owner.chosen_by[0])}", "exo replay --help")
    choosing = next(name for name in given if name in way.chosen_by)
    takes = ", ".join(map(_option, way.takes)) or "nothing"
    raise UsageError(
        f"{_option(choosing)} and {_option(others[0])} do not go together: beside it goes {takes}", "exo replay --help"
    )


def _option(name: str) -> str:
    return _NAMES.get(name, f"--{name.replace('_', '-')}")
