"""Downloads: what goes wrong in one ends it and nothing else; and a hub process that says odd things."""

import sys
from pathlib import Path

import pytest

from exo_cli.engine.core.errors import FailedError
from exo_cli.engine.core.events import DownloadKind
from exo_cli.engine.downloads import Downloads
from exo_cli.engine.store import hub_client
from tests.builders import an_instance


class Odd:
    """A store with a fault."""

    def __init__(self, fault, at):
        self.fault, self.at = fault, at

    def find(self, card):
        if self.at == "find":
            raise self.fault

    async def fetch(self, card, on_progress):
        on_progress(10, 100)
        if self.at == "fetch":
            raise self.fault
        return Path("/m")


@pytest.mark.parametrize("at", ["find", "fetch"])
@pytest.mark.parametrize(
    ("fault", "told", "permanent"),
    [
        (FailedError("no", details={"permanent": True}), "no", True),
        (OSError("disk"), "disk", False),
        (KeyError("surprise"), "KeyError: 'surprise'", False),
    ],
)
async def test_no_surprise_leaves_a_download(at, fault, told, permanent):
    heard = []

    async def feed(said):
        heard.append(said.progress)

    await Downloads(Odd(fault, at), "n-a", feed).bring(an_instance())
    last = heard[-1]
    assert (last.kind, last.error_message, last.permanent) == (DownloadKind.FAILED, told, permanent)


def a_hub(monkeypatch, *lines):
    program = "import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1]))"
    said = b"".join(line + b"\n" for line in lines)
    monkeypatch.setattr(hub_client, "CHILD", (sys.executable, "-S", "-c", program, said.hex()))


async def test_what_a_library_prints_is_passed_over(monkeypatch):
    moved = []
    noise = (b"Fetching: 10%", b"\xff\xfe", b"")
    a_hub(monkeypatch, *noise, b'{"progress": [1, 2]}', *noise, b'{"answer": {"folder": "/m"}}', *noise)
    said = await hub_client.ask("files", "org/m", {}, Path("/m"), lambda *at: moved.append(at))
    assert (said, moved) == ({"folder": "/m"}, [(1, 2)])


@pytest.mark.parametrize("lines", [(), (b"Killed",), (b'{"progress": [1, 2]}',), (b"[1]",), (b'{"error": 1}',)])
async def test_no_answer_is_an_error_of_ours(monkeypatch, lines):
    a_hub(monkeypatch, *lines)
    with pytest.raises(FailedError, match="ended with code 0") as caught:
        await hub_client.ask("files", "org/m", {}, Path("/m"))
    assert caught.value.details == {"permanent": False}
