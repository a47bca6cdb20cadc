"""The real small model through the whole program: alone, placed, and split over two nodes."""

import pytest

from tests.e2e.cluster import processes_of, wait_until

# A ring of two ranks beside other busy processes is many times slower than alone.
pytestmark = [pytest.mark.model, pytest.mark.timeout(400)]

QUESTION = "What is the capital of France? Answer in one sentence."
OTHER = "Write two sentences about the sea."
GREEDY = ("--temperature", 0)


@pytest.fixture(scope="module")
def pair(new_home):
    """Two nodes that know each other, with the model on the first."""
    first, second = new_home(), new_home()
    first.start(name="first", core=0)
    second.start(name="second", peer=first, core=1)
    wait_until(lambda: len(first.nodes()) == len(second.nodes()) == 2, "two nodes that see each other")
    first.exo("place", "smollm2", "--nodes", "first", seconds=100).ok()
    return first, second


def ask(home, *words):
    """What it answers, with the figures."""
    return home.exo("chat", "-o", "json", *words, seconds=100).ok().item


def test_a_chat_without_a_node_answers(new_home):
    home = new_home()
    said = home.exo("chat", *GREEDY, "--no-stdin", "--", QUESTION, seconds=100).ok()
    assert "Paris" in said.out
    assert "loading" in said.err
    wait_until(lambda: not processes_of(home), "no process left", 5)


@pytest.mark.long
def test_a_placed_model_answers_as_it_is_told(pair):
    first, second = pair
    said = ask(first, QUESTION, *GREEDY)
    assert "Paris" in said["text"]
    assert said["finish_reason"] == "stop"
    assert said["usage"]["prompt_tokens"] > said["usage"]["tokens"] > 3
    assert second.exo("chat", QUESTION, *GREEDY).ok().out == said["text"].rstrip("\n") + "\n"

    short = ask(first, QUESTION, *GREEDY, "--max-tokens", 4)
    assert (short["usage"]["tokens"], short["finish_reason"]) == (4, "length")
    assert said["text"].startswith(short["text"])
    stopped = ask(first, QUESTION, *GREEDY, "--stop", "Paris", "--stop", "never comes")
    assert stopped["text"] == said["text"].partition("Paris")[0]
    assert stopped["finish_reason"] == "stop"

    warm = ("--temperature", 1, "--max-tokens", 12)
    again = [ask(first, OTHER, *warm, "--seed", 7)["text"] for _ in range(2)]
    assert again[0] == again[1]
    assert ask(first, OTHER, *warm, "--seed", 8)["text"] != again[0]
    unseeded = ask(first, OTHER, *warm)
    assert unseeded["seed"] is not None
    assert ask(first, OTHER, *warm, "--seed", unseeded["seed"])["text"] == unseeded["text"]


@pytest.mark.long
def test_a_model_split_over_two_nodes_says_the_same(pair):
    first, second = pair
    alone = [ask(first, prompt, *GREEDY, "--max-tokens", 16)["text"] for prompt in (QUESTION, OTHER)]
    first.clear()
    wide = first.exo(
        "place", "smollm2", "--min-nodes", 2, "--strategy", "pipeline", "-o", "json", seconds=100
    ).ok()  # fmt: skip
    layers = sorted(runner["layers"] for runner in second.runners())
    assert layers[0][0] == 0
    assert layers[0][1] == layers[1][0]
    assert {runner["node_id"] for runner in first.runners()} == {item["node_id"] for item in first.nodes()}
    assert len(wide.item["runners"]) == 2
    split = [ask(second, prompt, *GREEDY, "--max-tokens", 16)["text"] for prompt in (QUESTION, OTHER)]
    assert split == alone
    assert "Paris" in split[0]
    first.exo("delete", wide.item["instance_id"]).ok()
    assert first.runner_processes() + second.runner_processes() == []
