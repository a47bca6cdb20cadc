"""`exo replay --step` on a terminal: keys move, a text is found, and the terminal is given back as it was."""

import os
import pty
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

LOG = Path("tests/data/recordings/node-lost.bin.zst").resolve()


class Walker:
    """The command on a terminal of its own."""

    def __init__(self, program, *words):
        self.terminal, self.other = pty.openpty()
        termios.tcsetwinsize(self.terminal, (30, 120))
        self.before = termios.tcgetattr(self.other)
        self.process = subprocess.Popen(
            [program, "replay", str(LOG), "--step", *words],
            stdin=self.other,
            stdout=self.other,
            stderr=self.other,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
        )
        self.seen = ""

    def press(self, keys, shows):
        """Press keys, and wait until something is shown after it."""
        self.seen = ""
        os.write(self.terminal, keys.encode())
        self.wait_shows(shows)

    def wait_shows(self, text):
        end = time.monotonic() + 10
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.seen += os.read(self.terminal, 65536).decode(errors="replace")

    def wait_ends(self):
        self.wait_shows("\x1b[?1049l")
        code = self.process.wait(10)
        assert termios.tcgetattr(self.other) == self.before
        return code

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)
        os.close(self.other)


@pytest.fixture
def walker(program_path):
    walker = Walker(program_path)
    yield walker
    walker.close()


def test_keys_move_find_and_leave(walker):
    walker.wait_shows("record 0 (1 of 93)")
    walker.press("\x1b[C", "record 1 (2 of 93)")
    walker.press("ll", "record 3 (4 of 93)")
    walker.press("\x1b[D", "record 2 (3 of 93)")
    walker.press("\x1b[6~", "(23 of 93)")
    walker.press("G", "record 112 (93 of 93)")
    walker.press("lh", "record 111 (92 of 93)")
    walker.press("/NodeTimedOut\r", "record 96 (")
    assert "stale_runner runner-795e8229451abd81" in walker.seen
    walker.press("/is placed\r", "record 15 (")
    walker.press("n", "record 48 (")
    walker.press("\x1b[3~l", "record 49 (")
    walker.press("N", "record 48 (")
    walker.press("N", "record 15 (")
    walker.press("/moon\r", "nowhere 'moon'")
    walker.press("/x\x1bl", "record 16 (")
    walker.press("\x1b[H", "record 0 (1 of 93)")
    os.write(walker.terminal, b"q")
    assert walker.wait_ends() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_that_ends_it_finds_the_terminal_given_back(walker, number):
    walker.wait_shows("record 0 (1 of 93)")
    walker.process.send_signal(number)
    assert walker.wait_ends() == -number


def test_a_screen_of_another_size_is_drawn_again(walker):
    walker.wait_shows("record 0 (1 of 93)")
    walker.seen = ""
    termios.tcsetwinsize(walker.other, (12, 60))
    walker.wait_shows("…")


def test_beyond_the_end_is_not_there(walker, program_path):
    other = Walker(program_path, "--at", "999")
    try:
        other.wait_shows("its last one is 112")
        assert other.process.wait(10) == 3
    finally:
        other.close()


def test_an_interrupt_gives_the_terminal_back(walker):
    walker.wait_shows("record 0 (1 of 93)")
    walker.process.send_signal(signal.SIGINT)
    assert walker.wait_ends() == -signal.SIGINT


def test_without_a_terminal_it_says_so(program_path):
    ended = subprocess.run(
        [program_path, "replay", str(LOG), "--step"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert "--step needs a terminal" in ended.stderr
