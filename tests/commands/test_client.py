"""The client: every way in which a node can be absent, hang, lie or stop in the middle ends in one clear error."""

import socket
import time
from pathlib import Path

import pytest

from exo_cli.engine.client import Client, local
from exo_cli.engine.client.endpoint import Endpoint, error_of, local_endpoint
from exo_cli.engine.core.errors import (
    BadStateError,
    ConflictError,
    ExitCode,
    ExoError,
    FailedError,
    NotFoundError,
    UnavailableError,
)
from tests.fakes_control import HELLO, FakeNode, error, result, script


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the node's socket is."""
    return tmp_path / "control.sock"


def _client(path: Path, source: str | None = None) -> Client:
    return Client(Endpoint(f"unix:{path}", source))


def _reason(caught: pytest.ExceptionInfo[UnavailableError]) -> object:
    return caught.value.details["reason"]


def test_a_call_has_its_result(path: Path) -> None:
    with FakeNode(path, {"status": result({"revision": 3})}) as node, _client(path) as client:
        assert client.hello["node_id"] == HELLO["node_id"]
        assert client.call("status", a=1) == {"revision": 3}
        assert node.asked == [{"id": 1, "method": "status", "params": {"a": 1}}]


def test_a_stream_yields_events_and_returns_its_result(path: Path) -> None:
    with FakeNode(path, {"wait": script({"n": 1}, {"n": 2}, ends={"item": {}})}), _client(path) as client:
        stream = client.stream("wait")
        assert [next(stream), next(stream)] == [{"n": 1}, {"n": 2}]
        with pytest.raises(StopIteration) as end:
            next(stream)
        assert end.value.value == {"item": {}}


@pytest.mark.parametrize("code", [code for code in ExitCode if code])
def test_an_error_keeps_its_code_and_hints(path: Path, code: ExitCode) -> None:
    refusal = FailedError("no", "exo runners", code="odd", exit_code=code, details={"a": 1})
    with FakeNode(path, {"place": error(refusal)}), _client(path) as client, pytest.raises(ExoError) as caught:
        client.call("place")
    assert (caught.value.exit_code, caught.value.code, caught.value.hints) == (code, "odd", ("exo runners",))
    assert caught.value.details == {"a": 1}


def test_a_node_that_has_no_master_says_so_also_to_who_has_a_deadline(path: Path) -> None:
    methods = {"wait": error(UnavailableError("no master"))}
    with FakeNode(path, methods), _client(path) as client, pytest.raises(UnavailableError) as caught:
        next(client.stream("wait", deadline_seconds=5))
    assert (caught.value.message, caught.value.details) == ("no master", {})


def test_errors_are_of_the_class_of_their_code() -> None:
    assert isinstance(error_of({"exit": 3, "message": "x"}), NotFoundError)
    assert isinstance(error_of({"exit": 7, "message": "x"}), BadStateError)
    assert error_of({"exit": 99}).exit_code is ExitCode.FAILED


def test_nobody_there_names_the_endpoint_and_who_chose_it(path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        _client(path, "EXO_ENDPOINT")
    assert _reason(caught) == "absent"
    assert f"unix:{path} (from EXO_ENDPOINT)" in caught.value.message


def test_a_socket_left_behind_is_nobody(path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with pytest.raises(UnavailableError) as caught:
        _client(path)
    assert _reason(caught) == "absent"


def test_a_path_too_long_for_a_socket_is_nobody(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        _client(tmp_path / ("x" * 200))


def test_a_node_that_does_not_greet_is_hung(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "CONNECT_SECONDS", 0.1)
    with FakeNode(path, {}, hello=None), pytest.raises(UnavailableError) as caught:
        _client(path)
    assert _reason(caught) == "hung"


def test_something_else_that_answers_is_foreign(path: Path) -> None:
    with FakeNode(path, {}, hello={"ftp": 220}), pytest.raises(UnavailableError) as caught:
        _client(path)
    assert _reason(caught) == "foreign"


@pytest.mark.parametrize(("spoken", "older"), [(0, "the node is the older"), (2, "the command is the older")])
def test_another_protocol_says_which_side_is_old(path: Path, spoken: int, older: str) -> None:
    with FakeNode(path, {}, hello={**HELLO, "control": spoken}), pytest.raises(ConflictError, match=older):
        _client(path)


def test_an_answer_that_is_overdue(path: Path) -> None:
    with FakeNode(path, {"status": script(ends=None)}), _client(path) as client:
        began = time.monotonic()
        with pytest.raises(UnavailableError) as caught:
            client.call("status", deadline_seconds=0.1)
        assert time.monotonic() - began < 1
    assert _reason(caught) == "hung"


def test_a_node_that_ends_in_the_middle_is_lost(path: Path) -> None:
    with FakeNode(path, {"chat": script({"n": 1}, ends=None)}) as node, _client(path) as client:
        stream = client.stream("chat")
        next(stream)
        node.close()
        with pytest.raises(UnavailableError) as caught:
            next(stream)
    assert _reason(caught) == "lost"


def test_silence_is_no_failure_while_the_node_greets(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SILENCE_SECONDS", 0.05)
    with FakeNode(path, {"chat": script({"n": 1}, ends=None)}) as node, _client(path) as client:
        stream = client.stream("chat")
        next(stream)
        monkeypatch.setattr(local, "CONNECT_SECONDS", 0.1)
        before = node.connections
        node.hello = HELLO

        def stop_greeting(_self: object) -> None:
            node.hello = None

        original = local.LocalLink.close
        # The first probe is greeted, the second is not: the silence then ends as a hung node.
        monkeypatch.setattr(local.LocalLink, "close", lambda link: (original(link), stop_greeting(link)))
        with pytest.raises(UnavailableError) as caught:
            next(stream)
        monkeypatch.setattr(local.LocalLink, "close", original)
        assert node.connections - before == 2
    assert _reason(caught) == "hung"


def test_a_stream_closed_early_is_cancelled_and_its_rest_passed_over(path: Path) -> None:
    with FakeNode(path, {"chat": script({"n": 1}, {"n": 2}, ends={}), "status": result({"ok": 1})}) as node:
        with _client(path) as client:
            stream = client.stream("chat")
            next(stream)
            stream.close()
            assert client.call("status") == {"ok": 1}
        node.wait_asked({"id": 1, "cancel": True})


def test_renewing_opens_before_it_closes(path: Path) -> None:
    with FakeNode(path, {"status": result({})}) as node, _client(path) as client:
        client.renew()
        assert client.call("status") == {}
        assert node.connections == 2


def test_the_local_endpoint_is_this_homes(home: Path) -> None:
    assert local_endpoint() == Endpoint(f"unix:{home}/run/control.sock")
