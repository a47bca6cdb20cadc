"""The child's way out: frames on a descriptor that nobody else writes to.

Libraries print on fd 1 when they like. `own_pipes` moves both pipes of the node away from fds 0 and 1 before anything
can print: what is printed then goes to standard error, and what reads standard input finds it empty.
"""

import os
import threading

from exo_cli.engine.core.runners import Value
from exo_cli.engine.runner.frames import encode


def own_pipes() -> tuple[int, int]:
    """(orders, reports): descriptors that are ours alone and that no further process inherits."""
    orders, reports = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return orders, reports


class Outgoing:
    """Writes frames whole, from any thread. When nobody reads any more the process is of no use and ends."""

    def __init__(self, descriptor: int) -> None:
        """Write to `descriptor`."""
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, frame: Value) -> None:
        """Write one frame."""
        line = memoryview(encode(frame))
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except BrokenPipeError:
                os._exit(0)
