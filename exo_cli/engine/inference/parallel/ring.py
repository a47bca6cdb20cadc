"""The group of ranks over mlx's ring, and what one rank says to the next over it.

It knows frames of a task: a header (what to do, how many positions, whether the result is wanted, in which numbers the
sender computed) and then the hidden states. mlx does not check that a receiver expects what a sender sends: one kind
of number is on the wire, float32, and the header says what it was before, so that nothing is lost or misread.

A rank that waits here spins on a core. So nobody waits here for work, only during a task; and then a rank sleeps
through most of what the last waits took at least, so that the core is there for whoever it waits for.
"""

import json
import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import cast

import mlx.core as mx

from exo_cli.engine.inference import EngineError, GroupLostError

_WIRE = mx.float32
_KINDS = (mx.float32, mx.float16, mx.bfloat16)
_REMEMBERED_WAITS = 8
_SLEPT_SHARE = 0.7
"""Of the shortest of the remembered waits: when waits get shorter, the sleep is soon out of the way."""


_PATIENCE_SECONDS = 900.0
"""How long a rank waits for its neighbours inside one call: longer than the watch on rank 0 does, see there."""
PATIENCE_VARIABLE = "EXO_RING_SECONDS"


class Op(IntEnum):
    """What a header announces: positions to compute, the end of the task, or that a rank before cannot go on."""

    STEP = 1
    END = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Header:
    """`positions` hidden states follow a STEP; `detail` is their kind of number, of a FAILED the rank at fault."""

    op: Op
    positions: int = 0
    wanted: bool = False
    detail: int = 0


class Ring:
    """This rank's place between the one before it and the one after it."""

    def __init__(self, addresses: Sequence[str], rank: int) -> None:
        """Join; returns when all ranks have.

        Raises:
            EngineError: the ring does not come about.
        """
        self.rank, self.size = rank, len(addresses)
        self._group = _join(addresses, rank)
        self._next, self._previous = (rank + 1) % self.size, (rank - 1) % self.size
        self._waits: deque[float] = deque(maxlen=_REMEMBERED_WAITS)
        self._waiting_since: float | None = None
        self._patience = float(os.environ.get(PATIENCE_VARIABLE, _PATIENCE_SECONDS))
        threading.Thread(target=self._watch, daemon=True).start()

    def send(self, header: Header, hidden: mx.array | None = None) -> None:
        """Say something to the next rank; returns when it is on its way. `hidden` [1, L, D] goes with a STEP."""
        words = mx.array([header.op, header.positions, header.wanted, header.detail], mx.int32)
        if hidden is None:
            with self._told():
                mx.eval(mx.distributed.send(words, self._next, group=self._group))
            return
        # Computed before anything is said: a rank that fails here can still say so.
        wide = hidden.astype(_WIRE)
        mx.eval(wide)
        words = mx.array([header.op, header.positions, header.wanted, _KINDS.index(hidden.dtype)], mx.int32)
        with self._told():
            said = mx.distributed.send(words, self._next, group=self._group)
            mx.async_eval(said)  # type: ignore[no-untyped-call]  # its stub has no types
            mx.eval(mx.distributed.send(wide, self._next, group=self._group))

    def receive(self) -> Header:
        """What the rank before says; waits for it."""
        began = time.perf_counter()
        if len(self._waits) == _REMEMBERED_WAITS:
            time.sleep(_SLEPT_SHARE * min(self._waits))
        with self._told():
            words = mx.distributed.recv((4,), mx.int32, self._previous, group=self._group)
            op, positions, wanted, detail = cast("list[int]", words.tolist())
        self._waits.append(time.perf_counter() - began)
        return Header(Op(op), positions, bool(wanted), detail)

    def receive_hidden(self, header: Header, hidden_size: int, positions: int | None = None) -> mx.array:
        """The hidden states [1, L, D] that a STEP announced, in the numbers in which they were computed."""
        shape = (1, header.positions if positions is None else positions, hidden_size)
        with self._told():
            wide = mx.distributed.recv(shape, _WIRE, self._previous, group=self._group)
            mx.eval(wide)
        return wide.astype(_KINDS[header.detail])

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What mlx says when a neighbour is gone, as what it means."""
        self._waiting_since = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            raise GroupLostError(f"rank {self.rank} has lost its group: {error}") from error
        finally:
            self._waiting_since = None

    def _watch(self) -> None:
        """End the process when a call never returns. mlx does not always notice that a neighbour is gone, and a rank
        inside a collective cannot be cancelled; its supervisor reports these words.
        """
        while True:
            time.sleep(min(1.0, self._patience / 4))
            since = self._waiting_since
            if since is not None and time.monotonic() - since > self._patience:
                sys.stderr.write(f"rank {self.rank} waited {self._patience:g} s for its group\n")
                sys.stderr.flush()
                os._exit(1)


def _join(addresses: Sequence[str], rank: int) -> mx.distributed.Group:
    descriptor, name = tempfile.mkstemp(prefix="exo-ring-", suffix=".json")
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump([[address] for address in addresses], file)
        os.environ["MLX_HOSTFILE"], os.environ["MLX_RANK"] = name, str(rank)
        group = mx.distributed.init(backend="ring", strict=True)
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"rank {rank} cannot join the ring {', '.join(addresses)}: {error}", "no_ring") from error
    finally:
        Path(name).unlink(missing_ok=True)
        for variable in ("MLX_HOSTFILE", "MLX_RANK"):
            os.environ.pop(variable, None)
    if (group.rank(), group.size()) != (rank, len(addresses)):
        raise EngineError(f"mlx says rank {group.rank()} of {group.size()}, not {rank} of {len(addresses)}", "no_ring")
    return group
