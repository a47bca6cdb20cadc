"""What was asked of `exo replay`: its options as one value."""

from dataclasses import dataclass, fields

from exo_cli.api import Host
from exo_cli.commands.replay.options import ReplayFormat
from exo_cli.engine.core.errors import UsageError


@dataclass(frozen=True)
class Asked:
    """The options as they were given."""

    host: Host
    logs: tuple[str, ...]
    at: str | None = None
    first: int | None = None
    last: int | None = None
    show: str | None = None
    explain: str | None = None
    why: str | None = None
    node: str | None = None
    events: bool = False
    filters: tuple[str, ...] = ()
    follow: bool = False
    stats: bool = False
    step: bool = False
    without: tuple[int, ...] = ()
    added: tuple[str, ...] = ()
    shrink: str | None = None
    bisect: str | None = None
    reducer: str | None = None
    export: str | None = None
    redact: bool = False
    rerun: bool = False
    timeline: bool = False
    html: str | None = None
    check: bool = False
    strict: bool = False
    skip_bad: bool = False
    skip_unknown: bool = False
    output: ReplayFormat = ReplayFormat.TEXT

    @property
    def path(self) -> str:
        """The one log; Raises UsageError when there are several."""
        if len(self.logs) > 1:
            raise UsageError("this takes one log", "exo replay --help")
        return self.logs[0]

    @property
    def lenient(self) -> dict[str, bool]:
        """What is passed over, as `replaying.replay` takes it."""
        return {"strict": self.strict, "skip_bad": self.skip_bad, "skip_unknown": self.skip_unknown}

    @property
    def is_telling(self) -> bool:
        """Whether the events themselves are printed."""
        return self.events or bool(self.filters)

    def is_given(self, name: str) -> bool:
        """Whether an option is not what it is by itself."""
        default = next(each.default for each in fields(self) if each.name == name)
        return bool(getattr(self, name) != default)

    @property
    def point(self) -> int | str | None:
        """Where to stop: an index as a number; anything else is judged as a time."""
        if self.at is None or not self.at.removeprefix("-").isdecimal():
            return self.at
        return int(self.at)
