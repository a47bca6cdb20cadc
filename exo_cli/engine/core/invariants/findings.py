"""Findings: what is wrong, since when, until when, and what to run; in constant memory, however long the log is."""

from dataclasses import dataclass, field

FINDINGS_KEPT = 1000
# An event that is wrong stays wrong, whatever came after it.
UNHEALED = frozenset(
    {
        "illegal_transition",
        "attempt_regression",
        "overwritten_instance",
        "index_gap",
        "term_regression",
        "unknown_event",
    }
)

Key = tuple[str, str]


@dataclass(slots=True)
class Finding:
    """Something that should not be. `until_index` is None while it lasts; `events` are the indexes that name it."""

    kind: str
    id: str
    since_index: int
    why: str
    remedy: str
    until_index: int | None = None
    events: list[int] = field(default_factory=list[int])

    def holds_at(self, index: int) -> bool:
        """Whether it holds behind this record."""
        until = over_at(self.since_index, self.until_index)
        return self.since_index <= index and (until is None or index < until)

    def item(self) -> dict[str, object]:
        """Plain values, as `exo replay` shows them."""
        return {
            "kind": self.kind,
            "id": self.id,
            "since_index": self.since_index,
            "until_index": self.until_index,
            "events": self.events,
            "why": self.why,
            "remedy": self.remedy,
        }


def over_at(since_index: int, until_index: int | None) -> int | None:
    """Before which record a finding is over: what was mended by the record that broke it holds for that one."""
    return None if until_index is None else max(until_index, since_index + 1)


def key_of(finding: Finding) -> Key:
    """By what a finding is the same one."""
    return finding.kind, finding.id


class Findings:
    """All that was found. Of what is over, the first FINDINGS_KEPT are kept and the others counted."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.lasting: dict[Key, Finding] = {}
        self.over: list[Finding] = []
        self.left_out = 0
        self._has_unhealed = False

    @property
    def is_grave(self) -> bool:
        """Whether a check fails: something lasts, or is of the kind that time does not heal."""
        return bool(self.lasting) or self._has_unhealed

    def add(self, finding: Finding) -> None:
        """Keep it; one that lasts ends by `end`."""
        if finding.until_index is None:
            self.lasting[finding.kind, finding.id] = finding
            return
        self._has_unhealed |= finding.kind in UNHEALED
        if len(self.over) < FINDINGS_KEPT:
            self.over.append(finding)
        else:
            self.left_out += 1

    def end(self, key: Key, index: int, events: list[int]) -> None:
        """From `index` on all is well again."""
        finding = self.lasting.pop(key)
        finding.until_index, finding.events = index, events
        self.add(finding)

    def in_order(self) -> list[Finding]:
        """By the index at which they began."""
        return sorted([*self.over, *self.lasting.values()], key=lambda finding: finding.since_index)
