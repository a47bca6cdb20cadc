"""The script of the scripted engine, as text."""

import pytest

from exo_cli.engine.inference import EngineError
from exo_cli.engine.inference.script import Directive, read_script


def test_sections_and_phases():
    text = """
        # everybody
        token a
        on load sleep 0.5
        request 2:
        raise boom
        rank 1:
        on load abort
        always:
        token b
    """
    first, second = (read_script(text.splitlines(), rank) for rank in (0, 1))
    assert [directive.text for directive in first.body(1)] == ["a", "b"]
    assert [directive.verb for directive in first.body(2)] == ["raise"]
    assert [directive.verb for directive in first.phases["load"]] == ["sleep"]
    assert [directive.verb for directive in second.phases["load"]] == ["sleep", "abort"]


def test_nesting_and_text():
    script = read_script(['repeat forever repeat 2 token " a\\n"', "block hard"], 0)
    inner = Directive("repeat", count=2, inner=Directive("token", text=" a\n"))
    assert script.body(1) == [Directive("repeat", count=None, inner=inner), Directive("block", text="hard")]


@pytest.mark.parametrize(
    "line",
    [
        "tokens a", "sleep", "sleep x", "sleep -1", "rate nan", "block soft", "finish error", "abort now", "repeat 3",
        "repeat x token a", "once /tmp/x", 'token "a', 'token "a" b', "on fire token a", "request:", "always 3:",
        "on load",
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(line):
    with pytest.raises(EngineError, match="script line 2: "):
        read_script(["token fine", line], 0)
