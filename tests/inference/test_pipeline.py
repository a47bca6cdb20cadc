"""A model alone and the same split over ranks: equal to the last bit, on a real ring of processes on 127.0.0.1."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import mlx.core as mx
import numpy as np
import pytest

from exo_cli.engine.inference import EngineError
from exo_cli.engine.inference.families import FAMILIES, whole_mlx_lm
from exo_cli.engine.inference.generate import Alone
from exo_cli.engine.inference.parallel.pipeline import Follower, Lead
from exo_cli.engine.inference.parallel.ring import Op
from exo_cli.engine.runner.frames import Assign, Cancel, Connect, Done, Generate, Load, Stop, Warmup
from tests.inference.one_rank import CHUNK, PROMPT, load
from tests.inference.tiny import CONTEXT, LAYERS, write_model
from tests.runner.a_child import Child, a_chat, an_instance

RING_SECONDS = 90
PACKED = ("llama", "qwen3_moe")
FOR_THREE = ("llama", "qwen3", "qwen3_moe", "gemma3_text")
NAMES = [*FAMILIES, *(f"{family}-packed" for family in PACKED)]


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()


def digests(size, folders):
    """What rank 0 of a ring of that size says of each model."""
    addresses = free_addresses(size)
    command = [sys.executable, "-m", "tests.inference.one_rank"]
    with ExitStack() as stack:
        ranks = []
        for rank in range(size):
            process = subprocess.Popen(
                [*command, str(rank), ",".join(addresses), *map(str, folders)],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
            stack.callback(process.wait, 10)
            stack.callback(process.kill)
            ranks.append(process)
        outputs = [process.communicate(timeout=RING_SECONDS)[0] for process in ranks]
        assert [process.returncode for process in ranks] == [0] * size
    return dict(map(json.loads, outputs[0].splitlines()))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    room = tmp_path_factory.mktemp("models")
    return [write_model(room / name, name.removesuffix("-packed"), packed=name.endswith("-packed")) for name in NAMES]


@pytest.fixture(scope="module")
def alone(folders):
    return digests(1, folders)


@pytest.fixture(scope="module")
def of_two(folders):
    return digests(2, folders)


@pytest.fixture(scope="module")
def of_three(folders):
    return digests(3, [folder for folder in folders if folder.name in FOR_THREE])


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_compute_what_one_does(alone, of_two, name):
    assert len(set(alone[name])) == len(alone[name])
    assert of_two[name] == alone[name]


@pytest.mark.long
@pytest.mark.parametrize("name", FOR_THREE)
def test_three_ranks_compute_what_one_does(alone, of_three, name):
    assert of_three[name] == alone[name]


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_computes_what_the_model_of_mlx_lm_does(folders, name):
    """The parts put together here are the model as its authors wrote it: norm, head and cache in their places."""
    folder = folders[NAMES.index(name)]
    whole, _ = whole_mlx_lm("utils").load_model(folder)
    cache = whole_mlx_lm("models.cache").make_prompt_cache(whole)
    ours = Alone(load(folder, range(LAYERS)))
    ours.begin()
    for at in range(0, len(PROMPT), CHUNK):
        chunk = mx.array([PROMPT[at : at + CHUNK]])
        theirs = whole(chunk, cache=cache)[:, -1, :]
        logits = ours.feed(chunk, True)
        assert np.allclose(np.array(logits), np.array(theirs), atol=1e-5)


class Group:
    """Children that hold one tiny model together."""

    def __init__(self, stack, folder, size, **instance):
        self.instance = an_instance("mlx", layers=LAYERS, ranks=size, context=CONTEXT, **instance)
        self.children = [stack.enter_context(Child()) for _ in range(size)]
        addresses = tuple(free_addresses(size))
        for rank, child in enumerate(self.children):
            child.send(Assign(instance=self.instance, runner_id=f"i-1-{rank}", threads=1))
            child.send(Connect(ring=addresses), Load(model_path=str(folder)), Warmup())
        for child in self.children:
            child.until_status("RunnerReady", RING_SECONDS)

    def ask(self, task_id, text="hello", **sampling):
        self.children[0].send(Generate(task_id=task_id, params=a_chat(text, **sampling)))
        for child in self.children[1:]:
            child.send(Generate(task_id=task_id))

    def cancel(self, task_id):
        for child in self.children:
            child.send(Cancel(task_id=task_id))

    def done(self, task_id):
        return [child.until_done(task_id) for child in self.children]

    def text(self, task_id):
        return self.children[0].text_of(task_id)


def answer_alone(folder, text, **sampling):
    with Child() as child:
        child.make_ready(model=folder, layers=LAYERS, context=CONTEXT)
        child.ask("t-1", text, **sampling)
        child.until_done("t-1")
        return child.text_of("t-1")


def test_children_split_a_model_and_answer_as_one_does(folders):
    """Greedy and drawn, short and longer than a chunk; refused, cancelled and stopped ones in between."""
    folder = folders[NAMES.index("gemma3_text")]
    long = "many words " * 20
    greedy = answer_alone(folder, long, temperature=0, max_tokens=12)
    drawn = answer_alone(folder, "short", temperature=1, max_tokens=12, seed=5)
    with ExitStack() as stack:
        group = Group(stack, folder, 2)
        group.ask("t-1", long, temperature=0, max_tokens=12)
        group.done("t-1")
        assert group.text("t-1") == greedy
        group.ask("t-2", "x" * CONTEXT, max_tokens=3)
        assert [done.reason for done in group.done("t-2")] == ["error", "stop"]
        group.ask("t-3", "endless", temperature=1)
        group.ask("t-4", "waits", temperature=1)
        group.children[0].until_tokens(3)
        group.cancel("t-4")
        group.cancel("t-3")
        assert group.done("t-3")[0].reason == "cancelled"
        assert group.done("t-4")[0].reason == "cancelled"
        group.ask("t-5", "short", temperature=1, max_tokens=12, seed=5)
        group.done("t-5")
        assert group.text("t-5") == drawn
        for child in group.children:
            child.send(Stop())
        for child in group.children:
            child.rest()
            assert child.wait() == 0


class Link:
    """What a rank says to the next one, without a network; mlx's ring has the same three methods."""

    def __init__(self, rank, size, incoming, outgoing):
        self.rank, self.size = rank, size
        self._incoming, self._outgoing = incoming, outgoing

    def send(self, header, hidden=None):
        assert (hidden is not None) == (header.op is Op.STEP)
        self._outgoing.put((header, hidden))

    def receive(self):
        header, self._hidden = self._incoming.get(timeout=10)
        return header

    def receive_hidden(self, _header, _hidden_size):
        return self._hidden


