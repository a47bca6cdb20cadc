"""The child's way in: a thread that reads orders, obeys at once what cannot wait, and lines up the rest.

What cannot wait: the end of the pipe (the node is gone: the process ends, wherever the main thread is), Cancel, and
Stop (which calls off everything before it). It knows which tasks are open, and refuses more than the bound.

Only rank 0 of a group refuses, and what it refuses still takes its turn in the line, so that the ranks, which hear of
every task in the same order, can be told to pass over it.
"""

import json
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from pydantic import TypeAdapter, ValidationError

from exo_cli.engine.core.ids import AnId
from exo_cli.engine.runner.frames import LIMIT_BYTES, ORDERS, Cancel, Done, Generate, Order, Stop

WAITING_TASKS = 64
_CHUNK_BYTES = 1 << 16
_TASK_ID: TypeAdapter[str] = TypeAdapter(AnId)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A task that was answered with an error already; its turn in the line is kept."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is no order: why."""

    fault: str


Entry = Order | Refusal | Unreadable


class Inbox:
    """Orders in the order of their arrival, and what is known of open tasks. `start` begins to read."""

    def __init__(self, descriptor: int, answer: Callable[[Done], None]) -> None:
        """Read from `descriptor`; give refusals to `answer`, which may be called from the reading thread."""
        self._descriptor = descriptor
        self._answer = answer
        self._entries: queue.SimpleQueue[Entry] = queue.SimpleQueue()
        self._open: dict[str, bool] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.may_refuse = True

    def start(self) -> None:
        """Begin to read, in a thread that never keeps the process alive."""
        threading.Thread(target=self._read, name="orders", daemon=True).start()

    def next(self) -> Entry:
        """The next order; waits for it."""
        return self._entries.get()

    def stopping(self) -> bool:
        """Whether Stop has arrived: nothing that came before it is wanted any more."""
        return self._stopping.is_set()

    def cancelled(self, task_id: str) -> bool:
        """Whether an open task is to end."""
        return self._stopping.is_set() or self._open.get(task_id, False)

    def finish(self, task_id: str) -> bool:
        """A task is over; whether no other one is open."""
        with self._lock:
            self._open.pop(task_id, None)
            return not self._open

    def _read(self) -> None:
        held = b""
        while chunk := os.read(self._descriptor, _CHUNK_BYTES):
            *lines, held = (held + chunk).split(b"\n") if b"\n" in chunk else (held + chunk,)
            for line in lines:
                self._take(line)
            if len(held) > LIMIT_BYTES:
                self._entries.put(Unreadable(f"an order of more than {LIMIT_BYTES} bytes"))
                held = b""
        os._exit(0)

    def _take(self, line: bytes) -> None:
        try:
            order = ORDERS.validate_json(line)
        except ValidationError as error:
            self._take_unreadable(line, error)
            return
        match order:
            case Cancel():
                with self._lock:
                    if order.task_id in self._open:
                        self._open[order.task_id] = True
            case Generate():
                self._admit(order)
            case Stop():
                self._stopping.set()
                self._entries.put(order)
            case _:
                self._entries.put(order)

    def _admit(self, order: Generate) -> None:
        with self._lock:
            if order.task_id in self._open:
                return
            # One is being worked on, the others wait.
            busy = self.may_refuse and len(self._open) > WAITING_TASKS
            if not busy:
                self._open[order.task_id] = False
        if busy:
            self._refuse(order.task_id, "busy", f"{WAITING_TASKS} tasks wait for this runner already")
        else:
            self._entries.put(order)

    def _refuse(self, task_id: str, code: str, error: str) -> None:
        self._answer(Done(task_id=task_id, reason="error", code=code, error=error))
        self._entries.put(Refusal(task_id))

    def _take_unreadable(self, line: bytes, error: ValidationError) -> None:
        """A request that makes no sense fails alone; any other order that does is a fault of the node."""
        first = error.errors(include_url=False, include_input=False)[0]
        fault = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        try:
            fields = cast("dict[str, object]", json.loads(line))
            if fields["type"] == "Generate":
                self._refuse(_TASK_ID.validate_python(fields["task_id"]), "bad_request", fault)
                return
        except (ValueError, KeyError, TypeError):
            pass
        self._entries.put(Unreadable(fault))
