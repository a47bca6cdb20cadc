"""Chats: admission at rank 0, the streams that clients read, and the way between the two when they are on two nodes.

A chat is admitted by the node of rank 0 of a ready instance, from any client that reaches it; no master is needed.
Prompts and chunks go point to point and are in no log. Every stream gets exactly one terminal frame.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable

import trio

from exo_cli.engine.core.effects import ChatAdmitted, ChatCancelled, ChatEnded, EndTask, Input
from exo_cli.engine.core.errors import BadStateError, FailedError, UnavailableError
from exo_cli.engine.core.runners import SERVING
from exo_cli.engine.core.shards import Instance
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import (
    ChatParams,
    Finish,
    FinishReason,
    Frame,
    GenerationTask,
    TaskStatus,
    TextGeneration,
)
from exo_cli.engine.core.wire import Admit, CancelChat, Fine, Frames, Message, Next, OpenChat, Refusal
from exo_cli.engine.runner.frames import Done, Step
from exo_cli.engine.streams import Stream, Streams

POLL_SECONDS = 2.0
LOST_SECONDS = 6.0
CATCH_UP_SECONDS = 5.0
_STATUS: dict[FinishReason, TaskStatus] = {
    "stop": TaskStatus.COMPLETE,
    "length": TaskStatus.COMPLETE,
    "cancelled": TaskStatus.CANCELLED,
    "error": TaskStatus.FAILED,
}

Feed = Callable[[Input], Awaitable[None]]
AskNode = Callable[[str, Message, float], Awaitable[Message]]


class Chats:
    """The chats of one node: those it admitted as rank 0, and those it follows as another rank."""

    def __init__(self, node_id: str, feed: Feed, ask: AskNode, state: Callable[[], State]) -> None:
        """`feed` gives an input to the replica, `ask(address, message, timeout)` reaches another node's data socket."""
        self.streams = Streams()
        self.params: dict[str, ChatParams] = {}
        self._tasks: dict[str, GenerationTask] = {}
        self._node_id, self._feed, self._ask, self._state = node_id, feed, ask, state

    # Admission ---------------------------------------------------------------------------------------------------

    async def admit(self, task_id: str, instance_id: str, params: ChatParams, client: str | None) -> Stream:
        """Take a chat on this node, which must be rank 0's of a ready instance.

        Raises:
            BadStateError: it is not, or no longer.
        """
        state = self._state()
        instance = state.instances.get(instance_id)
        if instance is None or instance.shards[0].node_id != self._node_id or not is_ready(state, instance):
            raise BadStateError(
                f"instance {instance_id} is not ready to begin a chat on this node", "exo runners", code="not_ready"
            )
        stream = self.streams.open(task_id, instance_id)
        task = TextGeneration(task_id=task_id, instance_id=instance_id, client=client, sampling=params.sampling)
        self.params[task_id], self._tasks[task_id] = params, task
        try:
            await self._feed(ChatAdmitted(task, is_mine=True))
        except trio.Cancelled:
            # Nobody heard of it: nothing may be left of it either.
            del self.params[task_id], self._tasks[task_id]
            self.streams.close(task_id)
            raise
        return stream

    async def follow_rank_0(self, admit: Admit) -> None:
        """A task begins in which this node holds another rank."""
        task = TextGeneration(task_id=admit.task_id, instance_id=admit.instance_id)
        self._tasks[admit.task_id] = task
        await self._feed(ChatAdmitted(task, is_mine=False))

    async def tell_other_ranks(self, task: GenerationTask, instance: Instance) -> bool:
        """Rank 0 has begun: have the other ranks enter. False when one cannot be reached: the group is of no use."""
        state = self._state()
        for shard in instance.shards[1:]:
            node = state.nodes.get(shard.node_id)
            if node is None or not node.facts.addresses:
                return False
            message = Admit(task_id=task.task_id, instance_id=task.instance_id)
            try:
                await self._ask(node.facts.addresses[0], message, 5.0)
            except (trio.BrokenResourceError, trio.TooSlowError):
                await self.end(EndTask(task.task_id, "node_lost", f"node {shard.node_id} cannot be reached"))
                return False
        return True

    # Progress ----------------------------------------------------------------------------------------------------

    async def step(self, step: Step) -> None:
        """Text of a runner's step goes to the streams. Who reads nothing of megabytes loses the task."""
        for each in step.texts:
            stream = self.streams.find(each.task_id)
            if stream is None:
                continue
            stream.put_text(each.text)
            if stream.is_overfull:
                await self.cancel(each.task_id)

    async def done(self, done: Done, rank: int) -> None:
        """A runner ended a task. Rank 0's word ends the stream."""
        if rank == 0:
            # What an engine says of a failure may quote the words of the request: the client gets it, the log the code.
            await self._finish(done, done.code)
        elif (task := self._tasks.pop(done.task_id, None)) is not None:
            await self._feed(ChatEnded(task))

    async def end(self, end: EndTask) -> None:
        """A task cannot go on."""
        reason: FinishReason = "cancelled" if end.code == "cancelled" else "error"
        await self._finish(Done(task_id=end.task_id, reason=reason, error=end.error, code=end.code), end.error)

    async def _finish(self, done: Done, logged_error: str | None) -> None:
        task, _ = self._tasks.pop(done.task_id, None), self.params.pop(done.task_id, None)
        usage = done.usage
        if (stream := self.streams.find(done.task_id)) is not None:
            now = trio.current_time()
            stream.finish(now, done.reason, error=done.error, code=done.code, usage=usage, seed=done.seed)
        if task is None:
            return
        status = TaskStatus.CANCELLED if done.code == "instance_deleted" else _STATUS[done.reason]
        ended = task.model_copy(
            update={
                "task_status": status,
                "tokens": usage.tokens,
                "prompt_tokens": usage.prompt_tokens or None,
                "seconds": round(usage.seconds, 3),
                "finish_reason": done.reason,
                "error_message": (logged_error or "")[:500] or None,
                "digest": done.digest,
            }
        )
        await self._feed(ChatEnded(ended))

    async def cancel(self, task_id: str) -> None:
        """Somebody no longer wants it. Unknown ids are ignored."""
        if task_id in self._tasks:
            await self._feed(ChatCancelled(task_id))

    async def tidy(self) -> None:
        """Cancel what nobody reads any more, and forget what is over."""
        for task_id in self.streams.left_ids(trio.current_time()):
            await self.cancel(task_id)
        self.streams.forget_old(trio.current_time())

    # Between nodes -----------------------------------------------------------------------------------------------

    async def answer(self, body: Message) -> Message:
        """What another node asks of this one's chats."""
        match body:
            case OpenChat():
                try:
                    stream = await self.admit(body.task_id, body.instance_id, body.params, body.client)
                    stream.asked_at = trio.current_time()
                except BadStateError as error:
                    return Refusal(code=error.code, reason=error.message, exit_code=int(error.exit_code))
            case Admit():
                await self.follow_rank_0(body)
            case CancelChat():
                await self.cancel(body.task_id)
            case Next():
                return await self._next(body)
            case _:
                return Refusal(code="unexpected", reason=f"{body.type} is not asked here")
        return Fine()

    async def _next(self, body: Next) -> Frames:
        known = {task_id: stream for task_id in body.after if (stream := self.streams.find(task_id)) is not None}
        unknown = tuple(task_id for task_id in body.after if task_id not in known)
        for stream in known.values():
            stream.asked_at = trio.current_time()
        if not unknown and known:
            with trio.move_on_after(body.wait_seconds):
                await _any_news(known, body.after)
        frames = {task_id: stream.ready(body.after[task_id]) for task_id, stream in known.items()}
        return Frames(frames={task_id: ready for task_id, ready in frames.items() if ready}, unknown=unknown)

    async def read(self, task_id: str, address: str | None) -> AsyncGenerator[Frame, None]:
        """The frames of a task in order, up to its terminal one: of this node (address None) or of another."""
        after = -1
        while True:
            if address is None:
                stream = self.streams.find(task_id)
                assert stream is not None, "a stream is kept while it is read"
                frames = await stream.take(after)
            else:
                frames = await self._pull(task_id, address, after)
            for frame in frames:
                after = frame.sequence
                if isinstance(frame, Finish):
                    self.streams.close(task_id)  # before it is given out: whoever reads the last one asks no further
                    yield frame
                    return
                yield frame

    async def _pull(self, task_id: str, address: str, after: int) -> tuple[Frame, ...]:
        """Ask the node that samples for more; it may be away for a few seconds, then the stream is lost."""
        deadline = trio.current_time() + LOST_SECONDS
        while True:
            message = Next(after={task_id: after}, wait_seconds=POLL_SECONDS)
            try:
                said = await self._ask(address, message, POLL_SECONDS + 3.0)
            except (trio.BrokenResourceError, trio.TooSlowError):
                if trio.current_time() > deadline:
                    lost = f"the node at {address} that was answering cannot be reached"
                    raise UnavailableError(lost, "exo node list", code="node_lost") from None
                await trio.sleep(0.2)
                continue
            deadline = trio.current_time() + LOST_SECONDS
            if isinstance(said, Refusal):
                raise UnavailableError(f"the node at {address} refused: {said.reason}", "exo node list")
            if isinstance(said, Frames) and task_id in said.unknown:
                raise FailedError("the stream was lost: the node that was answering started anew", "exo runners")
            if isinstance(said, Frames) and (frames := said.frames.get(task_id)):
                return frames

    async def open_elsewhere(self, address: str, opening: OpenChat) -> None:
        """Have rank 0's node admit a chat. Raises UnavailableError or BadStateError."""
        deadline = trio.current_time() + CATCH_UP_SECONDS
        while isinstance(said := await self._ask_rank_0(address, opening), Refusal):
            # That node may be a moment behind this one in hearing that all runners are ready.
            if said.code != "not_ready" or trio.current_time() > deadline:
                raise BadStateError(said.reason, said.hint or "exo runners", code=said.code)
            await trio.sleep(0.1)

    async def _ask_rank_0(self, address: str, opening: OpenChat) -> Message:
        try:
            return await self._ask(address, opening, 10.0)
        except (trio.BrokenResourceError, trio.TooSlowError):
            raise UnavailableError(f"rank 0's node at {address} cannot be reached", "exo node list") from None


async def _any_news(streams: dict[str, Stream], after: dict[str, int]) -> None:
    async with trio.open_nursery() as nursery:

        async def watch(task_id: str, stream: Stream) -> None:
            await stream.take(after[task_id])
            nursery.cancel_scope.cancel()

        for task_id, stream in streams.items():
            nursery.start_soon(watch, task_id, stream)


def is_ready(state: State, instance: Instance) -> bool:
    """Whether every runner of an instance would answer."""
    runners = [state.runners.get(runner_id) for runner_id in instance.runner_ids]
    return all(runner is not None and runner.status.type in SERVING for runner in runners)
