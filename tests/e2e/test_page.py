"""The page of `exo replay --html` in a real browser: what its script makes of a recording of the public system."""

import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from exo_cli import replay_page

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
BROWSER = (
    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--virtual-time-budget=3000", "--dump-dom",
)  # fmt: skip


class Drawn(HTMLParser):
    """The lanes of a page, and the spans and marks in each, as they stand in the document."""

    def __init__(self, text):
        super().__init__()
        self.lanes, self.findings, self.images = {}, [], 0
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
def browse(tmp_path):
    """A function that has the browser draw a page."""

    def draw(page):
        if shutil.which(BROWSER[0]) is None:
            pytest.skip(f"{BROWSER[0]} is not installed")
        done = subprocess.run(
            [*BROWSER, f"--user-data-dir={tmp_path / 'browser'}", page.as_uri()],
            capture_output=True, text=True, timeout=90, check=True,
        )  # fmt: skip
        return Drawn(done.stdout)

    return draw


@pytest.fixture
def drawn(browse, tmp_path):
    """A function that has the real program write the page of a log, and the browser draw it."""

    def draw(log):
        page, exo = tmp_path / "page.html", Path(sys.executable).with_name("exo")
        subprocess.run([exo, "replay", log, "--html", page], check=True, capture_output=True, timeout=60)
        return browse(page)

    return draw


@pytest.mark.system
def test_a_lost_node_is_drawn_with_its_stale_runner(drawn):
    told = drawn(RECORDINGS / "node-lost.bin.zst")
    assert len(told.named("node")) == 3
    assert told.named("instance") == ["instance-b394fb36bb2d420f", "instance-d70820fe119a72d1"]
    stale, *others = "runner-795e8229451abd81", "runner-a5aa3c814f426dcb", "runner-f1d69ed617f5e837"
    assert told.named("runner") == [stale, *others]
    order = list(told.lanes)
    assert order[3:] == ["instance-d70820fe119a72d1", stale, others[1], "instance-b394fb36bb2d420f", others[0]]
    # Lost at record 96; the status that came late is that of record 101.
    assert told.stale() == {
        (stale, "stale_runner", "Running", 96, 101),
        (stale, "stale_runner", "Ready", 101, 113),
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
def test_just_what_is_stale_is_marked(drawn, log, stale):
    told = drawn(RECORDINGS / log)
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
    assert told.images == 0
    assert told.named("node") == told.findings == [name]
    assert told.stale() == {(name, name, name, 0, 10)}
