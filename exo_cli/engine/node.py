"""The node: one process that joins the core to disk, network, runners and clients. It decides nothing.

`run` takes the folders, opens the log, folds the state from it, and keeps a nursery of the pump, the transport, the
control socket and the clock until it is asked to stop: then streams end, runners are seen out, the log is closed.
"""

import logging
import os
import platform
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from exo_cli import __version__
from exo_cli.engine.answering import Answering
from exo_cli.engine.chats import Chats
from exo_cli.engine.control import ControlServer
from exo_cli.engine.core.actions import Action
from exo_cli.engine.core.effects import ChatCancelled, EndTask, FactsChanged, Leave, Submitted, Tick
from exo_cli.engine.core.errors import ConflictError, ExoError
from exo_cli.engine.core.ids import instance_id_in
from exo_cli.engine.core.intents import Submission
from exo_cli.engine.core.items import Item
from exo_cli.engine.core.planner import LocalRunner
from exo_cli.engine.core.replica import Replica
from exo_cli.engine.core.state import State
from exo_cli.engine.core.topology import NodeFacts
from exo_cli.engine.core.wire import Answer, CancelChat, Closing, ForeignMessageError, Message
from exo_cli.engine.downloads import Downloads
from exo_cli.engine.hands import Hands
from exo_cli.engine.journal import Journal
from exo_cli.engine.log.disk import DiskLog
from exo_cli.engine.log.memory import MemoryLog
from exo_cli.engine.net.addresses import split_address
from exo_cli.engine.notes import Notes
from exo_cli.engine.opening import checked_address, memory_log, next_incarnation, open_log, open_transport
from exo_cli.engine.paths import HomeLock, Paths, find_paths, node_id, private_folder
from exo_cli.engine.ports import Transport
from exo_cli.engine.probe import cores, node_facts, threads_for
from exo_cli.engine.pump import Pump, Waiter
from exo_cli.engine.recorder import Recorder
from exo_cli.engine.relay import Relay
from exo_cli.engine.runner.blas import blas_environment
from exo_cli.engine.runner.supervisor import ProcessHost
from exo_cli.engine.store.models import ModelStore
from exo_cli.engine.surface import methods
from exo_cli.engine.surface.of_nodes import own_item

TICK_SECONDS = 0.25
FACTS_SECONDS = 10.0
SUBMIT_SECONDS = 10.0
STOP_SECONDS = 12.0
SOLO_GRACE_SECONDS = 30.0
RING_PORTS = range(7110, 7130)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What `exo node start` was told. `engine` overrides the engine of placements made here (`scripted:FILE`)."""

    listen: str | None = None
    peers: tuple[str, ...] = ()
    name: str | None = None
    solo: bool = False
    engine: str | None = None
    fsync: bool = True
    record: Path | None = None


def run(options: NodeOptions, on_ready: Callable[[dict[str, object]], None] | None = None) -> None:
    """Be a node until stopped.

    Raises:
        ExoError: the folders or ports are taken, the log is damaged; one line and a hint.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    for peer in options.peers:
        checked_address(peer)
    paths = find_paths()
    with ExitStack() as stack:
        stack.enter_context(HomeLock(paths))
        node = Node(options, paths, on_ready)
        trio.run(node.main, stack)
    if node.fault is not None:
        raise node.fault


