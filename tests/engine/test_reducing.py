"""Reducing: another reducer by its name, from a module beside the command, and what is said when it is none."""

import sys
from pathlib import Path

import pytest

from exo_cli.engine.core.errors import FailedError, UsageError
from exo_cli.engine.replaying.reducing import part
from exo_cli.engine.replaying.source import Lenient

STALE = "tests/data/recordings/stale-after-crash.bin"
STRICT = Lenient(skip_bad=False, skip_unknown=False)
MODULE = """
from exo_cli.engine.core.reducer import apply

class Mine:
    @staticmethod
    def tidy(state, record):
        apply(state, record)
        if record.event.type == "InstanceDeleted":
            for each in [each for each in state.runners if state.instance_of_runner(each) is None]:
                del state.runners[each]

def raises(state, record):
    if record.index == 7:
        raise KeyError("seven")
    apply(state, record)

nothing = 3
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with a module in it, in which the command is run."""
    log = Path(STALE).resolve()
    (tmp_path / "some_reducer.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "some_reducer", raising=False)
    return str(log)


def test_ours_beside_itself(here):
    told = part(here, "exo_cli.engine.core.reducer:apply", STRICT)
    assert (told["exit_code"], told["item"]["parts_at"]) == (0, None)


def test_the_delete_that_left_a_runner_is_where_they_part(here):
    # README.md of the recordings: the instance of the stale runner was deleted at 74.
    told = part(here, "some_reducer:Mine.tidy", STRICT)
    assert (told["exit_code"], told["item"]["parts_at"]["index"]) == (10, 74)
    assert "runners.runner-2217beaddbc496cb" in [each["path"] for each in told["item"]["at_end"]]


def test_one_that_raises_is_told_with_the_record(here):
    with pytest.raises(FailedError, match="raised at record 7: KeyError") as caught:
        part(here, "some_reducer:raises", STRICT)
    assert caught.value.hints == (f"exo replay {here} --events --from 7 --to 7",)


@pytest.mark.parametrize(
    "name", ["some_reducer", "some_reducer:", ":apply", "some_reducer:nothing", "no_such:f", "a:b:c"]
)
def test_what_is_no_reducer_is_a_usage_error(here, name):
    with pytest.raises(UsageError):
        part(here, name, STRICT)
