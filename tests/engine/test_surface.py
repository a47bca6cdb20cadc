"""The control surface: which methods tell events, and a runner's log as it grows."""

import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from exo_cli.engine.core.state import State
from exo_cli.engine.surface import TELLING, methods
from exo_cli.engine.surface.reads import Reads


def test_every_method_that_tells_is_marked_and_says_what_it_is():
    table = methods(None)
    last = {name: list(inspect.signature(method).parameters)[-1] for name, method in table.items()}
    assert set(last.values()) == {"tell", "_tell"}
    assert {name for name, parameter in last.items() if parameter == "tell"} == TELLING


class Log:
    """`exo runners logs` of a file that a test writes."""

    def __init__(self, folder: Path):
        self.path = folder / "i-a-0.log"
        self.told: list[str] = []
        self._node = SimpleNamespace(state=State(), node_id="n-a", runner_log_dir=folder)

    async def tell(self, event):
        self.told.append(event["text"])

    async def run(self, **params):
        await Reads(self._node).runner_logs({"runner_id": "i-a-0", **params}, self.tell)

    async def until(self, *lines):
        with trio.fail_after(5):
            while self.told != list(lines):  # noqa: ASYNC110 - a list has no event
                await trio.sleep(0.01)

    def add(self, data: bytes):
        with self.path.open("ab") as file:
            file.write(data)


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path)


@pytest.mark.parametrize(("lines", "told"), [(2, ["b", "c"]), (9, ["", "a", "b", "c"]), (0, []), (-1, [])])
async def test_the_last_lines_are_told_also_one_without_its_end(log, lines, told):
    log.add(b"\na\nb\nc")
    await log.run(lines=lines)
    assert log.told == told


async def test_following_tells_whole_lines_whatever_way_they_come(log):
    log.add(b"old\nhal")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: log.run(follow=True))
        await log.until("old")
        log.add("f \N{SNOWMAN}".encode()[:-1])
        await trio.sleep(0.6)
        log.add("\N{SNOWMAN}\nnext".encode()[2:])
        await log.until("old", "half \N{SNOWMAN}")
        log.path.rename(log.path.with_suffix(".log.1"))
        log.add(b"n\n")
        await log.until("old", "half \N{SNOWMAN}", "next", "n")
        nursery.cancel_scope.cancel()
