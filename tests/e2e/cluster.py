"""The program as people run it: homes, real nodes in them, real commands against them, and what is left afterwards.

Every wait has a deadline and says what it waited for. Only processes that were started here are ever signalled.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from exo_cli.engine.client import Client
from exo_cli.engine.client.endpoint import Endpoint
from exo_cli.engine.core.errors import ExoError
from exo_cli.engine.paths import find_paths

PROGRAM = Path(sys.executable).with_name("exo")
FOR_EVER = ("--max-tokens", 1_000_000)
"""For a chat that is not to end by itself before a test has done something to it."""
Item = dict[str, Any]

# Below the ports that the system gives away by itself, and far apart for runs of the tests side by side.
_BLOCKS = count(20000 + 4 * (os.getpid() * 1237 % 2500), 4)


def free_port() -> int:
    """The first of four ports in a row that nobody listens on; no two callers get the same."""
    for port in _BLOCKS:
        assert port < 32000, "no free ports"
        with suppress(OSError):
            for number in range(port, port + 4):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", number))
            return port
    raise AssertionError


def wait_until(probe: Callable[[], Any], what: str, seconds: float = 10.0) -> Any:
    """What the probe says once it is true; an error that names what was waited for, and what was last seen."""
    end = time.monotonic() + seconds
    while not (seen := probe()):
        assert time.monotonic() < end, f"not within {seconds} s: {what} (last seen: {seen!r})"
        time.sleep(0.02)
    return seen


@dataclass(frozen=True)
class Ended:
    """How a command ended. `code` is negative when a signal ended it."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float

    @property
    def item(self) -> Item:
        """The one thing that its JSON document is about."""
        return json.loads(self.out)["item"]

    @property
    def items(self) -> list[Item]:
        """The things that its JSON document lists."""
        return json.loads(self.out)["items"]

    def ok(self) -> "Ended":
        """Itself, if it ended well."""
        assert self.code == 0, self
        return self

    def failed(self, code: int, *says: str) -> "Ended":
        """Itself, if it ended with this code, said all this, and no traceback."""
        assert self.code == code, self
        assert all(text in self.err for text in says), self
        assert "Traceback" not in self.err, self
        return self


