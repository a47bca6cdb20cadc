"""A control server for tests: speaks the frames of `engine/control.py`, answers what a test scripts.

A fake of a port, kept small: no node, no state. A method is a function of its params that yields events and returns a
result, or raises an ExoError; a node that hangs is one whose method, or whose greeting, never comes.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from exo_cli.engine.core.errors import ExoError

Message = dict[str, Any]
Method = Callable[[Message], Generator[Message, None, Message]]
HELLO: Message = {
    "product": "exo-cli",
    "version": "0.1.0",
    "control": 1,
    "node_id": "n-aaaaaaaaaaaa",
    "name": "fake",
    "pid": os.getpid(),
    "solo": False,
}


def result(value: Message) -> Method:
    """A method that answers at once."""

    def method(_params: Message) -> Generator[Message, None, Message]:
        return value
        yield {}

    return method


def error(reason: ExoError) -> Method:
    """A method that refuses."""

    def method(_params: Message) -> Generator[Message, None, Message]:
        raise reason
        yield {}

    return method


def script(*events: Message, ends: Message | ExoError | None) -> Method:
    """A method that tells these events, then ends; None goes on for ever."""

    def method(_params: Message) -> Generator[Message, None, Message]:
        yield from events
        if ends is None:
            threading.Event().wait()
        if isinstance(ends, ExoError):
            raise ends
        return ends or {}

    return method


STARTED: Message = {"type": "started", "task_id": "t-1", "instance_id": "i-abc", "model": "smollm2", "node_id": "n-a"}
ANSWER: Message = {
    "task_id": "t-1",
    "instance_id": "i-abc",
    "model": "smollm2",
    "finish_reason": "stop",
    "usage": {"prompt_tokens": 9, "tokens": 3, "first_token_seconds": 0.5, "seconds": 1.5},
    "seed": 7,
}


def chunks(*pieces: str) -> list[Message]:
    """The pieces of an answer as events."""
    return [{"type": "chunk", "sequence": number, "text": piece} for number, piece in enumerate(pieces)]


def answers(*pieces: str) -> Method:
    """A chat that waits, begins, gives these pieces and ends well."""
    return script({"type": "waiting", "text": "smollm2 is busy"}, STARTED, *chunks(*pieces), ends={"item": ANSWER})


class FakeNode:
    """Serves a socket in threads until closed. `asked` has every request and cancellation, in order."""

    def __init__(self, path: Path, methods: dict[str, Method], hello: Message | None = HELLO) -> None:
        """Listen; `hello` None stands for a node that accepts and says nothing."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.methods, self.hello = methods, hello
        self.asked: list[Message] = []
        self.connections = 0
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.fspath(path))
        self._listener.listen()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it with every connection, as a node's end does."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.path.unlink(missing_ok=True)
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def wait_asked(self, frame: Message, seconds: float = 5) -> None:
        """Wait until a client has sent this."""
        end = time.monotonic() + seconds
        while frame not in self.asked:
            assert time.monotonic() < end, self.asked
            time.sleep(0.01)

    def __enter__(self) -> "FakeNode":
        """Hold it for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            if self.hello is None:
                threading.Event().wait()
            self._send(connection, {"hello": self.hello})
            for line in lines:
                frame = json.loads(line)
                self.asked.append(frame)
                if "method" in frame:
                    threading.Thread(target=self._answer, args=(connection, frame), daemon=True).start()

    def _answer(self, connection: socket.socket, frame: Message) -> None:
        with contextlib.suppress(OSError):
            running = self.methods[frame["method"]](frame.get("params") or {})
            try:
                while True:
                    self._send(connection, {"id": frame["id"], "event": next(running)})
            except StopIteration as end:
                self._send(connection, {"id": frame["id"], "result": end.value})
            except ExoError as reason:
                written = {
                    "code": reason.code,
                    "message": reason.message,
                    "hints": list(reason.hints),
                    "exit": int(reason.exit_code),
                    "details": reason.details,
                }
                self._send(connection, {"id": frame["id"], "error": written})

    @staticmethod
    def _send(connection: socket.socket, frame: Message) -> None:
        connection.sendall(json.dumps(frame).encode() + b"\n")
