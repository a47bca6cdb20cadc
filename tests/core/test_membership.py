"""Membership: signs of life by incarnation, silence past the deadline, suspicion after three missed pulses."""

from exo_cli.engine.core.membership import LOST_SECONDS, PULSE_SECONDS, SUSPECT_SECONDS, Membership


def test_silence():
    members = Membership()
    members.hear("a", 1, "a:1", 0.0)
    assert members.silent(LOST_SECONDS) == []
    assert members.silent(LOST_SECONDS + 0.1) == ["a"]
    members.hear("a", 1, "a:1", LOST_SECONDS)
    assert members.silent(LOST_SECONDS + 0.1) == []


def test_suspicion_after_three_missed_pulses():
    assert SUSPECT_SECONDS == 3 * PULSE_SECONDS
    members = Membership()
    assert not members.is_suspect("a", 100.0), "of whom nothing was heard there is no opinion"
    members.hear("a", 1, "a:1", 0.0)
    assert not members.is_suspect("a", SUSPECT_SECONDS)
    assert members.is_suspect("a", SUSPECT_SECONDS + 0.01)


def test_an_older_incarnation_is_not_heard():
    members = Membership()
    members.hear("a", 2, "a:2", 0.0)
    assert members.hear("a", 1, "a:1", 5.0) is None
    assert members.heard["a"].address == "a:2"
    assert members.heard["a"].at == 0.0
    assert members.hear("a", 3, "a:3", 6.0) is not None


def test_live_figures_stay_within_an_incarnation():
    members = Membership()
    sign = members.hear("a", 1, "a:1", 0.0)
    assert sign is not None
    sign.open_streams = 4
    again = members.hear("a", 1, "a:1", 1.0)
    assert again is not None
    assert again.open_streams == 4
    anew = members.hear("a", 2, "a:1", 2.0)
    assert anew is not None
    assert anew.open_streams == 0


def test_who_slept_holds_it_against_nobody():
    members = Membership()
    members.woke(0.0)
    members.hear("a", 1, "a:1", 0.5)
    members.woke(1.0)
    members.woke(121.0)
    assert members.silent(121.0) == []
    for now in range(122, 140):
        members.woke(float(now))
    assert members.silent(139.0) == ["a"]


def test_who_is_expected_and_never_comes_is_silent():
    members = Membership()
    members.hear("a", 1, "a:1", 0.0)
    members.expect(["a", "b"], 5.0)
    assert members.silent(LOST_SECONDS + 1.0) == ["a"]
    assert members.silent(LOST_SECONDS + 5.1) == ["a", "b"]
    assert members.hear("b", 0, "b:1", 20.0) is not None, "any incarnation may come"
    members.forget("a")
    members.forget("a")
    assert members.silent(1000.0) == ["b"]
