"""Nodes in the background: wherever an interrupt comes, no process is left that nobody knows."""

import signal
import sys
import time
from contextlib import suppress

import psutil
import pytest

from exo_cli.engine.client import background


@pytest.fixture
def program(tmp_path, monkeypatch):
    """What is started instead of a node: it stays until it is ended."""
    path = tmp_path / "sleeper"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(path))
    return path


def interrupted(log, place):
    """Begin one, and be interrupted at the so-many-th line of it; whether it has so many."""
    lines = 0

    def trace(frame, event, _argument):
        nonlocal lines
        if frame.f_code.co_filename != background.__file__:
            return None
        if event == "line":
            lines += 1
            if lines == place:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt), background.started(log):
            sys.settrace(None)
            return False
    finally:
        sys.settrace(None)
    return True


def alive():
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found


# Nobody waits for what is ended: the command ends as well.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_wherever_an_interrupt_comes_nobody_is_left(program, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        place = 1
        while interrupted(tmp_path / "state" / "node.log", place):
            end = time.monotonic() + 5
            while left := alive():
                assert time.monotonic() < end, (place, left)
                time.sleep(0.005)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            place += 1
        assert place > 20, "it was interrupted nearly everywhere"
        [process] = alive()
        process.kill()
        for each in psutil.Process().children():
            each.wait(5)
    finally:
        signal.signal(signal.SIGINT, before)
