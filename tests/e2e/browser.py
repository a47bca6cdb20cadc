"""A browser without a window that a test drives: it opens a page, presses keys, moves the pointer, and looks.

It speaks the browser's own protocol over a pair of pipes: JSON, with a zero byte after each message.
"""

import itertools
import json
import os
import subprocess

PROGRAM = "chromium"
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}
SHIFT, CTRL = 8, 2


class Browser:
    """One browser with one page."""

    def __init__(self, folder, page, size=(1400, 900)):
        their_in, self._out = os.pipe()
        self._in, their_out = os.pipe()
        # The protocol's pipes are to be 3 and 4 in the browser, whatever they are here.
        start = f'exec {PROGRAM} "$@" 3<&{their_in} 4>&{their_out}'
        words = [*QUIET, f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            ["bash", "-c", start, "browser", *words, "about:blank"],
            pass_fds=(their_in, their_out), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(their_in)
        os.close(their_out)
        self._numbers, self._rest, self._session = itertools.count(1), b"", None
        self.problems = []
        try:
            self._attach(page)
        except BaseException:
            self.close()
            raise

    def _attach(self, page):
        [target] = [each for each in self.ask("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        self._session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.open(page)

    def ask(self, method, **params):
        """The browser's answer; what it tells meanwhile is noted."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (told := self._told()).get("id") != number:
            self._note(told)
        assert "error" not in told, told
        return told["result"]

    def open(self, page):
        """Go to the page, and wait until its script has run."""
        self.ask("Page.navigate", url=page)
        while True:
            told = self._told()
            self._note(told)
            if told.get("method") == "Page.loadEventFired":
                return

    def run(self, expression):
        """The value of an expression in the page, after the next frame is drawn."""
        wait = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        answer = self.ask(
            "Runtime.evaluate", expression=f"{wait}.then(() => ({expression}))", awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key, modifiers=0):
        """A key goes down and up."""
        text = {} if key in KEYS else {"text": key}
        code = {"windowsVirtualKeyCode": KEYS.get(key, ord(key[0]))}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers, **text, **code)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers, **code)

    def point(self, selector, kind="mouseMoved", **other):
        """The pointer on the middle of the first element that the selector names."""
        middle = "(box => [box.x + box.width / 2, box.y + box.height / 2])"
        x, y = self.run(f"{middle}(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **other)

    def click(self, selector):
        """The left button, down and up."""
        for kind in ("mousePressed", "mouseReleased"):
            self.point(selector, kind, button="left", clickCount=1)

    def close(self):
        """End it."""
        self._process.terminate()
        self._process.wait(20)
        os.close(self._in)
        os.close(self._out)

    def _told(self):
        while b"\0" not in self._rest:
            piece = os.read(self._in, 1 << 16)
            assert piece, "the browser has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, told):
        """Errors of the script, what the policy refused, and every address that the page asked for."""
        match told.get("method"):
            case "Runtime.exceptionThrown" | "Log.entryAdded":
                self.problems.append(told["params"])
            case "Network.requestWillBeSent" if not told["params"]["request"]["url"].startswith(("file:", "about:")):
                self.problems.append(told["params"]["request"]["url"])