class Node:
    """See the module. What the control surface asks of it is public."""

    replica: Replica
    pump: Pump
    hands: Hands
    chats: Chats
    relay: Relay
    transport: Transport
    control: ControlServer
    _nursery: trio.Nursery

    def __init__(
        self, options: NodeOptions, paths: Paths, on_ready: Callable[[dict[str, object]], None] | None
    ) -> None:
        """Read who this is; nothing is opened yet."""
        self.options, self.paths, self._on_ready = options, paths, on_ready
        self.node_id = node_id(paths)
        self.name = options.name or platform.node() or self.node_id
        self.store = ModelStore(paths.models)
        self._stopping = trio.Event()
        self.fault: ExoError | None = None

    @property
    def state(self) -> State:
        """The committed state. Read it, never change it."""
        return self.replica.state

    # Life --------------------------------------------------------------------------------------------------------

    async def main(self, stack: ExitStack) -> None:
        """Set everything up, run until asked to stop, and take it down in order."""
        log, state = (
            memory_log(self.node_id)
            if self.options.solo
            else open_log(self.paths.log, self.node_id, fsync=self.options.fsync)
        )
        stack.callback(lambda: log.close(self._closing(log.last_index)))
        journal = Journal(self.paths.journal)
        stack.callback(journal.close)
        self.transport = await open_transport(self.options.listen, self.options.peers, solo=self.options.solo)
        try:
            facts = await self._facts()
            incarnation = next_incarnation(self.paths.data / "incarnation")
            self.replica = Replica(
                self.node_id, incarnation, self.transport.address, facts, state, __version__, self.options.peers
            )
            recorder = None
            if (file := self.options.record) is not None:
                recorder = stack.enter_context(closing(Recorder(file, self.replica, self.options.peers)))
            await self._live(log, journal, recorder)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 2.0):
                await self.transport.aclose()

    def _closing(self, last_index: int) -> Closing | None:
        """What the log ends with, unless the state is ahead of what the disk took (or there is none yet)."""
        state = self.replica.state if hasattr(self, "replica") else State()
        if state.index != last_index:
            return None
        return Closing(index=state.index, term=state.term, state_hash=state.hash())

    async def _facts(self) -> NodeFacts:
        log_dir = None if self.options.solo else str(self.paths.log)
        return await trio.to_thread.run_sync(
            partial(node_facts, self.name, (self.transport.address,), log_dir=log_dir, cache=self.paths.cache)
        )

    async def _live(self, log: DiskLog | MemoryLog, journal: Journal, recorder: Recorder | None) -> None:
        environment = await trio.to_thread.run_sync(blas_environment, self.paths.blas, cores())
        environment["EXO_RUNNER_CACHE"] = str(self.paths.converted)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.pump = Pump(
                self.replica,
                log,
                Notes(journal),
                self.transport,
                nursery,
                self._act,
                self._leave,
                writes_to_disk=isinstance(log, DiskLog),
                recorder=recorder,
            )
            self.chats = Chats(self.node_id, self.pump.feed, self._ask_data, lambda: self.state)
            self.hands = Hands(
                nursery=nursery,
                feed=self.pump.feed,
                state=lambda: self.state,
                local=self._local,
                host=ProcessHost(self.runner_log_dir, environment=environment),
                downloads=Downloads(self.store, self.node_id, self.pump.feed),
                chats=self.chats,
                node_id=self.node_id,
                ring_host=split_address(self.transport.address)[0],
                ring_ports=RING_PORTS,
                threads=self._threads,
            )
            table = methods(self)
            self.relay = Relay(nursery, table)
            answering = Answering(self.pump, self.relay, self.chats)
            private_folder(self.paths.control_socket.parent)
            self.control = ControlServer(self.paths.control_socket, self._hello, table)
            await nursery.start(partial(self.transport.serve, answering.rpc, answering.data))
            await self.pump.start()
            for task in (self.pump.run, self.pump.listen, self._tick, self._refresh_facts, self._heed_signals):
                nursery.start_soon(task)
            await nursery.start(self.control.serve)
            if self.options.solo:
                nursery.start_soon(self._end_when_alone)
            if self._on_ready is not None:
                self._on_ready(own_item(self))
            await self._stopping.wait()
            await self._wind_down()
            nursery.cancel_scope.cancel()

    async def _wind_down(self) -> None:
        """Streams end with a word, runners are seen out and their shutdown is in the log."""
        for task_id in self.chats.streams.open_ids():
            await self.chats.end(EndTask(task_id, "node_stopping", f"node {self.name} is stopping"))
        with trio.move_on_after(STOP_SECONDS):
            await self.hands.shut_down_all()
            with trio.move_on_after(1.0):
                while any(self._is_here(runner_id) for runner_id in self.state.runners):
                    await self.pump.wait_changed(0.2)

    def _is_here(self, runner_id: str) -> bool:
        shard = self.state.shard_of_runner(runner_id)
        return shard is not None and shard.node_id == self.node_id

    def ask_to_stop(self) -> None:
        """Begin to stop; `run` returns when everything is down."""
        self._stopping.set()

    async def _heed_signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for number in signals:
                if self._stopping.is_set():
                    os._exit(128 + number)  # asked twice: at once; runners end by the end of their input
                _LOG.info("stopping on signal %d", number)
                self.ask_to_stop()

    async def _end_when_alone(self) -> None:
        """A solo node lives as long as somebody is connected, and waits a little for the first to come."""
        with trio.move_on_after(SOLO_GRACE_SECONDS):
            await self.control.first_came.wait()
        while self.control.connections:
            self.control.all_gone = trio.Event()
            await self.control.all_gone.wait()
        self.ask_to_stop()

    # Clocks ------------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self.replica.open_streams = self.open_streams
            await self.pump.feed(Tick())
            await self.chats.tidy()
            self.relay.drop_left()
            self.pump.notes.journal.flush_counts(trio.current_time())
            await trio.sleep(TICK_SECONDS)

    async def _refresh_facts(self) -> None:
        while True:
            await trio.sleep(FACTS_SECONDS)
            await self.pump.feed(FactsChanged(await self._facts()))

    # Doing -------------------------------------------------------------------------------------------------------

    def _act(self, action: Action | EndTask) -> None:
        if isinstance(action, EndTask):
            self._nursery.start_soon(self.chats.end, action)
        elif not self._stopping.is_set() or action.type == "Shutdown":
            self.hands.act(action)

    def _leave(self, leave: Leave) -> None:
        self.fault = self.fault or ConflictError(leave.reason, leave.hint, code="duplicate_id")
        self.ask_to_stop()

    def _local(self, runner_id: str) -> LocalRunner | None:
        return self.replica.tending.local.runners.get(runner_id)

    def _threads(self, world_size: int) -> int:
        return threads_for(world_size, cores(), len(self.replica.tending.local.runners))

    async def submit(self, submission: Submission) -> Answer:
        """Put a command to the cluster and wait for its one answer."""
        waiter = Waiter()
        await self.pump.feed(Submitted(submission, waiter, SUBMIT_SECONDS))
        await waiter.is_answered.wait()
        assert isinstance(waiter.answer, Answer), "a submission is answered by an Answer"
        return waiter.answer

    def abandon(self, task_id: str, address: str | None) -> None:
        """Nobody reads a chat any more: cancel it where it runs."""
        self.chats.streams.close(task_id)
        if address is None:
            self._nursery.start_soon(self.pump.feed, ChatCancelled(task_id))
        else:
            self._nursery.start_soon(self._cancel_elsewhere, task_id, address)

    async def _cancel_elsewhere(self, task_id: str, address: str) -> None:
        with suppress(trio.BrokenResourceError, trio.TooSlowError, ForeignMessageError):
            await self._ask_data(address, CancelChat(task_id=task_id), 5.0)

    # Other nodes -------------------------------------------------------------------------------------------------

    async def _ask_data(self, address: str, message: Message, seconds: float) -> Message:
        try:
            return (await self.pump.request(address, message, seconds, data=True)).body
        except ForeignMessageError as error:
            raise trio.BrokenResourceError(str(error)) from None

    # Being asked -------------------------------------------------------------------------------------------------

    @property
    def open_streams(self) -> int:
        """Streams that have not seen their end."""
        return self.chats.streams.open_count

    @property
    def dropped(self) -> dict[str, int]:
        """Messages that were not used, by reason."""
        return dict(self.pump.notes.dropped)

    @property
    def runner_log_dir(self) -> Path:
        """Where runners of this node write."""
        return self.paths.runner_logs

    def engine_name(self, wanted: str | None) -> str:
        """The engine of a placement made here."""
        return wanted or self.options.engine or "mlx"

    async def wait_changed(self, seconds: float) -> None:
        """Wait until the state has changed, or some time has passed."""
        await self.pump.wait_changed(seconds)

    def has_process_of(self, instance_id: str) -> bool:
        """Whether a runner process of an instance still lives on this node."""
        return any(instance_id_in(runner_id) == instance_id for runner_id in self.hands.pids)

    def busy(self, instance_id: str) -> int:
        """How many chats of an instance this node knows of."""
        return sum(each.task.instance_id == instance_id for each in self.replica.tending.admitted.values())

    def _hello(self) -> Item:
        return {
            "product": "exo-cli",
            "version": __version__,
            "control": 1,
            "node_id": self.node_id,
            "name": self.name,
            "pid": os.getpid(),
            "solo": self.options.solo,
        }
