"""The control socket: what clients do to it that leave without a word, or change their mind at once."""

import json
import socket
import struct
from contextlib import asynccontextmanager

import trio

from exo_cli.engine.control import ControlServer
from exo_cli.engine.core.tasks import ChatParams


@asynccontextmanager
async def a_server(tmp_path, **methods):
    server = ControlServer(tmp_path / "control.sock", lambda: {"product": "test"}, methods)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        yield server
        nursery.cancel_scope.cancel()


async def connected(server):
    stream = await trio.open_unix_socket(server.path)
    assert b"hello" in await stream.receive_some(4096)
    return stream


def asked(number, method, **more):
    return json.dumps({"id": number, "method": method, **more}).encode() + b"\n"


async def until(condition):
    with trio.fail_after(5):
        while not condition():  # noqa: ASYNC110 - a counter has no event
            await trio.sleep(0.005)


async def flood(_params, tell):
    while True:
        await tell({"type": "line", "text": "x" * 1000})


async def test_a_client_that_goes_with_unread_events_takes_nobody_along(tmp_path):
    async with a_server(tmp_path, flood=flood) as server:
        stream = await connected(server)
        await stream.send_all(asked(1, "flood"))
        await stream.receive_some(10)
        # As the kernel does for a process that is killed: what is unread is answered by a reset.
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.socket.close()
        await until(lambda: server.connections == 0)
        await (await connected(server)).aclose()


async def test_a_cancel_in_the_same_chunk_as_its_request_counts(tmp_path):
    begun, ended = [], trio.Event()

    async def wait(_params, _tell):
        begun.append(1)
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async def quick(_params, _tell):
        return {"quick": True}

    async with a_server(tmp_path, wait=wait, quick=quick) as server:
        stream = await connected(server)
        await stream.send_all(asked(1, "wait") + b'{"id":1,"cancel":true}\n' + asked(2, "quick"))
        with trio.fail_after(5):
            assert json.loads(await stream.receive_some(4096)) == {"id": 2, "result": {"quick": True}}
            if begun:
                await ended.wait()
        await stream.aclose()


async def test_closing_cancels_what_was_asked(tmp_path):
    ended = trio.Event()

    async def wait(_params, tell):
        try:
            await tell({"type": "begun"})
            await trio.sleep_forever()
        finally:
            ended.set()

    async with a_server(tmp_path, wait=wait) as server:
        stream = await connected(server)
        await stream.send_all(asked(1, "wait"))
        await stream.receive_some(4096)
        await stream.aclose()
        with trio.fail_after(5):
            await ended.wait()


async def test_a_value_that_does_not_fit_is_named(tmp_path):
    async def chat(params, _tell):
        return ChatParams.model_validate(params).model_dump()

    async with a_server(tmp_path, chat=chat) as server:
        stream = await connected(server)
        wrong = {"messages": [{"role": "user", "content": "hi"}], "stop": [""]}
        await stream.send_all(asked(1, "chat", params=wrong))
        error = json.loads(await stream.receive_some(4096))["error"]
        assert (error["exit"], error["message"]) == (2, "stop.0: string should have at least 1 character")
        await stream.aclose()
