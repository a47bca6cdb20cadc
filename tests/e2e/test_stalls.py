"""Runners that show no progress: given up while they owe something, started again, and never merely for being busy."""

import pytest

from tests.e2e.cluster import FOR_EVER, alive, wait_until

# Twice what the slowest step of a healthy start takes on two busy cores.
STALL_SECONDS = 6


@pytest.fixture
def impatient(new_home):
    """A function that makes a home whose node gives runners up soon."""

    def make():
        home = new_home()
        home.environment |= {"EXO_STALL_SECONDS": str(STALL_SECONDS)}
        return home

    return make


@pytest.mark.long
def test_one_that_never_reads_its_prompt_is_given_up_by_name_and_serves_again(impatient, script, tmp_path):
    home = impatient()
    home.start()
    once = script(f"once {tmp_path / 'was-here'} block hard", 'repeat 3 token "w{n} "')
    home.place("m", once)
    [process] = home.runner_processes()
    chat = home.exo("chat", "hello")
    chat.failed(7, f"no progress for {STALL_SECONDS} s while reading a prompt")
    assert STALL_SECONDS - 1 < chat.seconds < STALL_SECONDS + 5
    assert not alive([process])
    wait_until(lambda: "no progress" in (home.runners()[0]["last_error"] or ""), "the reason in exo runners", 2)
    assert home.runners()[0]["failures"] == 1
    assert home.exo("chat", "hello").ok().out == "w0 w1 w2 \n"


@pytest.mark.long
def test_one_that_was_stopped_while_idle_is_found_by_the_next_request(impatient, script):
    home = impatient()
    home.start()
    home.place("m", script('repeat 3 token "w{n} "'))
    [process] = home.runner_processes()
    process.suspend()
    home.exo("chat", "hello").failed(7, f"no progress for {STALL_SECONDS} s while taking up a request")
    assert home.exo("chat", "hello").ok().out == "w0 w1 w2 \n"


@pytest.mark.long
def test_who_waits_in_line_longer_than_that_is_answered(impatient, script):
    home = impatient()
    home.start()
    home.place("m", script("rate 10", 'repeat 90 token "w{n} "'))
    [process] = home.runner_processes()
    chats = [home.begin("chat", "hello") for _ in range(2)]
    ends = [chat.wait(40).ok() for chat in chats]
    assert max(end.seconds for end in ends) > 2 * STALL_SECONDS
    assert home.runner_processes() == [process]


@pytest.mark.long
@pytest.mark.model
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_stopped_ends_the_chat_and_the_group_begins_anew(impatient, rank):
    homes = impatient(), impatient()
    homes[0].start(name="first", core=0)
    homes[1].start(name="second", peer=homes[0], core=1)
    wait_until(lambda: all(len(home.nodes()) == 2 for home in homes), "two nodes that see each other")
    homes[0].exo("place", "smollm2", "--min-nodes", 2, "--strategy", "pipeline", seconds=100).ok()
    node_id = next(each["node_id"] for each in homes[0].runners() if each["rank"] == rank)
    [stopped] = next(home for home in homes if home.show()["node_id"] == node_id).runner_processes()
    before = [each.pid for home in homes for each in home.runner_processes()]
    # At temperature 0 the answer is long; a drawn one may be a word, over before the rank is stopped.
    chat = homes[0].begin("chat", "Tell a long story about a dragon.", "--temperature", 0, *FOR_EVER)
    chat.wait_says("dragon", 60)
    stopped.suspend()
    # Whichever of them it is, rank 0 is the one that owes tokens.
    chat.wait(30).failed(7, "-0 failed", f"no progress for {STALL_SECONDS} s while decoding")
    assert homes[0].exo("chat", "hello", "--max-tokens", 2, seconds=100).ok().out
    assert not {each.pid for home in homes for each in home.runner_processes()} & set(before)
