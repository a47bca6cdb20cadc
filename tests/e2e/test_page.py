"""The page of `exo replay --html` in a real browser: what its script makes of a recording of the public system."""

import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from exo_cli import replay_page
from tests.e2e.browser import CTRL, PROGRAM, QUIET, SHIFT, Browser

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
STALE = "runner-795e8229451abd81"
TICKS = "[...document.querySelectorAll('#axis text')].map((each) => each.textContent)"
DETAIL = "document.querySelector('#detail').textContent"
FOCUSED = "[document.activeElement.parentNode.dataset.lane, document.activeElement.dataset.begin]"


class Drawn(HTMLParser):
    """The lanes of a page, and the spans and marks in each, as they stand in the document."""

    def __init__(self, text):
        super().__init__()
        self.lanes, self.findings, self.images, self.marks = {}, [], 0, 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "data-lane" in given:
            self.lanes[given["data-lane"]] = (given["data-sort"], [])
        elif "data-begin" in given or "data-refused" in given:
            self.lanes[next(reversed(self.lanes))][1].append(given)
        elif "data-finding" in given:
            self.findings.append(given["data-finding"])
        self.images += tag == "img"
        self.marks += "data-refused" in given

    def named(self, sort):
        return sorted(name for name, (each, _) in self.lanes.items() if each == sort)

    def stale(self):
        return {
            (name, each["data-stale"], each["data-status"], int(each["data-begin"]), int(each["data-end"]))
            for name, (_, spans) in self.lanes.items()
            for each in spans
            if "data-stale" in each
        }


@pytest.fixture
def browser_folder(tmp_path):
    """Where the browser keeps what it keeps; only where there is a browser."""
    if shutil.which(PROGRAM) is None:
        (pytest.fail if os.environ.get("EXO_TEST_NEED_ALL") else pytest.skip)(f"needs {PROGRAM}")
    return tmp_path / "browser"


@pytest.fixture
def browse(browser_folder):
    """A function that has the browser draw a page, and reads what came of it."""

    def draw(page):
        how = [f"--user-data-dir={browser_folder}", "--virtual-time-budget=3000", "--dump-dom"]
        done = subprocess.run(
            [PROGRAM, *QUIET, *how, page.as_uri()], capture_output=True, text=True, timeout=90, check=True
        )
        return Drawn(done.stdout)

    return draw


@pytest.fixture
def written(tmp_path):
    """A function that has the real program write the page of a log."""

    def write(log):
        page, exo = tmp_path / "page.html", Path(sys.executable).with_name("exo")
        subprocess.run([exo, "replay", log, "--html", page], check=True, capture_output=True, timeout=60)
        return page

    return write


@pytest.fixture
def driven(browser_folder):
    """A function that opens a page in a browser to drive."""
    opened = []

    def drive(page):
        opened.append(Browser(browser_folder, page.as_uri()))
        return opened[-1]

    yield drive
    for each in opened:
        each.close()


@pytest.mark.system
def test_a_lost_node_is_drawn_with_its_stale_runner(browse, written):
    told = browse(written(RECORDINGS / "node-lost.bin.zst"))
    assert len(told.named("node")) == 3
    assert told.named("instance") == ["instance-b394fb36bb2d420f", "instance-d70820fe119a72d1"]
    others = ["runner-a5aa3c814f426dcb", "runner-f1d69ed617f5e837"]
    assert told.named("runner") == [STALE, *others]
    order = list(told.lanes)
    assert order[3:] == ["instance-d70820fe119a72d1", STALE, others[1], "instance-b394fb36bb2d420f", others[0]]
    # Lost at record 96; the status that came late is that of record 101.
    assert told.stale() == {
        (STALE, "stale_runner", "Running", 96, 101),
        (STALE, "stale_runner", "Ready", 101, 113),
    }
    assert told.findings == ["stale_runner", "orphan_task", "ghost_download"]


@pytest.mark.system
@pytest.mark.parametrize(
    ("log", "stale"),
    [
        ("clean.bin", set()),
        ("late-status.bin", {("runner-8ca8181166d22876", "stale_runner", "Idle", 46, 50)}),
        ("stale-after-crash.bin", {("runner-2217beaddbc496cb", "stale_runner", "Failed", 74, 97)}),
    ],
)
def test_just_what_is_stale_is_marked(browse, written, log, stale):
    told = browse(written(RECORDINGS / log))
    assert told.lanes
    assert told.stale() == stale
    assert len(told.findings) == len(stale)


@pytest.mark.system
def test_a_hostile_name_is_only_a_name(browse, tmp_path):
    name = "</script><img src=x onerror=document.title=1>"
    row = {"index": 0, "type": name, "what": name, "by": name, "client": name, "cause": None}
    times = {"from_at": name, "to_at": None, "first_at": name, "last_at": name}
    finding = {"kind": name, "id": name, "since_index": 0, "until_index": None, "why": name, "remedy": name}
    span = {
        "status": name,
        "from_index": 0,
        "to_index": None,
        "row": row,
        "error": name,
        "findings": [finding],
        **times,
    }
    lane = {"sort": "node", "id": name, "of": name, "spans": [span], "refused": [{"index": 0, "why": name}]}
    page = tmp_path / "page.html"
    lanes = {"first_index": 0, "last_index": 9, "left_out": 1, **times, "lanes": [lane]}
    page.write_text(replay_page.page(name, lanes, [finding]))
    told = browse(page)
    assert (told.images, told.marks) == (0, 1)
    assert told.named("node") == told.findings == [name]
    assert told.stale() == {(name, name, name, 0, 10)}


@pytest.mark.system
def test_pointing_and_keys_tell_of_spans_and_zoom(driven, written):
    page = driven(written(RECORDINGS / "node-lost.bin.zst"))
    every = page.run(TICKS)
    assert every[0] == "0"
    page.point(f"[data-lane='{STALE}'] [data-status='Loading']")
    assert "began withrecord 41, RunnerStatusUpdated" in page.run(DETAIL)
    page.click("#findings a")
    assert page.run(FOCUSED) == [STALE, "96"]
    assert "its instance is gone; wrong since record 96 (NodeTimedOut)remedycurl" in page.run(DETAIL)
    page.press("ArrowRight")
    assert page.run(FOCUSED) == [STALE, "101"]
    page.press("ArrowUp")
    assert page.run(FOCUSED) == ["instance-d70820fe119a72d1", "15"]
    page.press("+")
    near = page.run(TICKS)
    assert near != every
    page.press("ArrowLeft", SHIFT)
    assert page.run(TICKS) != near
    page.press("0")
    assert page.run(TICKS) == every
    page.point("#lanes", "mouseWheel", deltaX=0, deltaY=-200, modifiers=CTRL)
    assert page.run(TICKS) != every
    page.click("#all")
    assert page.run(TICKS) == every
    assert page.problems == []


@pytest.mark.system
def test_what_got_into_a_page_would_not_run(driven, written):
    file = written(RECORDINGS / "clean.bin")
    text = file.read_text()
    file.write_text(
        text.replace("</body>", "<script>document.body.id = 'ran'</script><img src='http://[::1]/x'></body>")
    )
    page = driven(file)
    assert page.run("document.body.id") == ""
    assert page.run("document.querySelectorAll('[data-sort=node]').length") == 2
    refused = [each["entry"]["text"] for each in page.problems if isinstance(each, dict)]
    assert len(refused) == 2
    assert all("Content Security Policy" in each for each in refused)
