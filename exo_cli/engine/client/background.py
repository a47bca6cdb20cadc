"""Nodes that a command starts: in the background to stay, or solo, for as long as somebody is connected to it."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from exo_cli.engine.client import Client
from exo_cli.engine.client.endpoint import Endpoint
from exo_cli.engine.core.errors import ExitCode, FailedError, UnavailableError
from exo_cli.engine.paths import made_folder, unusable

RIVAL_SECONDS = 3.0
LINES_SHOWN = 10
_ROOM_BYTES = 1 << 16


class NodeProcess:
    """A node started in the background, as a new session, so that it outlives this command and its terminal."""

    def __init__(self, log: Path, *arguments: str) -> None:
        """Start `exo node start ARGUMENTS` with its output in `log` (the one before is kept beside it).

        Raises:
            UsageError, AuthError, FailedError: nothing can be written there.
        """
        self.log = log
        with _begun(log) as output:
            # -P: a folder that happens to be called exo_cli where the command is run must not be taken for ours.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "exo_cli", "node", "start", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def wait_answers(self, endpoint: Endpoint, timeout_seconds: float, *, own: bool) -> Client:
        """A connection as soon as the node answers; `own` means this very process, not one that was quicker.

        Raises:
            FailedError: it ended first, with its exit code and the last lines that it printed, or it never answered.
        """
        end = time.monotonic() + timeout_seconds
        seen_ended = False
        while True:
            ended = self._process.poll()
            if (client := _connected(endpoint)) is not None:
                if not own or client.hello.get("pid") == self.pid:
                    return client
                client.close()
            if ended is not None and not seen_ended:
                seen_ended = True
                # In conflict with another one that holds the folders: that one answers in a moment, or is just leaving.
                end = time.monotonic() + (RIVAL_SECONDS if ended == ExitCode.CONFLICT and not own else 0.0)
            if time.monotonic() >= end:
                break
            time.sleep(0.02)
        if ended is not None:
            raise self._failed(f"the node ended with exit code {ended}", ended)
        self._process.terminate()
        raise self._failed(f"the node did not answer within {timeout_seconds:.0f} s", ExitCode.FAILED)

    def end(self) -> None:
        """Ask it to end, without waiting: nobody wants it any more."""
        self._process.terminate()

    def wait_ended(self, timeout_seconds: float) -> FailedError:
        """The error to raise for one that answered once and does not any more."""
        try:
            code = self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return self._failed("the node does not answer any more", ExitCode.FAILED)
        return self._failed(f"the node ended with exit code {code}", code)

    def _failed(self, what: str, code: int) -> FailedError:
        """What went wrong, with the last lines of its output."""
        try:
            last = self.log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
        except OSError:
            last = []
        if not last and (free := shutil.disk_usage(self.log.parent).free) < _ROOM_BYTES:
            last = [f"{self.log.parent} has {free} bytes of room left"]
        exit_code = ExitCode(code) if code in set(ExitCode) and code else ExitCode.FAILED
        return FailedError("\n".join((what, *last)), f"cat {self.log}", exit_code=exit_code)


@contextmanager
def started(log: Path, *arguments: str) -> Iterator[NodeProcess]:
    """A node in the background that stays, unless an interrupt comes before the block ends. Raises as NodeProcess."""
    # A Ctrl-C while it begins would leave a process that nobody knows: it counts from where somebody would end it.
    with _held_back() as let_go:
        process = NodeProcess(log, *arguments)
        try:
            let_go()
            yield process
        except KeyboardInterrupt:
            process.end()
            raise


@contextmanager
def _held_back() -> Iterator[Callable[[], None]]:
    """Interrupts wait until the function is called, which raises one that came; only the main thread gets any."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield lambda: None
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))

    def let_go() -> None:
        signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt

    try:
        yield let_go
    finally:
        signal.signal(signal.SIGINT, before)


def _begun(log: Path) -> BinaryIO:
    made_folder(log.parent)
    try:
        if log.exists():
            log.replace(log.with_name(log.name + ".1"))
        log.touch(mode=0o600)
        return log.open("wb")
    except OSError as error:
        raise unusable(log, error, "cannot write") from None


def start_solo(log: Path, endpoint: Endpoint, timeout_seconds: float) -> Client:
    """A connection to a solo node of one's own, or to that of another command that began at the same time."""
    end = time.monotonic() + timeout_seconds
    while True:
        process = NodeProcess(log, "--solo")
        try:
            return process.wait_answers(endpoint, end - time.monotonic(), own=False)
        except FailedError as error:
            if error.exit_code is not ExitCode.CONFLICT or time.monotonic() > end:
                raise


def _connected(endpoint: Endpoint) -> Client | None:
    try:
        return Client(endpoint)
    except UnavailableError as error:
        if error.details.get("reason") in {"absent", "lost"}:
            return None
        raise
