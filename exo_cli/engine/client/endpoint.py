"""Where a node is, what a message to it looks like, and what its absence is called."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, cast

from exo_cli.engine.core.errors import ExitCode, ExoError, UnavailableError, kind_of

CONTROL = 1
CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 15.0
# A stream may be silent for long (a prompt of thousands of tokens); after this much of it the node is greeted anew.
SILENCE_SECONDS = 5.0

Message = dict[str, Any]
Answering = Generator[Message, None, Message]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a node is (`unix:/path` or `HOST:PORT`), and who said so (None: it is this home's own socket)."""

    address: str
    source: str | None = None

    def __str__(self) -> str:
        """As an error names it."""
        return f"{self.address} (from {self.source})" if self.source else self.address

    @property
    def socket_path(self) -> str | None:
        """The path of the local socket, when it is one."""
        return self.address.removeprefix("unix:") if self.address.startswith("unix:") else None


def local_endpoint() -> Endpoint:
    """The socket of the node that uses the same folders as this process."""
    from exo_cli.engine.paths import find_paths

    return Endpoint(f"unix:{find_paths().control_socket}")


def error_of(written: Message) -> ExoError:
    """The error that a node answered with, as one of ours."""
    number = written.get("exit", 1)
    code = ExitCode(number) if number in set(ExitCode) else ExitCode.FAILED
    kind = kind_of(code)
    hints = [str(hint) for hint in written.get("hints") or ()]
    return kind(
        str(written.get("message", "the node gave no reason")),
        *hints,
        code=str(written.get("code", kind.code)),
        exit_code=code,
        details=cast("dict[str, object]", written.get("details") or {}),
    )


def unavailable(endpoint: Endpoint, what: str, reason: str) -> UnavailableError:
    """No node, or no more. `reason` is for programs: absent, hung, lost, foreign."""
    if endpoint.source is None:
        hints = ("exo node start --detach",) if reason == "absent" else _after_a_local(reason)
    else:
        hints = (f"unset {endpoint.source}",) if endpoint.source.isupper() else ("exo node list",)
    return UnavailableError(
        f"{what} at {endpoint}",
        *hints,
        details={"endpoint": endpoint.address, "source": endpoint.source, "reason": reason},
    )


def _after_a_local(reason: str) -> tuple[str, ...]:
    """What helps with this home's own node when it hangs or has ended."""
    from exo_cli.engine.paths import find_paths

    try:
        pid = find_paths().lock.read_text().strip() if reason == "hung" else ""
    except (OSError, ValueError):
        pid = ""
    return (f"kill {pid}", "exo node logs") if pid.isdecimal() else ("exo node logs",)
