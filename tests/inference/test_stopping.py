"""Stop strings, for every way to cut the stream."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exo_cli.engine.inference.stopping import StopFilter

LETTERS = st.text(alphabet="abcä", max_size=12)
STOPS = st.lists(st.text(alphabet="abcä", min_size=1, max_size=4), max_size=3)


def expected(text, stops):
    """The law, letter by letter: the match that is complete first, of those the longest."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


def through(pieces, stops):
    watching, out = StopFilter(stops), ""
    for piece in pieces:
        out += watching.feed(piece)
    return out + watching.release(), watching.stopped


@given(LETTERS, STOPS, st.lists(st.integers(0, 12), max_size=12))
def test_the_output_does_not_depend_on_the_cuts(text, stops, cuts):
    borders = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:stop] for start, stop in itertools.pairwise(borders)]
    assert through(pieces, stops) == expected(text, stops)


@given(LETTERS, STOPS)
def test_nothing_that_may_belong_to_a_stop_is_let_out(text, stops):
    watching, out = StopFilter(stops), ""
    for letter in text:
        out += watching.feed(letter)
        assert expected(text, stops)[0].startswith(out)
        held = text[len(out) :]
        assert watching.stopped or len(out) + len(held) == len(text)


@pytest.mark.parametrize(
    ("pieces", "stops", "out"),
    [
        (["be", "ta ga", "mma delta"], ["beta gamma"], ""),
        (["alpha be", "ta ga", "mma delta"], ["beta gamma"], "alpha "),
        (["beta ga", "ga"], ["beta gamma"], "beta gaga"),
        (["abcd"], ["abcd", "bc"], "a"),
        (["gr", "ü", "n"], ["ün"], "gr"),
        (["nothing to see"], [], "nothing to see"),
    ],
)
def test_cases(pieces, stops, out):
    assert through(pieces, stops)[0] == out


def test_text_without_a_match_is_not_held_back_needlessly():
    watching = StopFilter(["###"])
    assert watching.feed("abc#") == "abc"
    assert watching.feed("d") == "#d"