class Layers:
    """A stage that adds one, and fails at the positions told."""

    hidden_size = 1

    def __init__(self, fails_at=()):
        self._fails_at, self._calls = fails_at, 0

    def new_cache(self):
        self._calls = 0
        return []

    def cached(self, _cache):
        return []

    def from_tokens(self, tokens, _cache):
        return tokens[..., None]

    def from_hidden(self, hidden, _cache):
        self._calls += 1
        if self._calls in self._fails_at:
            raise MemoryError("no room")
        return hidden + 1

    def logits(self, hidden):
        return hidden


def a_group(*fails_at):
    """Rank 0, and the others each in a thread that follows one task; what they raised is in the list."""
    size = len(fails_at) + 1
    wires = [queue.SimpleQueue() for _ in range(size)]
    links = [Link(rank, size, wires[rank - 1], wires[rank]) for rank in range(size)]
    raised = []

    def follow(follower):
        try:
            follower.follow()
        except MemoryError as error:
            raised.append(str(error))

    threads = []
    for rank, fails in enumerate(fails_at, 1):
        threads.append(threading.Thread(target=follow, args=(Follower(Layers(fails), links[rank]),)))
        threads[-1].start()
    return Lead(Layers(), links[0]), threads, raised


@pytest.mark.parametrize("size", [2, 3])
def test_positions_go_through_all_ranks(size):
    lead, threads, raised = a_group(*[()] * (size - 1))
    lead.begin()
    assert lead.feed(np.array([[5, 6, 7]]), False) is None
    assert lead.feed(np.array([[8, 9]]), True).tolist() == [[[9 + size - 1]]]
    lead.end()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert not raised


