"""What can go wrong, as values: exit codes, refusals, and the errors that reach the edge.

In core a refused wish is a value (`Refused`), an impossible state is an assertion. `ExoError` and its children are
raised only by the shell and the command line; each has one line, evidence and a hint that can be run.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol


class ExitCode(IntEnum):
    """What the process ends with; exo-exit-codes(7) has the same table."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    UNAVAILABLE = 5
    TIMEOUT = 6
    BAD_STATE = 7
    PENDING = 8
    INFEASIBLE = 9
    DIFFERS = 10
    CONFLICT = 11
    BAD_DATA = 12
    DIVERGED = 13
    INTERNAL = 70


@dataclass(frozen=True, slots=True)
class Refused:
    """A wish or a report that the decider turned down: a stable code, one sentence, and what to run instead."""

    code: str
    reason: str
    hint: str | None = None
    exit_code: ExitCode = ExitCode.FAILED
    details: dict[str, object] = field(default_factory=dict[str, object])


class ExoError(Exception):
    """Abstract: one line for people, a code for scripts, hints that can be run. Raise a child."""

    code = "failed"
    exit_code = ExitCode.FAILED

    def __init__(
        self,
        message: str,
        *hints: str,
        code: str | None = None,
        exit_code: ExitCode | None = None,
        details: dict[str, object] | None = None,
    ) -> None:
        """Keep the line, its hints, and what overrides the class (an answer from a node carries its own code)."""
        if type(self) is ExoError:
            raise TypeError("ExoError is abstract: raise one of its children")
        super().__init__(message)
        self.message = message
        self.hints = hints
        self.code = code or type(self).code
        self.exit_code = type(self).exit_code if exit_code is None else exit_code
        self.details: dict[str, object] = details or {}


class FailedError(ExoError):
    """The node refused, or the operation failed, and none below fits."""


class UsageError(ExoError):
    """A bad flag or argument."""

    code, exit_code = "usage", ExitCode.USAGE


class NotFoundError(ExoError):
    """The named thing does not exist."""

    code, exit_code = "not_found", ExitCode.NOT_FOUND


class AuthError(ExoError):
    """No permission, or a wrong key."""

    code, exit_code = "auth", ExitCode.AUTH


class UnavailableError(ExoError):
    """No node or no master can be reached, or a stream was lost."""

    code, exit_code = "unavailable", ExitCode.UNAVAILABLE


class WaitTimeoutError(ExoError):
    """A deadline passed; the message says what was last seen."""

    code, exit_code = "timeout", ExitCode.TIMEOUT


class BadStateError(ExoError):
    """What was waited for reached a terminal failure, or a generation ended in error."""

    code, exit_code = "bad_state", ExitCode.BAD_STATE


class InfeasibleError(ExoError):
    """No placement fits."""

    code, exit_code = "infeasible", ExitCode.INFEASIBLE


class ConflictError(ExoError):
    """A name or a revision is taken by something different."""

    code, exit_code = "conflict", ExitCode.CONFLICT


class BadDataError(ExoError):
    """An unreadable, damaged or newer file."""

    code, exit_code = "bad_data", ExitCode.BAD_DATA


class InternalError(ExoError):
    """A bug of ours, or a plugin that raised."""

    code, exit_code = "internal", ExitCode.INTERNAL


class Refusing(Protocol):
    """What says no as a value: `Refused` in a process, and its like between nodes."""

    @property
    def code(self) -> str:
        """For scripts."""

    @property
    def reason(self) -> str:
        """For people."""

    @property
    def hint(self) -> str | None:
        """What to run instead."""

    @property
    def exit_code(self) -> int:
        """What a command ends with."""

    @property
    def details(self) -> dict[str, object]:
        """For programs."""


_KINDS: dict[int, type[ExoError]] = {int(kind.exit_code): kind for kind in ExoError.__subclasses__()}


def kind_of(exit_code: int) -> type[ExoError]:
    """The class of an error by its exit code; what has no class of its own failed."""
    return _KINDS.get(exit_code, FailedError)


def error_for(refusing: Refusing) -> ExoError:
    """A refusal as the error to raise at the edge. An exit code of a newer version is a failure."""
    known = ExitCode(refusing.exit_code) if refusing.exit_code in set(ExitCode) else ExitCode.FAILED
    hints = (refusing.hint,) if refusing.hint else ()
    kind = kind_of(known)
    return kind(refusing.reason, *hints, code=refusing.code, exit_code=known, details=dict(refusing.details))
