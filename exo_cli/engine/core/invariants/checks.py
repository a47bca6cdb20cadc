"""Checks: the rules over a log, event by event, at a cost that does not depend on the size of the state.

`before` is called with the state that an event meets, `after` with the one that it leaves.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, get_args

from exo_cli.engine.core.events import (
    Event,
    NodeGatheredInfo,
    NodeJoined,
    NodeTimedOut,
    RunnerStatusUpdated,
    TermStarted,
)
from exo_cli.engine.core.invariants.findings import Finding, Findings, Key
from exo_cli.engine.core.invariants.hard import JUDGED, wrong
from exo_cli.engine.core.invariants.links import LINKING, Links
from exo_cli.engine.core.invariants.rules import RULES, Rule, broken
from exo_cli.engine.core.invariants.stories import LEAVING, Stories, left, named
from exo_cli.engine.core.runners import RunnerShuttingDown
from exo_cli.engine.core.state import State

# The master speaks for a runner that was silent for half of this; what is not settled then, nobody settles.
SETTLED = timedelta(seconds=60)
_GHOST, _STALE = "ghost_node", "stale_runner"

_RULES_OF: dict[type[Event], tuple[Rule, ...]] = {
    event: tuple(rule for rule in RULES if event in rule.events) for event in get_args(get_args(Event)[0])
}


@dataclass(slots=True)
class _Breach:
    """A rule that does not hold of something. `said`: it is a finding. `settled`: it is on its way out."""

    rule: Rule
    id: str
    since_index: int
    since: str
    deadline: datetime | None = None
    said: bool = False
    settled: bool = False

    @property
    def key(self) -> Key:
        return (self.rule.kind, self.id)


class Touched(NamedTuple):
    """What to look at after an event: rules with ids, and what left the state."""

    ids: Sequence[tuple[Rule, Iterable[str]]]
    left: Sequence[Key]


NOTHING = Touched((), ())


class Checks:
    """See the module. A log without times (`timed` is false) is given with `at` None."""

    def __init__(self, state: State, findings: Findings, *, timed: bool = True) -> None:
        """Begin where the log begins."""
        self.findings = findings
        self._timed = timed
        self._stories = Stories()
        self._breaches: dict[Key, _Breach] = {}
        self._waiting: deque[_Breach] = deque()
        self._unjoined: set[str] = set()
        self.adopt(state)

    def adopt(self, state: State) -> None:
        """Go on from this state, whatever was before: the full scan, once. What is wrong in it began before it."""
        self._links = Links(state)
        self._is_clock_set = False
        now = broken(state)
        for key, breach in list(self._breaches.items()):
            if key not in now:
                self._mend(breach, state.index)
        for rule in RULES:
            for kind, each in sorted(now):
                if kind == rule.kind and (kind, each) not in self._breaches:
                    self._breaches[kind, each] = _Breach(rule, each, state.index, "since before this log begins")
        for node_id in sorted(self._unjoined - state.nodes.keys()):
            self._end_ghost(node_id, state.index)

    @property
    def broken(self) -> set[Key]:
        """Kind and id of everything that is not as it must be now, finding or not yet."""
        return set(self._breaches)

    def longest_story(self) -> tuple[Key, int] | None:
        """What most events are about, and how many."""
        return self._stories.longest()

    def before(self, state: State, event: Event, index: int, at: datetime | None) -> Touched:
        """Judge an event by the state that it meets, and say what to look at when it is applied."""
        kind = type(event)
        if at is not None:
            if not self._is_clock_set or kind is TermStarted:
                self._start_clock(at)
            elif self._waiting:
                self.pass_time(state, at)
        for key in named(event):
            self._stories.add(key, index)
        if kind in JUDGED and (verdict := wrong(state, event)) is not None:
            story = self._stories.of(verdict.about)
            _, name = verdict.about
            self.findings.add(Finding(verdict.kind, name, index, verdict.why, verdict.remedy, index, story))
        ids = [(rule, ids) for rule in _RULES_OF[kind] if (ids := rule.touched(self._links, state, event))]
        if kind in LINKING:
            self._links.follow(state, event)
        # Of very many records: the status of a runner that stays touches nothing, and nothing leaves with it.
        if kind not in LEAVING or (not ids and kind is RunnerStatusUpdated):
            return Touched(ids, ()) if ids else NOTHING
        return Touched(ids, left(state, event))

    def after(self, state: State, touched: Touched, event: Event, index: int, at: datetime | None) -> None:
        """Look at what the event touched, in the state that it left."""
        if at is None and isinstance(event, RunnerStatusUpdated):
            self._go_on(state, event)
        if touched is NOTHING:
            return
        for rule, ids in touched.ids:
            for each in ids:
                breach = self._breaches.get((rule.kind, each))
                if rule.holds(state, each):
                    if breach is not None:
                        self._mend(breach, index)
                elif breach is None:
                    self._break(state, _Breach(rule, each, index, f"since record {index} ({event.type})"), event, at)
        if at is not None and isinstance(event, NodeJoined | NodeGatheredInfo | NodeTimedOut):
            self._follow_members(state, event, index)
        for key in touched.left:
            self._stories.end(key)

    def pass_time(self, state: State, at: datetime) -> None:
        """Time has passed without an event."""
        if self._waiting and self._is_late(self._waiting[0], at):
            self._expire(state, at)

    def end(self, state: State) -> None:
        """The log ends here: without times, this is the deadline. The stories of what lasts are told up to here."""
        for breach in self._breaches.values():
            if not (self._timed or breach.said or breach.settled) and breach.rule.ends:
                self._say(state, breach)
            if breach.said:
                self.findings.lasting[breach.key].events = self._stories.of((breach.rule.entity, breach.id))
        for node_id in self._unjoined:
            self.findings.lasting[_GHOST, node_id].events = self._stories.of(("node", node_id))

    def _break(self, state: State, breach: _Breach, event: Event, at: datetime | None) -> None:
        self._breaches[breach.key] = breach
        if breach.rule.at_once(state, event):
            self._say(state, breach)
        elif at is not None:
            breach.deadline = at + SETTLED
            self._waiting.append(breach)

    def _mend(self, breach: _Breach, index: int) -> None:
        del self._breaches[breach.key]
        if breach.said:
            self.findings.end(breach.key, index, self._stories.of((breach.rule.entity, breach.id)))

    def _say(self, state: State, breach: _Breach) -> None:
        breach.said = True
        rule = breach.rule
        why = f"{rule.entity} {breach.id} {rule.now(state, breach.id)}; wrong {breach.since}"
        remedy = rule.remedy.replace("{id}", breach.id)
        self.findings.add(Finding(rule.kind, breach.id, breach.since_index, why, remedy))

    def _go_on(self, state: State, event: RunnerStatusUpdated) -> None:
        """Without times: the next status of a stale runner tells whether it is on its way out."""
        breach = self._breaches.get((_STALE, event.runner_id))
        if breach is not None and not breach.said and event.runner_id in state.runners:
            breach.settled = isinstance(event.runner_status, RunnerShuttingDown)
            if not breach.settled:
                self._say(state, breach)

    def _start_clock(self, at: datetime) -> None:
        """A new master begins to wait anew: nobody could settle anything before it, and its clock is another one."""
        self._is_clock_set = True
        self._waiting = deque(breach for breach in self._breaches.values() if not breach.said)
        for breach in self._waiting:
            breach.deadline = at + SETTLED

    def _is_late(self, breach: _Breach, at: datetime) -> bool:
        return breach.deadline is not None and breach.deadline < at

    def _expire(self, state: State, at: datetime) -> None:
        while self._waiting and self._is_late(self._waiting[0], at):
            breach = self._waiting.popleft()
            if not breach.said and self._breaches.get(breach.key) is breach:
                self._say(state, breach)

    def _follow_members(self, state: State, event: NodeJoined | NodeGatheredInfo | NodeTimedOut, index: int) -> None:
        """A node becomes a member by joining; late facts of one that is gone only bring its ghost back.

        The public system's logs, which have no times, know no joining: there this is how a node begins.
        """
        node_id = event.node_id
        if not isinstance(event, NodeGatheredInfo):
            if node_id in self._unjoined:
                self._end_ghost(node_id, index)
        elif state.nodes[node_id].since_index == index:
            self._unjoined.add(node_id)
            why = (
                f"node {node_id} is in the state by its facts alone, since record {index}: it is gone, or never joined"
            )
            self.findings.add(Finding(_GHOST, node_id, index, why, "exo node list"))

    def _end_ghost(self, node_id: str, index: int) -> None:
        self._unjoined.discard(node_id)
        self.findings.end((_GHOST, node_id), index, self._stories.of(("node", node_id)))