class Running:
    """A command that runs; what it writes can be read meanwhile."""

    def __init__(self, words: tuple[str, ...], environment: dict[str, str], folder: Path, stdin: str | None) -> None:
        self.words, self._began = words, time.monotonic()
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                words, env=environment, stdout=out, stderr=err,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            )  # fmt: skip
        if stdin is not None:
            assert self.process.stdin is not None
            with self.process.stdin as pipe:
                pipe.write(stdin.encode())

    @property
    def out(self) -> str:
        """What it has written to stdout so far."""
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        """What it has written to stderr so far."""
        return self._err.read_text(errors="replace")

    def wait_says(self, text: str, seconds: float = 15.0) -> None:
        """Until the text is in its stdout."""
        wait_until(lambda: text in self.out or self.process.poll() is not None, f"{text!r} from {self.words}", seconds)
        assert text in self.out, self.wait(0)

    def wait(self, seconds: float = 30.0) -> Ended:
        """How it ends; it is killed, and that is an error, when it does not in time."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.words} ran for {seconds} s\nout: {self.out}\nerr: {self.err}") from None
        return Ended(self.words, code, self.out, self.err, time.monotonic() - self._began)


class Home:
    """One EXO_HOME, its node, and the commands that are run in it."""

    def __init__(self, path: Path, scratch: Path, cache: Path | None = None) -> None:
        """`cache`: a folder that several homes share, so that what is made once is not made for each of them."""
        self.path, self._scratch = path, scratch
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("EXO_", "XDG_"))}
        self.environment = kept | {"HOME": str(scratch), "EXO_HOME": str(path), "TERM": "dumb"}
        self.paths = find_paths(self.environment)
        self.port = free_port()
        self.node: Running | None = None
        self._started: list[Running] = []
        self._seen: dict[int, psutil.Process] = {}
        self._count = count()
        scratch.mkdir(parents=True, exist_ok=True)
        path.mkdir(parents=True, exist_ok=True)
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
            self.paths.cache.symlink_to(cache)

    # Commands ----------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where its node listens."""
        return f"127.0.0.1:{self.port}"

    def begin(self, *words: object, stdin: str | None = None, **environment: str) -> Running:
        """Start a command."""
        return self._begin((str(PROGRAM), *map(str, words)), stdin, environment)

    def shell(self, script: str, seconds: float = 30.0) -> Ended:
        """Run a line of bash in which `exo` is the program."""
        path = f"{PROGRAM.parent}:{self.environment['PATH']}"
        return self._begin(("bash", "-c", script), None, {"PATH": path}).wait(seconds)

    def exo(self, *words: object, stdin: str | None = None, seconds: float = 30.0, **environment: str) -> Ended:
        """Run a command to its end."""
        return self.begin(*words, stdin=stdin, **environment).wait(seconds)

    def _begin(self, words: tuple[str, ...], stdin: str | None, environment: dict[str, str]) -> Running:
        folder = self._scratch / f"command-{next(self._count)}"
        folder.mkdir()
        running = Running(words, self.environment | environment, folder, stdin)
        self._started.append(running)
        return running

    # The node ----------------------------------------------------------------------------------------------------

    def start(
        self,
        *words: object,
        engine: Path | None = None,
        peer: "Home | None" = None,
        name: str = "",
        core: int | None = None,
    ) -> Item:
        """Start its node and wait until it answers and belongs to a cluster; what it says of itself.

        On one `core` where the system can: the threads of a runner do not wait for each other beside busy neighbours.
        """
        assert self.node is None or self.node.process.poll() is not None, "it runs already"
        options = ["--listen", self.address]
        options += [] if engine is None else ["--engine", f"scripted:{engine}"]
        options += [] if peer is None else ["--peer", peer.address]
        options += ["--name", name] if name else []
        self.node = self.begin("node", "start", *options, *words)
        if core is not None and sys.platform == "linux":
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(self.pid, {cores[core % len(cores)]})
        wait_until(lambda: self._answers() or self._gone(), f"a node in {self.path}", 30.0)
        assert not self._gone(), self.node.wait(0)
        return wait_until(lambda: (item := self.show()) and item.get("master_address") and item, "a master", 15.0)

    def _answers(self) -> bool:
        assert self.node is not None
        with suppress(ExoError), self.client() as client:
            return client.hello["pid"] == self.pid
        return False

    def _gone(self) -> bool:
        return self.node is None or self.node.process.poll() is not None

    @property
    def pid(self) -> int:
        """The process of its node."""
        assert self.node is not None, "no node was started"
        return self.node.process.pid

    def kill(self) -> list[psutil.Process]:
        """kill -9 of the node; the children that it had."""
        children = self.children()
        assert self.node is not None
        self.node.process.kill()
        self.node.process.wait()
        return children

    def stop(self) -> Ended:
        """`exo node stop`; how the node itself ended."""
        self.exo("node", "stop").ok()
        assert self.node is not None
        return self.node.wait(5)

    def children(self) -> list[psutil.Process]:
        """The processes below the node that live, at any depth."""
        with suppress(psutil.NoSuchProcess):
            for each in psutil.Process(self.pid).children(recursive=True):
                self._seen[each.pid] = each
        return [each for each in self._seen.values() if is_alive(each)]

    def runner_processes(self) -> list[psutil.Process]:
        """The runners below the node that live, the newest last."""
        found = []
        for each in self.children():
            with suppress(psutil.NoSuchProcess):
                if "exo_cli.engine.runner.child" in each.cmdline():
                    found.append(each)
        return sorted(found, key=lambda each: (each.create_time(), each.pid))

    def close(self) -> None:
        """End what was started here and still runs."""
        with suppress(psutil.NoSuchProcess):
            self.children() if self.node is not None else None
        for running in reversed(self._started):
            if running.process.poll() is None:
                running.process.send_signal(signal.SIGTERM)
        for running in reversed(self._started):
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(5)
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait()
        for child in self._seen.values():
            if is_alive(child):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        # Of a node that was killed it is still there, and not always below its home.
        self.paths.control_socket.unlink(missing_ok=True)

    # Asking without a process ------------------------------------------------------------------------------------

    def client(self) -> Client:
        """A connection to its node, as the commands have one."""
        return Client(Endpoint(f"unix:{self.paths.control_socket}"))

    def call(self, method: str, **params: Any) -> Item:
        """One question."""
        with self.client() as client:
            return client.call(method, **params)

    def show(self) -> Item | None:
        """What the node says of itself; None when it does not answer."""
        with suppress(ExoError):
            return self.call("node")["item"]
        return None

    def nodes(self) -> list[Item]:
        """The nodes of the cluster, as this one sees them."""
        return self.call("nodes")["items"]

    def runners(self) -> list[Item]:
        """The runners of the cluster, as this node sees them."""
        return self.call("runners")["items"]

    def place(self, model: str, script: Path, **params: Any) -> str:
        """Place a scripted model and wait until it is ready; the instance's id."""
        with self.client() as client:
            placed = client.call("place", model=model, engine=f"scripted:{script}", new=True, **params)["item"]
            waiting = client.stream("wait", instance_id=placed["instance_id"], timeout_seconds=30, **{"for": "ready"})
            for _ in waiting:
                pass
        return str(placed["instance_id"])

    def delete(self, *instance_ids: str) -> None:
        """Take instances off and wait until their runners are gone; the ones that are gone are fine."""
        with self.client() as client:
            for instance_id in instance_ids:
                with suppress(ExoError):
                    client.call("delete", instance_id=instance_id)
                for _ in client.stream("wait", instance_id=instance_id, timeout_seconds=30, **{"for": "deleted"}):
                    pass

    def clear(self) -> None:
        """Take everything off that is placed."""
        self.delete(*{str(item["instance_id"]) for item in self.call("instances")["items"]})

    def wait_idle(self, seconds: float = 2.0) -> None:
        """Until no stream is open and no task is at work on this node."""
        wait_until(lambda: self.call("status")["item"]["open_streams"] == 0, "no open stream", seconds)

    # What it leaves on disk --------------------------------------------------------------------------------------

    def log_bytes(self) -> int:
        """The size of its event log."""
        return sum(file.stat().st_size for file in self.paths.log.glob("*.log"))

    def records(self) -> list[Item]:
        """The records of its event log."""
        lines = [line for file in sorted(self.paths.log.glob("*.log")) for line in file.read_text().splitlines()]
        return [record for line in lines if "index" in (record := json.loads(line))]

    def record_counts(self) -> Counter[str]:
        """How many records there are of each kind."""
        return Counter(record["event"]["type"] for record in self.records())

    def files_with(self, needle: bytes) -> list[Path]:
        """The files below it that contain some bytes."""
        files = [file for file in self.path.rglob("*") if file.is_file() and not file.is_symlink()]
        return [file for file in files if needle in file.read_bytes()]


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that run."""
    return [each for each in processes if is_alive(each)]


def processes_of(home: Home) -> list[psutil.Process]:
    """The processes of this machine that run in a home, whoever started them."""
    found = []
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if each.environ().get("EXO_HOME") == str(home.path) and is_alive(each):
                found.append(each)
    return found


@dataclass
class BrokenHub:
    """A hub whose weights cannot be had: where it is, and how often it refused them."""

    address: str = ""
    refused: int = 0


@contextmanager
def broken_hub(status: int) -> Iterator[BrokenHub]:
    """A hub that knows `org/tiny`, and answers with `status` whoever asks for its files."""
    config = json.dumps(
        {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    ).encode()
    files = {"config.json": len(config), "model.safetensors": 4096}
    hub = BrokenHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.startswith("/api/models/org/tiny/revision/"):
                siblings = [{"rfilename": name, "size": size, "blobId": "0" * 40} for name, size in files.items()]
                info = {"id": "org/tiny", "modelId": "org/tiny", "sha": "c" * 40, "siblings": siblings}
                self._send(200, json.dumps(info).encode())
            elif self.path.endswith("/config.json"):
                self._send(200, config)
            else:
                hub.refused += self.path.endswith("/model.safetensors")
                self._send(status, b"{}")

        def _send(self, code, body):
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
