"""Threads for decoding, by measurement: told times instead of taking any."""

import pytest

from exo_cli.engine.inference.pace import Pace


class Machine:
    """Tokens take what `cost` says for the number of threads applied."""

    def __init__(self, threads, cost):
        self.cost, self.applied, self.changes = cost, threads, []
        self.pace = Pace(threads, self._apply)

    def _apply(self, count):
        self.applied = count
        self.changes.append(count)

    def request(self, tokens):
        """The number of threads of each token."""
        self.pace.read()
        seen = []
        for token in range(tokens):
            if token == 0 or self.pace.due:
                self.pace.decode()
            seen.append(self.applied)
            self.pace.took(self.cost[self.applied])
        return seen


@pytest.mark.parametrize(("cost", "best"), [({4: 0.05, 2: 0.06}, 4), ({4: 0.6, 2: 0.06}, 2)])
def test_the_faster_number_is_kept_over_requests(cost, best):
    machine = Machine(4, cost)
    first = machine.request(40)
    assert set(first[:10]) == {2, 4}
    assert set(first[12:]) == {best}
    assert set(machine.request(20)) == {best}


def test_the_prompt_is_read_with_all_threads():
    machine = Machine(4, {4: 0.6, 2: 0.06})
    machine.request(40)
    assert machine.applied == 2
    machine.pace.read()
    assert machine.applied == 4


def test_a_machine_that_gets_busy_is_noticed_soon():
    machine = Machine(4, {4: 0.05, 2: 0.06})
    machine.request(40)
    machine.cost = {4: 0.9, 2: 0.1}
    seen = machine.request(20)
    assert seen[-1] == 2
    assert seen.count(4) <= 5


def test_one_that_gets_quiet_again_is_noticed_in_time():
    machine = Machine(4, {4: 0.9, 2: 0.1})
    machine.request(40)
    machine.cost = {4: 0.05, 2: 0.06}
    assert machine.request(200)[-1] == 4


def test_trials_get_rarer_while_nothing_changes():
    machine = Machine(4, {4: 0.05, 2: 0.06})
    seen = machine.request(4000)
    assert seen.count(2) < 40
    assert seen[-1000:].count(2) < 10


def test_one_thread_is_no_choice():
    machine = Machine(1, {1: 0.1})
    assert set(machine.request(100)) == {1}
    assert machine.changes == []
