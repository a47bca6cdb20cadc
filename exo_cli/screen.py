"""The screen: a terminal that is drawn as a whole, and the keys that are pressed at it.

It is given back as it was, however the block ends.
"""

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

_HEEDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
_LOOK_SECONDS: Final = 0.2  # at the size; a signal would tell at once, but from the middle of anything
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
# What a terminal sends for a key that has no letter: control sequences of ECMA-48, and those of application mode.
_SEQUENCE: Final = re.compile(r"\x1b(\[[0-9;]*[@-~]|O[A-Z])")
_KEYS: Final = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left",
    "\x1bOA": "up", "\x1bOB": "down", "\x1bOC": "right", "\x1bOD": "left",
    "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1b[F": "end", "\x1b[1~": "home", "\x1b[4~": "end", "\x1bOH": "home", "\x1bOF": "end",
    "\r": "enter", "\n": "enter", "\x7f": "back", "\x08": "back", "\x1b": "escape",
}  # fmt: skip


class Screen:
    """The terminal of this process, for as long as the block lasts: also a signal that ends it, or stops it for a
    while, finds it given back.
    """

    def __init__(self) -> None:
        """Nothing is drawn yet."""
        self._fd, self._before, self._pressed = sys.stdin.fileno(), list[Any](), ""
        self._drawn: Sequence[str] = ("",)
        self._size = 0, 0
        self._handlers: dict[int, Any] = {}

    @staticmethod
    def is_there() -> bool:
        """Whether there is one on both sides: to draw on, and to press keys at."""
        return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> "Screen":
        """Take it."""
        self._before = termios.tcgetattr(self._fd)
        for number in _HEEDED:
            self._handlers[number] = signal.signal(number, self._heed)
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give it back."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._give_back()

    def _take(self) -> None:
        tty.setcbreak(self._fd)
        self._write(_ENTER)

    def _give_back(self) -> None:
        # Where it is gone, there is nothing to give back.
        with suppress(OSError, termios.error):
            self._write(_LEAVE)
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def _heed(self, number: int, _frame: object) -> None:
        """Do what the signal does by itself; whoever goes on after it has the screen as it was."""
        self._give_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._heed)
        self._take()
        self.draw(self._drawn)

    def measure(self) -> tuple[int, int]:
        """Columns and lines, as they are now; the next drawing is for these."""
        # Asked of the terminal: COLUMNS and LINES, where somebody exports them, do not follow it.
        found = os.get_terminal_size(sys.stdout.fileno())
        self._size = max(20, found.columns), max(6, found.lines)
        return self._size

    def draw(self, lines: Sequence[str]) -> None:
        """These lines, from the top; the rest is empty. They have to fit, and be harmless."""
        self._drawn = lines
        self._write("\x1b[H" + "".join(f"{line}\x1b[0m\x1b[K\r\n" for line in lines[:-1]) + f"{lines[-1]}\x1b[0m\x1b[J")

    def key(self) -> str:
        """The next key: a letter, or the name of one that has none; `gone` when nobody is there any more.

        Nothing when the screen has another size than was measured: it is to be drawn again.
        """
        size = self._size
        while not self._pressed and not select.select([self._fd], [], [], _LOOK_SECONDS)[0]:
            if self.measure() != size:
                return ""
        if not self._pressed:
            self._pressed = os.read(self._fd, 1024).decode(errors="replace")
        if not self._pressed:
            return "gone"
        found = _SEQUENCE.match(self._pressed)
        raw = found[0] if found is not None else self._pressed[0]
        self._pressed = self._pressed[len(raw) :]
        return _KEYS.get(raw, "" if found is not None else raw)

    def _write(self, text: str) -> None:
        # Not through sys.stdout: a signal may come in the middle of it, and what heeds the signal writes as well.
        left = text.encode(errors="replace")
        while left:
            left = left[os.write(sys.stdout.fileno(), left) :]
