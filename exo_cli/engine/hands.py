"""Hands: carries out what the planner asks for on this machine: runner processes, downloads, orders.

It decides nothing. What happens comes back as inputs for the replica; each runner's reports come in order, and the
last of them says how its process ended.
"""

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from exo_cli.engine.chats import Chats
from exo_cli.engine.core.actions import Action
from exo_cli.engine.core.effects import Input, RunnerChanged
from exo_cli.engine.core.planner import LocalRunner
from exo_cli.engine.core.runners import RunnerFailed, RunnerIdle, RunnerShutdown, RunnerStatus
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import (
    CancelTask,
    ConnectToGroup,
    CreateRunner,
    DownloadModel,
    GenerationTask,
    LoadModel,
    Shutdown,
    StartWarmup,
)
from exo_cli.engine.downloads import Downloads
from exo_cli.engine.ports import RunnerHandle, RunnerHost
from exo_cli.engine.runner.frames import (
    Assign,
    Cancel,
    Connect,
    Done,
    Generate,
    Load,
    Order,
    Report,
    StatusReport,
    Step,
    Warmup,
)


@dataclass(slots=True, eq=False)
class _Post:
    """A runner of this node while its process lives."""

    local: LocalRunner
    handle: RunnerHandle | None = None
    started: trio.Event = field(default_factory=trio.Event)
    ring: socket.socket | None = None
    fault: str | None = None
    orders: list[Order] = field(default_factory=list[Order])
    news: trio.Event = field(default_factory=trio.Event)

    def order(self, order: Order) -> None:
        """Put an order behind the others: a runner gets them in the order in which they were given."""
        self.orders.append(order)
        self.news.set()

    async def write_orders(self) -> None:
        """Hand orders to the process, one after another, until it is gone."""
        await self.started.wait()
        while self.handle is not None:
            await self.news.wait()
            self.news = trio.Event()
            while self.orders:
                try:
                    await self.handle.send(self.orders.pop(0))
                except trio.BrokenResourceError:
                    return  # its last report says so


