"""chat as a session on a terminal: what it remembers, and that an answer can end badly without ending it."""

import os
import pty
import signal
import subprocess
import time

import pytest

from exo_cli.engine.core.errors import BadStateError
from tests.fakes_control import STARTED, answers, chunks, script


class Session:
    """The program on a pseudo-terminal."""

    def __init__(self, path, *words):
        self.terminal, other = pty.openpty()
        self.process = subprocess.Popen(
            [path, "chat", *words],
            stdin=other,
            stdout=other,
            stderr=other,
            env={**os.environ, "TERM": "dumb"},
            start_new_session=True,
        )
        os.close(other)
        self.seen = ""

    def type(self, text):
        os.write(self.terminal, text.encode())

    def wait_shows(self, text):
        """Read until the text is there; what came up to it is done with."""
        end = time.monotonic() + 10
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            try:
                self.seen += os.read(self.terminal, 4096).decode()
            except OSError:
                break
        before, found, self.seen = self.seen.partition(text)
        assert found, before
        return before

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@pytest.fixture
def session(program_path):
    """Begin sessions; they end with the test."""
    begun = []

    def start(*words):
        begun.append(Session(program_path, *words))
        return begun[-1]

    yield start
    for each in begun:
        each.end()


def test_a_session_remembers_forgets_and_leaves(session, node):
    asked = node(chat=answers("Hello.")).asked
    talk = session("--system", "be brief")
    talk.wait_shows("> ")
    for line in ("hi", "again", "/clear", "anew", "/bogus"):
        talk.type(line + "\n")
        if not line.startswith("/"):
            talk.wait_shows("Hello.")
        talk.wait_shows("> ")
    talk.type("\x04")
    assert talk.process.wait(timeout=5) == 0
    turns = [[message["role"] for message in each["params"]["messages"]] for each in asked]
    assert turns == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
        ["system", "user"],
    ]


def test_ctrl_c_ends_an_answer_and_not_the_session(session, node):
    fake = node(chat=script(STARTED, *chunks("The cap"), ends=None))
    talk = session()
    talk.wait_shows("> ")
    talk.type("hi\n")
    talk.wait_shows("The cap")
    talk.process.send_signal(signal.SIGINT)
    talk.wait_shows("> ")
    fake.methods["chat"] = answers("Hello.")
    talk.type("hi\n")
    talk.wait_shows("Hello.")
    assert fake.asked[-1]["params"]["messages"] == [{"role": "user", "content": "hi"}]
    talk.wait_shows("> ")
    talk.type("/exit\n")
    assert talk.process.wait(timeout=5) == 0


def test_an_error_ends_a_turn_and_not_the_session(session, node):
    fake = node(chat=script(ends=BadStateError("the runner died", "exo runners")))
    talk = session()
    talk.wait_shows("> ")
    talk.type("hi\n")
    talk.wait_shows("the runner died")
    fake.methods["chat"] = answers("\x1b[31mHello.")
    talk.type("hi\n")
    talk.wait_shows("\\x1b[31mHello.")
    talk.wait_shows("> ")
    talk.type("\x04")
    assert talk.process.wait(timeout=5) == 0