@pytest.mark.parametrize(("fails_at", "rank"), [(((2,), ()), 1), (((), (2,)), 2), (((1,), (1,)), 1)])
def test_a_rank_that_cannot_compute_is_named_and_nobody_waits_for_ever(fails_at, rank):
    lead, threads, raised = a_group(*fails_at)
    lead.begin()
    lead.feed(np.array([[5, 6, 7]]), False)
    for _ in range(2):
        with pytest.raises(EngineError, match=f"rank {rank} cannot compute"):
            lead.feed(np.array([[8]]), True)
    lead.end()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert raised == ["no room"]


def test_a_task_that_is_never_begun_lets_the_others_go():
    lead, threads, _ = a_group((), ())
    lead.end()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_ranks_that_have_nothing_to_do_do_not_spin(folders):
    with ExitStack() as stack:
        group = Group(stack, folders[0], 2)
        group.ask("t-1", max_tokens=2)
        group.done("t-1")
        import psutil

        def spent():
            return sum(sum(psutil.Process(child.pid).cpu_times()[:2]) for child in group.children)

        before = spent()
        time.sleep(1)
        assert spent() - before < 0.2


def test_a_rank_dies_with_its_node_also_while_it_waits_in_the_ring(folders):
    with ExitStack() as stack:
        group = Group(stack, folders[0], 2)
        # Only the follower is told: it waits in a collective for a rank 0 that has no task.
        group.children[1].send(Generate(task_id="t-1"))
        group.children[1].until_status("RunnerRunning")
        began = time.monotonic()
        group.children[1].end_of_file()
        assert group.children[1].wait(5) == 0
        assert time.monotonic() - began < 1


def test_a_rank_that_is_lost_takes_the_whole_group_with_it(folders, monkeypatch):
    """Also those that have no wire to it: each one that ends closes its own."""
    monkeypatch.setenv("EXO_RING_SECONDS", "10")
    with ExitStack() as stack:
        group = Group(stack, folders[0], 3)
        lead, victim, last = group.children
        group.ask("t-1", temperature=1)
        lead.until_tokens(3)
        victim.signal(signal.SIGKILL)
        for child in (lead, last):
            assert child.wait() == 1
            ends = [(each.reason, each.code) for each in child.rest() if isinstance(each, Done)]
            # mlx does not notice every time: then the process ends by its own patience, which its last words say.
            assert ends == [("error", "group_lost")] or b"for its group" in child.errors


def test_a_rank_that_waits_too_long_ends(folders, monkeypatch):
    monkeypatch.setenv("EXO_RING_SECONDS", "1")
    with ExitStack() as stack:
        group = Group(stack, folders[0], 2)
        group.children[1].send(Generate(task_id="t-1"))
        assert group.children[1].wait() == 1
        group.children[1].rest()
        assert b"rank 1 waited 1 s for its group" in group.children[1].errors


def test_a_ring_that_does_not_come_about_fails_the_runner():
    with Child() as child:
        child.send(Assign(instance=an_instance("mlx", ranks=2), runner_id="i-1-0", threads=1))
        child.send(Connect(ring=("127.0.0.1:1", "256.0.0.1:1")))
        failed = child.until_status("RunnerFailed", 60)
        assert failed.phase == "RunnerConnecting"
        assert "ring" in (failed.error_message or "")
