"""Which options go together: every pair of them chooses a way or is refused, and no way lets one through unheard."""

from dataclasses import fields
from itertools import combinations
from types import SimpleNamespace

import pytest

from exo_cli.commands.replay.asked import Asked
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.commands.replay.ways import COMPARING, TELLING, WAYS, way_of
from exo_cli.engine.core.errors import UsageError

HOST = SimpleNamespace()
GIVEN = {
    "without": (1,),
    "added": ("1=x",),
    "filters": ("type=x",),
    "first": 1,
    "last": 2,
    "output": ReplayFormat.JSON,
    **dict.fromkeys(("at", "show", "explain", "why", "node", "shrink", "bisect", "reducer", "export", "html"), "x"),
}
NAMES = [each.name for each in fields(Asked) if each.name not in {"host", "logs"}]


def asked(*names, logs=("a",)):
    return Asked(HOST, logs, **{name: GIVEN.get(name, True) for name in names})


def test_every_option_is_known_to_some_way():
    known = {name for way in (*WAYS, TELLING, COMPARING) for name in (*way.chosen_by, *way.takes)}
    assert known == set(NAMES)


@pytest.mark.parametrize(("one", "other"), list(combinations(NAMES, 2)))
def test_a_pair_is_taken_by_the_way_or_refused(one, other):
    choosers = [way for way in WAYS if {one, other} & {*way.chosen_by}] or [TELLING]
    if any({one, other} <= {*way.chosen_by, *way.takes} for way in choosers):
        way = way_of(asked(one, other))
        assert {one, other} <= {*way.chosen_by, *way.takes}
    else:
        with pytest.raises(UsageError):
            way_of(asked(one, other))


@pytest.mark.parametrize(
    ("names", "way"), [((), COMPARING), (("check",), COMPARING), (("explain", "check"), COMPARING)]
)
def test_several_logs_are_compared(names, way):
    assert way_of(asked(*names, logs=("a", "b"))) is way


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("redact",), "--redact belongs to --export"),
        (("export", "at"), "--export and --at do not go together: beside it goes --redact, --from, --to"),
        (("bisect", "check"), "--bisect and --check do not go together: beside it goes nothing"),
        (("follow", "last"), "--follow and --to do not go together"),
    ],
)
def test_what_does_not_go_together_is_named(names, said):
    with pytest.raises(UsageError, match=said):
        way_of(asked(*names))
