"""Where a node is, what a message to it looks like, and what its absence is called."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
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
    hints: tuple[str, ...] = ("exo node logs",)
    if endpoint.source is not None:
        hints = (f"unset {endpoint.source}",) if endpoint.source.isupper() else ("exo node list",)
    elif reason == "absent":
        hints = ("exo node start --detach",)
    elif reason == "hung" and (pid := _holder()) is not None:
        what = f"the node is suspended (pid {pid}) and cannot answer" if is_suspended(pid) else what
        hints = (how_to_end(pid), *hints)
    return UnavailableError(
        f"{what} at {endpoint}",
        *hints,
        details={"endpoint": endpoint.address, "source": endpoint.source, "reason": reason},
    )


def how_to_end(pid: int) -> str:
    """What helps with a process of this machine that neither answers nor ends: a plain kill would wait with it."""
    return f"kill -CONT {pid}" if is_suspended(pid) else f"kill -9 {pid}"


def is_suspended(pid: int) -> bool:
    """Whether a process was stopped by a signal (Ctrl-Z, SIGSTOP); not known without /proc."""
    return process_state(pid) in {"T", "t"}


def process_state(pid: int) -> str | None:
    """The letter that the kernel has for what a process does, or None: it is not there, or there is no /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None


def _holder() -> int | None:
    """The process that holds this home."""
    from exo_cli.engine.paths import find_paths

    try:
        pid = find_paths().lock.read_text().strip()
    except (OSError, ValueError):
        return None
    return int(pid) if pid.isdecimal() else None
