"""A real runner child over real pipes, as a test drives it. Every wait has a limit."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time

from exo_cli.engine.core.cards import ModelCard
from exo_cli.engine.core.shards import Instance, Shard
from exo_cli.engine.core.tasks import ChatMessage, ChatParams, Sampling
from exo_cli.engine.runner.frames import (
    REPORTS,
    Assign,
    Done,
    Generate,
    Load,
    Memory,
    StatusReport,
    Step,
    Warmup,
    encode,
)

PATIENCE_SECONDS = 60


def an_instance(engine, *, layers=4, ranks=1, borders=None, context=512, strategy="pipeline"):
    borders = borders or [layers * rank // ranks for rank in range(ranks + 1)]
    card = ModelCard(
        model_id="tiny", n_layers=layers, hidden_size=32, n_heads=4, n_kv_heads=2, head_dim=8, vocab_size=256,
        storage_bytes=100_000, embedding_bytes=10_000, context_length=context, family="llama",
    )  # fmt: skip
    shards = tuple(
        Shard(
            runner_id=f"i-1-{rank}", node_id=f"n-{rank}", rank=rank, world_size=ranks,
            start_layer=borders[rank], end_layer=borders[rank + 1], n_layers=layers,
        )
        for rank in range(ranks)
    )  # fmt: skip
    return Instance(
        instance_id="i-1", model_card=card, engine=engine, strategy=strategy, context_tokens=context, shards=shards
    )


def a_chat(text="hello", *, stop=(), **sampling):
    return ChatParams(messages=(ChatMessage(role="user", content=text),), sampling=Sampling(**sampling), stop=stop)


class Child:
    """One process. Reports are taken with `next` or `until`; what came is kept in `reports`."""

    def __init__(self, *arguments, env=None, cache=None):
        more = ["--cache", str(cache)] if cache else []
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "exo_cli.engine.runner.child", *more, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(env or {})},
        )  # fmt: skip
        self.pid = self._process.pid
        self.reports = []
        self.errors = b""
        self._lines = queue.SimpleQueue()
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """End it if it lives, and read what it left; may be called again."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def send(self, *orders):
        self._process.stdin.write(b"".join(map(encode, orders)))
        self._process.stdin.flush()

    def send_bytes(self, data):
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def end_of_file(self):
        self._process.stdin.close()

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self, seconds=PATIENCE_SECONDS):
        return self._process.wait(seconds)

    def alive(self):
        return self._process.poll() is None

    def next(self, seconds=PATIENCE_SECONDS):
        line = self._lines.get(timeout=seconds)
        if line is None:
            raise EOFError(self.errors.decode())
        report = REPORTS.validate_json(line)
        self.reports.append(report)
        return report

    def until(self, wanted, seconds=PATIENCE_SECONDS):
        """The first report for which `wanted` holds; all before it are kept in `reports`."""
        deadline = time.monotonic() + seconds
        while not wanted(report := self.next(max(0.001, deadline - time.monotonic()))):
            pass
        return report

    def rest(self, seconds=PATIENCE_SECONDS):
        """All reports up to the end of the pipe."""
        with contextlib.suppress(EOFError):
            self.until(lambda _: False, seconds)
        return self.reports

    def until_status(self, name, seconds=PATIENCE_SECONDS):
        return self.until(lambda r: isinstance(r, StatusReport) and r.status.type == name, seconds).status

    def until_done(self, task_id, seconds=PATIENCE_SECONDS):
        return self.until(lambda r: isinstance(r, Done) and r.task_id == task_id, seconds)

    def until_tokens(self, count, seconds=PATIENCE_SECONDS):
        seen = 0

        def enough(report):
            nonlocal seen
            seen += report.tokens if isinstance(report, Step) else 0
            return seen >= count

        return self.until(enough, seconds)

    def make_ready(self, engine="mlx", *, model="/none", threads=1, precision="auto", **instance):
        placed = an_instance(engine, **instance)
        self.send(Assign(instance=placed, runner_id="i-1-0", threads=threads, precision=precision))
        self.send(Load(model_path=str(model)), Warmup())
        self.until_status("RunnerReady")
        self.until(lambda report: isinstance(report, Memory))
        self.reports.clear()

    def ask(self, task_id="t-1", text="hello", **sampling):
        self.send(Generate(task_id=task_id, params=a_chat(text, **sampling)))

    def text_of(self, task_id):
        return "".join(
            part.text for report in self.reports if isinstance(report, Step) for part in report.texts
            if part.task_id == task_id
        )  # fmt: skip

    def statuses(self):
        return [report.status.type for report in self.reports if isinstance(report, StatusReport)]

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self):
        for line in self._process.stderr:
            self.errors += line
