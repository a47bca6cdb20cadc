"""The scripted engine: does on cue what a real one does by accident. The instance says `scripted:FILE`.

The format of the file is described in `exo_cli.engine.inference.script`. Tokens go through the same stop strings and
the same limit on their number as those of a model; a cancel is obeyed at every step except in `block hard`. It needs
no model and no mlx.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import cast

from exo_cli.engine.core.tasks import ChatParams, FinishReason, Usage
from exo_cli.engine.inference import CalledOffError, Cancelled, EngineError, Loaded, Piece, Progress, Result, Setting
from exo_cli.engine.inference.script import Directive, read_script
from exo_cli.engine.inference.stopping import StopFilter

_POLL_SECONDS = 0.005
_MEET_SECONDS = 30.0


class _FinishedError(Exception):
    """The request ends here, with a reason."""

    def __init__(self, reason: FinishReason) -> None:
        super().__init__(reason)
        self.reason = reason


class ScriptedEngine:
    """Follows a script. Requests are counted from 1 for the life of the process."""

    def __init__(self, setting: Setting, argument: str) -> None:
        """Read the script named by `argument`."""
        self._setting = setting
        path = Path(argument)
        if not argument or not path.is_file():
            raise EngineError(f"the script {argument!a} is not there", "bad_script")
        self._script = read_script(path.read_text().splitlines(), setting.shard.rank)
        self._served = 0

    def connect(self, ring: Sequence[str], rank: int) -> None:
        """Wait until every rank of the group is there, after what the script does."""
        self._phase("connect", _never)
        if len(ring) > 1:
            _meet(ring, rank)

    def load(self, model_path: Path, on_progress: Progress, cancelled: Cancelled) -> Loaded:
        """Read nothing; layers count up after what the script does."""
        total = len(self._setting.shard.layers)
        self._phase("load", cancelled, lambda loaded: on_progress(min(loaded, total), total))
        for loaded in range(1, total + 1):
            on_progress(loaded, total)
        return Loaded(model_bytes=0, note="scripted: no weights")

    def warmup(self, cancelled: Cancelled) -> None:
        """Do what the script says for it."""
        self._phase("warmup", cancelled)

    def skip(self, task_id: str) -> None:
        """Nobody waits."""

    def follow(self, task_id: str) -> None:
        """Return at once; the script may say more."""
        self._phase("follow", _never)

    def close(self) -> None:
        """Do what the script says for it."""
        self._phase("stop", _never)

    def generate(self, task_id: str, params: ChatParams, cancelled: Cancelled) -> Iterator[Piece | Result]:
        """Follow the body of this request."""
        self._served += 1
        play = _Play(params, cancelled, _no_layers)
        reason: FinishReason = "stop"
        try:
            for text in play.run(self._script.body(self._served)):
                yield Piece(play.filter.feed(text), 1)
                play.after_token()
        except _FinishedError as finished:
            reason = finished.reason
        if held := play.filter.release():
            yield Piece(held, 0)
        yield Result(reason, play.usage(), params.sampling.seed)

    def _phase(self, phase: str, cancelled: Cancelled, layers: Callable[[int], None] | None = None) -> None:
        play = _Play(None, cancelled, layers or _no_layers)
        try:
            for _ in play.run(self._script.phases.get(phase, [])):
                pass
        except _FinishedError as finished:
            if finished.reason == "cancelled":
                raise CalledOffError(phase) from None


def _meet(ring: Sequence[str], rank: int) -> None:
    """Return when all ranks are in here: each listens at its own endpoint and reaches all others.

    Raises:
        EngineError: somebody did not come within `_MEET_SECONDS`.
    """
    addresses = [(host.strip("[]"), int(port)) for host, _, port in (each.rpartition(":") for each in ring)]
    end = time.monotonic() + _MEET_SECONDS
    family = socket.AF_INET6 if ":" in addresses[rank][0] else socket.AF_INET
    with socket.create_server(addresses[rank], family=family, backlog=len(ring)) as server:
        for other in (address for at, address in enumerate(addresses) if at != rank):
            while True:
                try:
                    socket.create_connection(other, timeout=1.0).close()
                    break
                except OSError as error:
                    if time.monotonic() > end:
                        raise EngineError(f"no rank at {other[0]}:{other[1]}: {error}", "no_group") from None
                    time.sleep(_POLL_SECONDS)
        for _ in ring[1:]:
            server.settimeout(max(0.001, end - time.monotonic()))
            try:
                server.accept()[0].close()
            except TimeoutError:
                raise EngineError("not all ranks came", "no_group") from None


def _never() -> bool:
    return False


def _no_layers(_loaded: int) -> None:
    """Layers are counted only while loading."""


class _Play:
    """One run through directives: a request, or a phase."""

    def __init__(self, params: ChatParams | None, cancelled: Cancelled, layers: Callable[[int], None]) -> None:
        self._params = params
        self._cancelled = cancelled
        self._layers = layers
        self._began = time.perf_counter()
        self._first: float | None = None
        self._tokens = 0
        self._rate = 0.0
        self._next = self._began
        self._limit = params.sampling.max_tokens if params else None
        self.filter = StopFilter(params.stop if params else ())

    def run(self, directives: Sequence[Directive]) -> Iterator[str]:
        """The tokens that come of it; raises what the script says."""
        for directive in directives:
            self._check()
            yield from self._do(directive)

    def after_token(self) -> None:
        """The limits that any engine obeys."""
        self._first = self._first or time.perf_counter() - self._began
        self._tokens += 1
        if self.filter.stopped:
            raise _FinishedError("stop")
        if self._limit is not None and self._tokens >= self._limit:
            raise _FinishedError("length")

    def usage(self) -> Usage:
        """Counts and times so far; a prompt has as many tokens as words."""
        words = sum(len(message.content.split()) for message in self._params.messages) if self._params else 0
        seconds = time.perf_counter() - self._began
        return Usage(prompt_tokens=words, tokens=self._tokens, first_token_seconds=self._first, seconds=seconds)

    def _do(self, directive: Directive) -> Iterator[str]:
        match directive.verb:
            case "token":
                yield self._paced(directive.text.replace("{n}", str(self._tokens)))
            case "echo":
                for word in self._said():
                    self._check()
                    yield self._paced(word)
            case "rate":
                self._rate, self._next = directive.number, time.perf_counter()
            case "repeat" if directive.inner:
                for _ in repeat(None) if directive.count is None else range(directive.count):
                    self._check()
                    yield from self._do(directive.inner)
            case "once" if directive.inner:
                if not Path(directive.text).exists():
                    Path(directive.text).touch()
                    yield from self._do(directive.inner)
            case _:
                self._act(directive)

    def _act(self, directive: Directive) -> None:
        match directive.verb:
            case "sleep":
                self._wait(time.perf_counter() + directive.number)
            case "block" if directive.text == "hard":
                while True:
                    time.sleep(1)
            case "block":
                self._wait(None)
            case "raise":
                raise RuntimeError(directive.text)
            case "finish":
                raise _FinishedError(cast("FinishReason", directive.text))
            case "layers":
                self._layers(int(directive.number))
            case _:
                _leave_or_print(directive)

    def _paced(self, text: str) -> str:
        if self._rate:
            self._next += 1 / self._rate
            self._wait(self._next)
        return text

    def _wait(self, until: float | None) -> None:
        while until is None or time.perf_counter() < until:
            self._check()
            time.sleep(_POLL_SECONDS if until is None else min(_POLL_SECONDS, max(0.0, until - time.perf_counter())))

    def _check(self) -> None:
        if self._cancelled():
            raise _FinishedError("cancelled")

    def _said(self) -> list[str]:
        users = [m.content for m in self._params.messages if m.role == "user"] if self._params else []
        words = users[-1].split() if users else []
        return [word if at == 0 else " " + word for at, word in enumerate(words)]


def _leave_or_print(directive: Directive) -> None:
    match directive.verb:
        case "abort":
            os.abort()
        case "exit":
            os._exit(int(directive.number))
        case "print":
            sys.stdout.write(directive.text + "\n")
            sys.stdout.flush()
        case verb:
            raise AssertionError(f"the script reader let {verb} through")
