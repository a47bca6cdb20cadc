"""Remote: a running public system, played by a small server with what one has recorded."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from exo_cli.engine.core.errors import BadDataError, UnavailableError, UsageError
from exo_cli.engine.replaying import replay
from tests.e2e.cluster import free_port
from tests.engine.test_recordings import EXPECTED, events_in, final_state, findings


@contextmanager
def serving(pages):
    """A server on loopback; a page is a code and bytes, `None` in front of bytes promises more than comes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            code, body = pages.get(self.path, (404, b"{}"))
            self.send_response(code or 200)
            self.send_header("Content-Length", str(len(body) + (0 if code else 100)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def pages_of(name, more=0, **changed):
    state = json.loads(final_state(name).read_text()) | changed
    events = events_in(name)
    return {
        "/state": (200, json.dumps(state).encode()),
        "/events": (200, json.dumps([*events, *events[-1:] * more]).encode()),
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_its_log_adds_up_to_its_state(name):
    with serving(pages_of(name)) as url:
        answer = replay(url, check=True)
        assert answer["item"]["compared"] == []
        assert findings(answer) == EXPECTED[name]
        assert answer["exit_code"] == (1 if EXPECTED[name] else 0)
        assert replay(f"{url}/")["exit_code"] == 0


def test_events_that_came_since_it_told_its_state_are_left_out():
    with serving(pages_of("clean.bin", more=5)) as url:
        answer = replay(url)
        assert (answer["revision"], answer["item"]["compared"]) == (77, [])
        assert "compared" not in replay(url, at=80)["item"]


def test_where_its_state_is_another():
    with serving(pages_of("stale-after-crash.bin", runners={})) as url:
        answer = replay(url, check=True)
        [difference] = answer["item"]["compared"]
        assert answer["exit_code"] == 10
        assert difference["path"] == "runners.runner-2217beaddbc496cb"
        assert (difference["ours"][0], difference["theirs"]) == ("RunnerFailed", None)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"/state": (500, b"")}, "HTTP 500"),
        ({"/state": (200, b"<html>")}, "is not what"),
        ({"/state": (200, b"[" * 100_000)}, "is not what"),
        ({"/state": (200, b"[]")}, "no object"),
        ({"/state": (200, b"{}")}, "lastEventAppliedIdx"),
        ({"/state": (200, b'{"lastEventAppliedIdx": 77}')}, "is missing"),
        ({"/state": (200, b'{"lastEventAppliedIdx": 77, "runners": [1]}')}, "is missing"),
        ({"/events": (404, b"")}, "HTTP 404"),
        ({"/events": (200, b"<html>")}, "header|no log"),
        ({"/events": (200, b"[7]")}, "is damaged"),
    ],
)
def test_somebody_else_who_answers(changed, says):
    with serving(pages_of("clean.bin") | changed) as url, pytest.raises(BadDataError, match=says):
        replay(url)


def test_an_answer_that_breaks_off():
    pages = pages_of("clean.bin")
    cut = {"/events": (None, pages["/events"][1][:2000])}
    with serving(pages | cut) as url, pytest.raises((UnavailableError, BadDataError)):
        replay(url)


def test_nobody_there():
    with pytest.raises(UnavailableError, match="does not answer"):
        replay(f"http://127.0.0.1:{free_port()}")
    for url in ("http://", "http:///x"):
        with pytest.raises(UsageError, match="no host"):
            replay(url)
