"""The way to a node on this machine: lines of JSON over its unix socket."""

import json
import math
import socket
import time
from contextlib import suppress
from typing import cast

from exo_cli.engine.client.endpoint import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    CONTROL,
    SILENCE_SECONDS,
    Answering,
    Endpoint,
    Message,
    error_of,
    unavailable,
)
from exo_cli.engine.core.errors import AuthError, ConflictError, ExoError

LINE_BYTES = 64 << 20


class LocalLink:
    """Lines of JSON over a unix socket."""

    def __init__(self, endpoint: Endpoint, path: str) -> None:
        """Connect and hear the greeting."""
        self._endpoint, self._path = endpoint, path
        self._buffer = bytearray()
        self._last_id = 0
        self.hello: Message = {}
        self._socket = self._connect()
        try:
            self.hello = self._greeting()
        except BaseException:
            self._socket.close()
            raise

    def ask(self, method: str, params: Message, deadline_seconds: float | None) -> Answering:
        """Ask under a new id; answers to earlier ids (cancelled ones) are passed over."""
        self._last_id += 1
        asked, over = self._last_id, False
        end = None if deadline_seconds is None else time.monotonic() + deadline_seconds
        self._send({"id": asked, "method": method, "params": params})
        try:
            while True:
                message = self._receive(end)
                if message.get("id") != asked:
                    continue
                if "event" in message:
                    yield message["event"]
                    if end is not None and time.monotonic() > end:
                        raise unavailable(self._endpoint, "the node does not come to an end", "hung")
                    continue
                over = True
                if "error" in message:
                    raise error_of(message["error"])
                return cast("Message", message.get("result") or {})
        finally:
            if not over:
                with suppress(ExoError):
                    self._send({"id": asked, "cancel": True})

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(self._path)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            connection.close()
            raise unavailable(self._endpoint, "no node is running", "absent") from None
        except PermissionError:
            connection.close()
            raise AuthError(f"no permission to use {self._endpoint}", f"ls -l {self._path}") from None
        except (TimeoutError, BlockingIOError):
            connection.close()
            raise unavailable(self._endpoint, "the node does not answer", "hung") from None
        except OSError as error:
            connection.close()
            raise unavailable(self._endpoint, f"no node can be reached ({error})", "absent") from None
        return connection

    def _greeting(self) -> Message:
        message = self._receive(time.monotonic() + CONNECT_SECONDS)
        hello = message.get("hello")
        if not isinstance(hello, dict) or "control" not in hello:
            raise unavailable(self._endpoint, "something that is not an exo node answers", "foreign")
        if hello["control"] != CONTROL:
            older = "node" if cast("int", hello["control"]) < CONTROL else "command"
            raise ConflictError(
                f"the {older} is the older side (control protocol {hello['control']} there, {CONTROL} here)",
                "exo node stop",
            )
        return cast("Message", hello)

    def _send(self, message: Message) -> None:
        try:
            self._socket.settimeout(ANSWER_SECONDS)
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except TimeoutError:
            raise unavailable(self._endpoint, "the node does not take what is sent", "hung") from None
        except OSError:
            raise unavailable(self._endpoint, "the node ended the connection", "lost") from None

    def _receive(self, end: float | None) -> Message:
        """The next line. `end` (monotonic) is when an answer is overdue; on the way to it, silence is probed."""
        searched = 0
        while (cut := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > LINE_BYTES:
                raise unavailable(self._endpoint, "something that is not an exo node answers", "foreign")
            self._buffer += self._read(end)
        line = bytes(self._buffer[:cut])
        del self._buffer[: cut + 1]
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise unavailable(self._endpoint, "something that is not an exo node answers", "foreign")
        return cast("Message", message)

    def _read(self, end: float | None) -> bytes:
        while True:
            left = math.inf if end is None else end - time.monotonic()
            if left <= 0:
                raise unavailable(self._endpoint, "the node does not answer", "hung")
            try:
                self._socket.settimeout(min(left, SILENCE_SECONDS))
                if piece := self._socket.recv(1 << 16):
                    return piece
            except TimeoutError:
                if self.hello and left > SILENCE_SECONDS:
                    LocalLink(self._endpoint, self._path).close()
                continue
            except OSError:
                pass
            raise unavailable(self._endpoint, "the node ended the connection", "lost")
