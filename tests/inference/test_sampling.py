"""From logits to tokens."""

import mlx.core as mx
import pytest

from exo_cli.engine.core.tasks import Sampling
from exo_cli.engine.inference.sampling import Sampler

CHANCES = [0.5, 0.25, 0.15, 0.06, 0.04]


def logits():
    return mx.log(mx.array([CHANCES])) + 3


def drawn(seed=1, count=300, first=0, **sampling):
    sampler = Sampler(Sampling(**sampling), seed)
    return [sampler.pick(logits(), first + position)[0].item() for position in range(count)]


def test_greedy_takes_the_likeliest():
    assert set(drawn(temperature=0, count=5)) == {0}


def test_the_same_seed_is_the_same_text_and_another_is_not():
    assert drawn(seed=7, temperature=1) == drawn(seed=7, temperature=1)
    assert drawn(seed=7, temperature=1) != drawn(seed=8, temperature=1)


def test_a_position_is_drawn_alike_whatever_came_before():
    assert drawn(seed=7, temperature=1, first=100, count=50) == drawn(seed=7, temperature=1, count=150)[100:]


def test_the_dice_of_others_do_not_matter():
    before = drawn(seed=7, temperature=1, count=20)
    mx.random.seed(99)
    mx.eval(mx.random.uniform(shape=(5,)))
    assert drawn(seed=7, temperature=1, count=20) == before


def test_chances_are_met():
    tokens = drawn(temperature=1, count=3000)
    for token, chance in enumerate(CHANCES):
        assert tokens.count(token) / len(tokens) == pytest.approx(chance, abs=0.035)


@pytest.mark.parametrize(
    ("sampling", "left"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 99}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.7}, {0, 1}),
        ({"top_p": 0.01}, {0}),
        ({"min_p": 0.25}, {0, 1, 2}),
        ({"top_p": 0.95, "top_k": 3}, {0, 1, 2}),
    ],
)
def test_filters_leave_what_they_should(sampling, left):
    assert set(drawn(temperature=1, count=600, **sampling)) == left


def test_a_cold_temperature_is_nearly_greedy():
    assert set(drawn(temperature=0.05)) == {0}
