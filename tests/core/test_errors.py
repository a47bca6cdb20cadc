"""What can go wrong: every error has a code and an exit code, and the abstract one cannot be raised."""

import pytest

from exo_cli.engine.core.errors import ExitCode, ExoError, FailedError, InfeasibleError, Refused, error_for, kind_of
from exo_cli.engine.core.wire import Refusal

CHILDREN = ExoError.__subclasses__()


def test_the_abstract_error_cannot_be_raised():
    with pytest.raises(TypeError, match="abstract"):
        raise ExoError("no")


@pytest.mark.parametrize("child", CHILDREN, ids=lambda each: each.__name__)
def test_every_child_has_its_codes(child):
    error = child("one line", "exo runners", details={"needed": 1})
    assert (error.message, error.hints, str(error)) == ("one line", ("exo runners",), "one line")
    assert error.details == {"needed": 1}
    assert isinstance(error.exit_code, ExitCode)
    assert error.exit_code != ExitCode.OK
    assert error.code
    assert child.__name__.endswith("Error")
    assert child.__doc__


def test_codes_are_not_shared():
    assert len({each.code for each in CHILDREN}) == len({each.exit_code for each in CHILDREN}) == len(CHILDREN)


def test_an_answer_from_a_node_brings_its_own_codes():
    error = FailedError("no", code="read_only", exit_code=ExitCode.UNAVAILABLE)
    assert (error.code, error.exit_code) == ("read_only", ExitCode.UNAVAILABLE)
    assert InfeasibleError("no").exit_code == ExitCode.INFEASIBLE == 9


def test_exit_codes_are_the_documented_numbers():
    assert {each.name: int(each) for each in ExitCode} == {
        "OK": 0, "FAILED": 1, "USAGE": 2, "NOT_FOUND": 3, "AUTH": 4, "UNAVAILABLE": 5, "TIMEOUT": 6, "BAD_STATE": 7,
        "PENDING": 8, "INFEASIBLE": 9, "DIFFERS": 10, "CONFLICT": 11, "BAD_DATA": 12, "DIVERGED": 13, "INTERNAL": 70,
    }  # fmt: skip


def test_a_refusal_is_a_value():
    assert Refused("x", "why") == Refused("x", "why")
    assert Refused("x", "why").exit_code == ExitCode.FAILED


def test_every_class_is_found_by_its_exit_code_and_the_rest_failed():
    assert {kind_of(int(each.exit_code)) for each in CHILDREN} == set(CHILDREN)
    assert {kind_of(code) for code in (0, 8, 10, 13, 99, -1)} == {FailedError}


def test_a_refusal_becomes_the_error_of_its_exit_code():
    error = error_for(Refused("too_big", "no room", "exo node list", ExitCode.INFEASIBLE, {"needed": 1}))
    assert isinstance(error, InfeasibleError)
    assert (error.code, error.message, error.hints, error.details) == (
        "too_big", "no room", ("exo node list",), {"needed": 1},
    )  # fmt: skip
    between = error_for(Refusal(code="odd", reason="of a newer version", exit_code=99))
    assert (type(between), between.exit_code, between.hints) == (FailedError, ExitCode.FAILED, ())
    assert error_for(Refused("later", "not yet", None, ExitCode.PENDING)).exit_code == ExitCode.PENDING
