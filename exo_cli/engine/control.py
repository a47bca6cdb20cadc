"""The local socket that commands talk to: newline-delimited JSON with ids, no nng, a folder that only its user enters.

It knows frames, cancellation and errors; what the methods do is `surface`'s. A method is an async function of its
params and a `tell` for events; its return value is the one result. Closing a connection cancels everything of it.
"""

import json
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import trio
from pydantic import ValidationError

from exo_cli.engine.core.errors import ExoError, InternalError, UsageError

Params = dict[str, object]
Tell = Callable[[dict[str, object]], Awaitable[None]]
Method = Callable[[Params, Tell], Awaitable[dict[str, object]]]
LINE_LIMIT_BYTES = 16 << 20
SEND_SECONDS = 60.0
_LOG = logging.getLogger(__name__)


def error_frame(error: ExoError) -> dict[str, object]:
    """An error as a client gets it."""
    return {
        "code": error.code,
        "message": error.message,
        "hints": list(error.hints),
        "exit": int(error.exit_code),
        "details": error.details,
    }


async def answer(method: Method, params: Params, tell: Tell) -> dict[str, object]:
    """Run a method to its one last frame: `{"result":...}` or `{"error":...}`, never an exception of its own."""
    try:
        return {"result": await method(params, tell)}
    except ExoError as error:
        return {"error": error_frame(error)}
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        raise  # whoever asked is gone: there is nobody to answer
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return {"error": error_frame(UsageError(f"{place}: {first['msg'].lower()}"))}
    except (ValueError, KeyError, TypeError) as error:
        return {"error": error_frame(UsageError(f"the request cannot be used: {str(error).splitlines()[0]}"))}
    except Exception as error:
        _LOG.exception("a control method failed")
        return {"error": error_frame(InternalError(f"{type(error).__name__}: {error}", "exo node logs"))}


class ControlServer:
    """Serves the methods on a unix socket.

    `connections` counts who is connected, `first_came` is set from the first on, `all_gone` when nobody is left.
    """

    def __init__(self, path: Path, hello: Callable[[], dict[str, object]], methods: dict[str, Method]) -> None:
        """`path` lies in a private folder that exists."""
        self.path = path
        self._hello, self._methods = hello, methods
        self.connections = 0
        self.first_came = trio.Event()
        self.all_gone = trio.Event()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept clients until cancelled; the socket's file goes with it."""
        self.path.unlink(missing_ok=True)
        listener = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        try:
            before = os.umask(0o177)
            try:
                await listener.bind(os.fspath(self.path))
            finally:
                os.umask(before)
            listener.listen(128)
            task_status.started()
            async with trio.open_nursery() as nursery:
                await trio.serve_listeners(self._client, [trio.SocketListener(listener)], handler_nursery=nursery)
        finally:
            listener.close()
            self.path.unlink(missing_ok=True)

    async def _client(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.first_came.set()
        try:
            async with stream:
                await _Connection(stream, self._methods).run(self._hello())
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # It went away; what it had asked for was cancelled with it.
        finally:
            self.connections -= 1
            if self.connections == 0:
                self.all_gone.set()


class _Connection:
    """One client: any number of requests at a time, each with its own id."""

    def __init__(self, stream: trio.SocketStream, methods: dict[str, Method]) -> None:
        self._stream, self._methods = stream, methods
        self._sending = trio.Lock()
        self._is_cut = False
        self._running: dict[int, trio.CancelScope] = {}

    async def run(self, hello: dict[str, object]) -> None:
        """Greet, then obey until the client is gone."""
        await self._send({"hello": hello})
        async with trio.open_nursery() as nursery:
            buffer = bytearray()
            while chunk := await self._stream.receive_some(65536):
                buffer += chunk
                while (end := buffer.find(b"\n")) >= 0:
                    line = bytes(buffer[:end])
                    del buffer[: end + 1]
                    self._obey(line, nursery)
                if len(buffer) > LINE_LIMIT_BYTES:
                    break
            nursery.cancel_scope.cancel()

    def _obey(self, line: bytes, nursery: trio.Nursery) -> None:
        try:
            frame = json.loads(line)
        except (ValueError, RecursionError):
            nursery.cancel_scope.cancel()
            return
        if not isinstance(frame, dict):
            nursery.cancel_scope.cancel()
            return
        fields = cast("dict[str, object]", frame)
        number = fields.get("id")
        if not isinstance(number, int):
            nursery.cancel_scope.cancel()
        elif fields.get("cancel") is True:
            if (scope := self._running.get(number)) is not None:
                scope.cancel()
        elif number not in self._running:
            # Known before its task runs: a cancel may stand in the same chunk.
            scope = self._running[number] = trio.CancelScope()
            nursery.start_soon(self._answer, number, fields, scope)

    async def _answer(self, number: int, fields: Params, scope: trio.CancelScope) -> None:
        async def tell(event: dict[str, object]) -> None:
            await self._send({"id": number, "event": event})

        params = fields.get("params")
        try:
            with scope:
                method = self._methods.get(str(fields.get("method")), _unknown_method)
                last = await answer(method, cast("Params", params) if isinstance(params, dict) else {}, tell)
                await self._send({"id": number, **last})
        finally:
            self._running.pop(number, None)

    async def _send(self, frame: dict[str, object]) -> None:
        """Write one line. A client that reads nothing for a minute is gone."""
        data = json.dumps(frame, separators=(",", ":"), default=str).encode() + b"\n"
        async with self._sending:
            if self._is_cut:
                raise trio.BrokenResourceError("a line was cut off, nothing can follow it")
            self._is_cut = True
            with trio.move_on_after(SEND_SECONDS):
                await self._stream.send_all(data)
                self._is_cut = False
        if self._is_cut:
            raise trio.BrokenResourceError("the client does not read")


async def _unknown_method(_params: Params, _tell: Tell) -> dict[str, object]:
    raise UsageError("this node does not know that request: its version is older or newer", "exo node show")
