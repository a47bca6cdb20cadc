"""The logs of three real nodes side by side, and a log that is followed while its node writes it."""

import json
import signal

import pytest

from tests.e2e.cluster import wait_until


@pytest.mark.long
def test_a_failure_that_its_node_could_not_report_is_found_from_all_three_and_from_no_single_log(new_home, script):
    homes = first, second, third = new_home(), new_home(), new_home()
    engine = script('repeat 3 token "w{n} "')
    first.start(engine=engine, name="first")
    second.start(engine=engine, name="second", peer=first)
    third.start(engine=engine, name="third", peer=first)
    wait_until(lambda: all(len(home.nodes()) == 3 for home in homes), "three nodes that see each other")
    first.exo("place", "wide", "--min-nodes", 3, "--strategy", "pipeline").ok()
    mine = third.show()["node_id"]
    [runner_id] = [each["runner_id"] for each in third.runners() if each["node_id"] == mine]
    # Nobody is left to report to: then a runner of the third node dies, and so does the node.
    first.kill()
    [process] = third.runner_processes()
    process.kill()
    wait_until(lambda: b'"kind":"failed"' in _journal(third), "the journal of the third node")
    third.kill()
    second.stop()
    paths = [home.path for home in homes]
    for path in paths:
        alone = second.exo("replay", path, "--check", "-o", "json").item
        assert all(each["id"] != runner_id for each in alone["findings"]), alone
    compared = second.exo("replay", *paths, "--check", "-o", "json", HOME="/nonexistent")
    assert compared.code == 1, compared
    [unreported] = [each for each in compared.item["findings"] if each["kind"] == "unreported"]
    assert unreported["id"] == runner_id
    assert f"node {mine} knew at " in unreported["why"]
    assert "signal 9" in unreported["why"]
    assert compared.item["first_difference"] is None
    story = second.exo("replay", *paths, "--explain", runner_id).ok()
    assert "(in no log)" in story.out
    assert f"finding: unreported, since record {unreported['since_index']}" in story.out
    said = second.exo("replay", *paths)
    assert "the same up to record" in said.out
    assert said.code == 0


def _journal(home):
    return b"".join(file.read_bytes() for file in (home.path / "state" / "journal").glob("*.jsonl"))


def test_a_log_is_followed_while_its_node_writes_it(new_home, script):
    home = new_home()
    home.start(engine=script('token "a"'))
    following = home.begin("replay", "--follow", "-o", "jsonl", "--filter", "type=InstanceCreated")
    instance_id = home.place("tiny", script('token "b"'))
    following.wait_says("}\n")
    rows = [json.loads(line) for line in following.out.splitlines()]
    assert any(instance_id in row["what"] for row in rows)
    following.process.send_signal(signal.SIGINT)
    following.wait(5).failed(-signal.SIGINT)
