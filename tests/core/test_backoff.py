"""The keyed back-off: 0.5 s doubling to 10 s, each key for itself, forgotten by success."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from exo_cli.engine.core.backoff import KeyedBackoff


def test_waits_double_up_to_the_cap():
    backoff, now, waits = KeyedBackoff(), 100.0, []
    for _ in range(8):
        backoff.record_failure("k", now)
        waits.append(backoff.until("k") - now)
        now = backoff.until("k")
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    assert backoff.attempts("k") == 8


def test_the_first_try_is_free_and_keys_are_apart():
    backoff = KeyedBackoff()
    assert backoff.may_proceed("k", 0.0)
    assert backoff.attempts("k") == 0
    assert backoff.next_time(0.0) == inf
    backoff.record_failure("k", 0.0)
    assert not backoff.may_proceed("k", 0.49)
    assert backoff.may_proceed("k", 0.5)
    assert backoff.may_proceed("other", 0.0)
    assert backoff.keys() == {"k"}
    assert backoff.next_time(0.0) == 0.5


def test_success_resets_and_forbidden_waits_for_it():
    backoff = KeyedBackoff()
    backoff.forbid("k")
    assert not backoff.may_proceed("k", 1e12)
    backoff.reset("k")
    backoff.reset("never failed")
    assert backoff.may_proceed("k", 0.0)
    backoff.record_failure("k", 0.0)
    assert backoff.until("k") == 0.5


def test_a_thousand_failures_do_not_overflow():
    backoff = KeyedBackoff()
    for _ in range(2000):
        backoff.record_failure("k", 0.0)
    assert backoff.until("k") == 10.0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 1e6)), max_size=30))
def test_no_key_ever_waits_longer_than_the_cap(failures):
    backoff = KeyedBackoff(base_seconds=0.25, cap_seconds=3.0)
    for key, now in failures:
        backoff.record_failure(key, now)
        assert now + 0.25 <= backoff.until(key) <= now + 3.0