class Hands:
    """See the module."""

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        feed: Callable[[Input], Awaitable[None]],
        state: Callable[[], State],
        local: Callable[[str], LocalRunner | None],
        host: RunnerHost,
        downloads: Downloads,
        chats: Chats,
        node_id: str,
        ring_host: str,
        ring_ports: range,
        threads: Callable[[int], int],
    ) -> None:
        """`threads(world_size)`: how many a new runner may use. Each runner of a group gets a ring port."""
        self._nursery, self._feed, self._state, self._local = nursery, feed, state, local
        self._host, self._downloads, self._chats, self._node_id = host, downloads, chats, node_id
        self._ring_host, self._ring_ports, self._threads = ring_host, ring_ports, threads
        self._posts: dict[str, _Post] = {}

    @property
    def pids(self) -> dict[str, int]:
        """The processes that live, by runner."""
        return {runner_id: post.handle.pid for runner_id, post in self._posts.items() if post.handle}

    def act(self, action: Action) -> None:
        """Begin to carry out an action; nothing is waited for."""
        match action:
            case CreateRunner():
                self._create(action.runner_id or "")
            case DownloadModel():
                self._download(action.instance_id)
            case ConnectToGroup():
                self._connect(action.instance_id, action.runner_id or "")
            case LoadModel():
                self._nursery.start_soon(self._load, action.instance_id, action.runner_id or "")
            case StartWarmup():
                self._order(action.runner_id or "", Warmup())
            case CancelTask():
                self._order(action.runner_id, Cancel(task_id=action.cancelled_task_id))
            case Shutdown():
                self._nursery.start_soon(self.shut_down, action.runner_id)
            case _:
                self._forward(action)

    async def shut_down_all(self) -> None:
        """End every runner, side by side; returns when all are reaped."""
        async with trio.open_nursery() as nursery:
            for runner_id in list(self._posts):
                nursery.start_soon(self.shut_down, runner_id)

    # Runners -----------------------------------------------------------------------------------------------------

    def _create(self, runner_id: str) -> None:
        local = self._local(runner_id)
        assert local is not None, f"the planner created {runner_id}"
        post = self._posts[runner_id] = _Post(local)
        self._nursery.start_soon(self._run, post)

    async def _run(self, post: _Post) -> None:
        local = post.local
        threads = self._threads(local.shard.world_size)
        assign = Assign(instance=local.instance, runner_id=local.runner_id, threads=threads)

        def on_start(handle: RunnerHandle) -> None:
            post.handle = handle
            post.started.set()

        async def on_report(report: Report) -> None:
            await self._hear(post, report)

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(post.write_orders)
                await self._host.run(assign, on_start, on_report)
                nursery.cancel_scope.cancel()
        finally:
            post.started.set()
            self._let_go(post)

    def _let_go(self, post: _Post) -> None:
        if self._posts.get(post.local.runner_id) is post:
            del self._posts[post.local.runner_id]
        if post.ring is not None:
            post.ring.close()

    async def _hear(self, post: _Post, report: Report) -> None:
        match report:
            case StatusReport():
                await self._status(post, report.status)
            case Step():
                await self._chats.step(report)
            case Done():
                await self._chats.done(report, post.local.shard.rank)
            case _:
                pass  # memory figures: for `exo runners -o json` later

    async def _status(self, post: _Post, status: RunnerStatus) -> None:
        local = post.local
        if isinstance(status, RunnerIdle) and local.shard.world_size > 1:
            post.ring = self._free_ring_port()
            if post.ring is None:
                post.fault = f"no free port of {self._ring_ports.start} to {self._ring_ports.stop - 1} for its group"
                self._nursery.start_soon(self.shut_down, local.runner_id)
                return
            host, port = post.ring.getsockname()[:2]
            status = RunnerIdle(ring_endpoint=f"{host}:{port}")
        if isinstance(status, RunnerShutdown) and post.fault is not None:
            status = RunnerFailed(error_message=post.fault, phase="RunnerIdle")
        if isinstance(status, RunnerFailed | RunnerShutdown):
            # The process is gone: its place is free before anybody hears of it, since the next action may need it.
            self._let_go(post)
        await self._feed(RunnerChanged(local.runner_id, local.attempt, status))

    def _free_ring_port(self) -> socket.socket | None:
        """A port that is held (bound, not listening) until the group connects, so that nobody else picks it.

        One that a group used in the last minute is taken only when there is no other: only of the others does binding
        say for certain that nobody holds them.
        """
        for used_before in (False, True):
            for port in self._ring_ports:
                held = socket.socket(socket.AF_INET6 if ":" in self._ring_host else socket.AF_INET)
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, used_before)
                try:
                    held.bind((self._ring_host, port))
                except OSError:
                    held.close()
                    continue
                return held
        return None

    def _order(self, runner_id: str, order: Order) -> None:
        # No post: it died meanwhile, and its last report said so.
        if (post := self._posts.get(runner_id)) is not None:
            post.order(order)

    async def shut_down(self, runner_id: str) -> None:
        """End a runner; of one whose process is gone already, say so."""
        post = self._posts.get(runner_id)
        if post is None:
            local = self._local(runner_id)
            if local is not None:
                await self._feed(RunnerChanged(runner_id, local.attempt, RunnerShutdown()))
            return
        await post.started.wait()
        if post.handle is not None:
            await post.handle.stop()

    def _connect(self, instance_id: str, runner_id: str) -> None:
        instance = self._state().instances.get(instance_id)
        post = self._posts.get(runner_id)
        if instance is None or post is None:
            return
        runners = [self._state().runners.get(each) for each in instance.runner_ids]
        ring = tuple(runner.ring_endpoint or "" for runner in runners if runner is not None)
        if len(ring) != len(runners) or not all(ring):
            post.fault = "its group has no complete list of endpoints"
            self._nursery.start_soon(self.shut_down, runner_id)
            return
        if post.ring is not None:
            post.ring.close()
            post.ring = None
        post.order(Connect(ring=ring))

    async def _load(self, instance_id: str, runner_id: str) -> None:
        instance = self._state().instances.get(instance_id)
        path = await self._downloads.find(instance) if instance else None
        if instance is not None:
            # What is gone meanwhile is named to the runner, which says so in its own words.
            self._order(
                runner_id, Load(model_path=str(path or instance.model_card.path or instance.model_card.model_id))
            )

    def _download(self, instance_id: str) -> None:
        if (instance := self._state().instances.get(instance_id)) is not None:
            self._nursery.start_soon(self._downloads.bring, instance)

    def _forward(self, task: GenerationTask) -> None:
        params = self._chats.params.get(task.task_id)
        instance = self._state().instances.get(task.instance_id)
        shard = instance.shard_on(self._node_id) if instance else None
        if instance is None or shard is None:
            return
        self._order(shard.runner_id, Generate(task_id=task.task_id, params=params))
        if shard.rank == 0 and shard.world_size > 1:
            self._nursery.start_soon(self._tell_other_ranks, task, instance, shard.runner_id)

    async def _tell_other_ranks(self, task: GenerationTask, instance: Instance, runner_id: str) -> None:
        if not await self._chats.tell_other_ranks(task, instance):
            # Its own rank waits for the others inside a collective, which nothing but an end gets it out of.
            await self.shut_down(runner_id)
