"""The page: nothing of a log breaks out of its data, its policy names what is in it, and what it may be put over."""

import base64
import errno
import hashlib
import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from exo_cli.console import visible
from exo_cli.replay_page import MARK, page
from tests.commands.test_replay_asked import CLEAN, LOST, STALE
from tests.commands.test_replay_timeline import a_lane, a_span, lanes

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "\"'`&quot;&lt;",
    "a\u2028b\u2029c",
    "\u202eabc\u200f\x00\x1b[2J",
    "\ud800",
    "$title${data}$$",
    "]]>",
]


class Parsed(HTMLParser):
    """The elements of a page, and the text in those that are not read as markup."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self._open = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        self.texts.append((tag, ""))

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open:
            self.texts[-1] = (self._open, self.texts[-1][1] + data)

    def every(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    def text(self, tag):
        return [text for name, text in self.texts if name == tag]


def a_page(name="a log", why="w", lane="r", error=None):
    row = {"index": 0, "type": "T", "what": why, "by": why, "client": why, "cause": None}
    span = {**a_span("Ready", 0), "from_at": None, "to_at": None, "row": row, "error": error or why}
    finding = {"kind": "k", "id": lane, "since_index": 1, "until_index": None, "why": why, "remedy": why}
    span["findings"] = [finding]
    return page(name, lanes(a_lane(span, name=lane, of=lane, refused=[1])), [finding])


PLAIN = [tag for tag, _ in Parsed(a_page()).elements]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_nothing_breaks_out(text):
    written = a_page(name=text, why=text, lane=text)
    written.encode("ascii")
    parsed = Parsed(written)
    assert [tag for tag, _ in parsed.elements] == PLAIN
    assert [each.get("type") for each in parsed.every("script")] == ["application/json", None]
    data, script = parsed.text("script")
    assert script == Parsed(a_page()).text("script")[1]
    [lane] = json.loads(data)["lanes"]
    assert lane["id"] == lane["of"] == lane["stretches"][0]["row"]["what"] == visible(text)
    assert parsed.text("title")[0] == parsed.text("h1")[0] == visible(text)


def test_no_attribute_of_the_page_is_from_the_log():
    attributes = [attrs for tag, attrs in Parsed(a_page(*HOSTILE[:3])).elements]
    assert attributes == [attrs for tag, attrs in Parsed(a_page()).elements]


def test_the_policy_names_what_is_in_the_page():
    parsed = Parsed(a_page())
    [policy] = [each["content"] for each in parsed.every("meta") if "http-equiv" in each]
    named = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for directive, text in (("script-src", parsed.text("script")[1]), ("style-src", parsed.text("style")[0])):
        hashed = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert named[directive] == f"'sha256-{hashed}'"
    assert named["default-src"] == "'none'"
    assert set(named) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}


def test_the_page_asks_for_nothing_and_makes_no_markup():
    written = a_page()
    assert written.encode().startswith(MARK)
    assert not {attrs.get(name) for _, attrs in Parsed(written).elements for name in ("src", "href", "style")} - {None}
    _, script = Parsed(written).text("script")
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch(", "import(", ".style"):
        assert word not in script
    assert written.count("http://") == script.count("http://www.w3.org/2000/svg") == 1


def test_the_data_of_a_recording(exo):
    ended = exo("replay", LOST, "--html", "-")
    data = json.loads(Parsed(ended.out).text("script")[0])
    assert (ended.code, ended.err) == (0, "")
    stale = [
        (lane["id"], each["status"], each["begin"], each["end"], each["stale"])
        for lane in data["lanes"]
        for each in lane["stretches"]
        if each["stale"]
    ]
    runner = "runner-795e8229451abd81"
    assert stale == [(runner, "Running", 96, 101, ["stale_runner"]), (runner, "Ready", 101, 113, ["stale_runner"])]
    assert [each["kind"] for each in data["findings"]] == ["stale_runner", "orphan_task", "ghost_download"]


def test_a_page_is_written_and_written_over(exo, tmp_path):
    file = tmp_path / "page.html"
    first = exo("replay", LOST, "--html", str(file), "--check")
    assert (first.code, first.out) == (1, "")
    assert first.err == f"the page is {file}: open it in a browser\n"
    assert "<title>node-lost.bin.zst</title>" in file.read_text()
    assert exo("replay", CLEAN, "--html", str(file), "--timeline").out.startswith("node ")
    assert "<title>clean.bin</title>" in file.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_a_link_to_a_page_stays_a_link(exo, tmp_path):
    (tmp_path / "link.html").symlink_to(tmp_path / "page.html")
    assert exo("replay", CLEAN, "--html", str(tmp_path / "link.html")).code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "page.html").read_bytes().startswith(MARK)


@pytest.mark.parametrize("there", [b"", b"<!doctype html>", MARK[:-1], b"\x00" * 100, b"my notes\n" + MARK])
def test_what_is_no_page_of_ours_is_left_as_it_is(exo, tmp_path, there):
    file = tmp_path / "notes"
    file.write_bytes(there)
    ended = exo("replay", CLEAN, "--html", str(file))
    assert (ended.code, ended.out) == (2, "")
    assert "is no page of exo replay" in ended.err
    assert file.read_bytes() == there


def test_neither_the_log_nor_its_folder_is_written_to(exo, tmp_path):
    log = tmp_path / "log.bin"
    log.write_bytes(Path(CLEAN).read_bytes())
    (tmp_path / "other").symlink_to(log)
    for file in (log, tmp_path / "other"):
        assert exo("replay", str(log), "--html", str(file)).code == 2
    assert log.read_bytes() == Path(CLEAN).read_bytes()
    segments = tmp_path / "segments"
    segments.mkdir()
    (segments / f"{0:020}.log").touch()
    assert exo("replay", CLEAN, "--html", str(segments / "page.html")).code == 2
    assert len(list(segments.iterdir())) == 1


@pytest.mark.parametrize(
    ("file", "code", "why"),
    [
        ("", 2, "is a folder"),
        ("none/page.html", 1, "no such folder"),
        ("n" * 300, 1, "name too long"),
        ("fifo", 2, "no page"),
    ],
)
def test_where_it_cannot_be_written_is_one_line(exo, tmp_path, file, code, why):
    os.mkfifo(tmp_path / "fifo")
    ended = exo("replay", CLEAN, "--html", str(tmp_path / file))
    assert (ended.code, ended.out) == (code, "")
    assert why in ended.err
    assert [line.split(":")[0] for line in ended.err.splitlines()] == ["error", *["hint"] * (2 if code == 1 else 1)]


def test_a_full_disk_leaves_what_was_there(tmp_path):
    file = tmp_path / "page.html"
    file.write_bytes(MARK + b" the old one")
    limited = (
        "import resource, signal, sys\nfrom exo_cli.commands.replay import keeping\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "keeping.keep('x' * 5000, sys.argv[1], ())\n"
    )
    done = subprocess.run([sys.executable, "-c", limited, file], capture_output=True, text=True, check=False)
    assert f"FailedError: {file} cannot be written: {os.strerror(errno.EFBIG)}" in done.stderr
    assert file.read_bytes() == MARK + b" the old one"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("words", [["-o", "json"], ["--stats"], ["--show", "runners"], ["--follow"]])
def test_what_makes_no_sense_with_a_page_is_refused(exo, tmp_path, words):
    assert exo("replay", STALE, "--html", str(tmp_path / "page.html"), *words).code == 2
    assert list(tmp_path.iterdir()) == []
    assert exo("replay", STALE, "--html", "-", "--timeline").code == 2
