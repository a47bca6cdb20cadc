"""Opening: what a node needs before it can be one: its log with the state in it, its transport, its incarnation."""

import logging
import shlex
from collections.abc import Sequence
from pathlib import Path

from exo_cli import __version__
from exo_cli.engine.core.errors import BadDataError, UsageError
from exo_cli.engine.core.events import Record
from exo_cli.engine.core.reducer import apply
from exo_cli.engine.core.state import State, load
from exo_cli.engine.core.wire import Header, Line
from exo_cli.engine.log.disk import DiskLog
from exo_cli.engine.log.memory import MemoryLog
from exo_cli.engine.net.addresses import checked_address as checked_address
from exo_cli.engine.net.addresses import first_free_block, join_address
from exo_cli.engine.net.memory import MemoryNetwork, MemoryTransport
from exo_cli.engine.ports import Transport

SOLO_ADDRESS = "127.0.0.1:1"
_LOG = logging.getLogger(__name__)


def first_header(node_id: str) -> Header:
    """The head of a log in which nothing has happened yet."""
    empty = State()
    return Header(
        version=__version__,
        cluster_id="c-none",
        node_id=node_id,
        base_index=-1,
        base_term=0,
        state_hash=empty.hash(),
        state=empty.dump(),
    )


class Folding:
    """The state of a log, folded while it is read."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.state = State()

    def visit(self, line: Line) -> None:
        """A line of the log, in order."""
        if isinstance(line, Header):
            self.state = load(line.state)
        elif isinstance(line, Record):
            apply(self.state, line)


def open_log(folder: Path, node_id: str, *, fsync: bool) -> tuple[DiskLog, State]:
    """The log in a folder (made when there is none) and the state at its end; a torn tail is cut off with a warning.

    Raises:
        BadDataError, ConflictError, OSError: see `DiskLog.open_or_create`.
    """
    folding = Folding()
    try:
        log = DiskLog.open_or_create(folder, lambda: first_header(node_id), visit=folding.visit, sync=fsync)
    except BadDataError as error:
        anew = f"mv {shlex.quote(str(folder))} {shlex.quote(f'{folder}.damaged')}  # then start: it joins anew"
        error.hints = (*error.hints[:1], anew)
        raise
    for warning in log.warnings:
        _LOG.warning("%s", warning)
    return log, folding.state


def memory_log(node_id: str) -> tuple[MemoryLog, State]:
    """A log that goes with the process."""
    return MemoryLog(first_header(node_id)), State()


async def open_transport(listen: str | None, peers: Sequence[str], *, solo: bool) -> Transport:
    """The sockets at `host:port`, at the first free block of ports without it, or none at all for a solo node.

    Raises:
        UsageError: it is the address of one of the peers as well, or see `NngTransport.listen`.
        ConflictError: see `NngTransport.listen`.
    """
    if solo:
        return MemoryTransport(MemoryNetwork(), SOLO_ADDRESS)
    from exo_cli.engine.net.transport import NngTransport

    host, port = checked_address(listen, "--listen") if listen is not None else ("127.0.0.1", 0)
    port = port or first_free_block(host)
    if (own := join_address(host, port)) in peers:
        raise UsageError(f"--peer {own} is the address of this node itself", f"exo node start --listen {own}")
    transport = await NngTransport.listen(host, port)
    if transport.note:
        _LOG.warning("%s", transport.note)
    return transport


def next_incarnation(file: Path) -> int:
    """One more than at the last start of this node."""
    before = file.read_text().strip() if file.exists() else ""
    number = int(before) + 1 if before.isdecimal() else 1
    draft = file.with_suffix(".tmp")
    draft.write_text(f"{number}\n")
    draft.replace(file)
    return number
