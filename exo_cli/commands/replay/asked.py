"""What was asked of `exo replay`: its options as one value, and which way of answering they choose."""

from dataclasses import dataclass
from functools import cached_property

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

    @property
    def has_questions(self) -> bool:
        """Whether something is asked that one history answers."""
        return self.asks_more_than()

    def asks_more_than(self, *names: str) -> bool:
        """Whether something else than this is asked that one history answers."""
        asked = {"at", "first", "last", "show", "explain", "why", "node"} - {*names}
        return self.is_telling or self.stats or any(getattr(self, name) is not None for name in asked)

    @property
    def point(self) -> int | str | None:
        """Where to stop: an index as a number; anything else is judged as a time."""
        if self.at is None or not self.at.removeprefix("-").isdecimal():
            return self.at
        return int(self.at)

    @cached_property
    def way(self) -> str:
        """The way of answering: what was asked for, or `telling`, or `comparing` of several logs.

        Raises:
            UsageError: two that go not together.
        """
        alone = {
            "--with or --without": bool(self.without or self.added),
            "--shrink": self.shrink is not None,
            "--bisect": self.bisect is not None,
            "--step": self.step,
            "--reducer": self.reducer is not None,
            "--export": self.export is not None,
            "--follow": self.follow,
            "--rerun": self.rerun,
            "--timeline or --html": self.timeline or self.html is not None,
        }
        chosen = [name for name, is_asked in alone.items() if is_asked]
        if self.redact and self.export is None:
            raise UsageError("--redact belongs to --export", "exo replay LOG --export FILE --redact")
        if len(chosen) > 1:
            raise UsageError(f"{' and '.join(chosen)} do not go together", "exo replay --help")
        return chosen[0] if chosen else "comparing" if len(self.logs) > 1 else "telling"
