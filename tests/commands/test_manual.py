"""The manual: fresh, complete, clean, and hostile to nothing in a help text."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exo_cli import manual
from exo_cli.engine.core.errors import ExitCode
from exo_cli.engine.core.foreign.kinds import KINDS
from exo_cli.engine.core.invariants.findings import UNHEALED
from exo_cli.engine.core.invariants.rules import RULES

CHECKOUT = Path(__file__).parents[2]
PAGES = sorted((CHECKOUT / "man").glob("man*/*"))


def test_what_is_committed_is_what_would_be_written():
    assert manual.main(["check"]) == 0


@pytest.mark.parametrize("seed", ["1", "2"])
def test_it_is_the_same_in_every_process(seed):
    """Names of options come out of sets here and there, whose order is that of the process."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-m", "exo_cli.manual", "check"], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_check_names_what_is_stale_and_what_mends_it(tmp_path, monkeypatch, capsys):
    shutil.copytree(CHECKOUT / "man", tmp_path / "man")
    (tmp_path / "exo_cli").mkdir()
    monkeypatch.setattr(manual, "CHECKOUT", tmp_path)
    page = tmp_path / "man/man1/exo-place.1"
    page.write_text(page.read_text() + "more\n")
    (tmp_path / "man/man1/exo-gone.1").write_text("")
    codes = tmp_path / "man/man7/exo-exit-codes.7"
    codes.write_text(codes.read_text().replace(".B 6 timeout", ".B 6 late"))
    assert manual.main(["check"]) == 1
    said = capsys.readouterr().err
    assert (
        "man/man1/exo-place.1 is not what the commands say now; this mends it: python -m exo_cli.manual write" in said
    )
    assert "exo-gone.1" in said
    assert "exo_cli/_command_table.py" in said
    assert "man/man7/exo-exit-codes.7: 6 is late, in the program timeout" in said
    codes.write_text(codes.read_text().replace(".B 6 late", ".B 6 timeout"))
    assert manual.main(["write"]) == 0
    assert manual.main(["check"]) == 0


def test_only_write_and_check():
    assert manual.main([]) == 2


def test_every_option_of_help_is_in_its_page():
    root, context = manual.tree()

    def check(command, context, name):
        written = (CHECKOUT / f"man/man1/{name}.1").read_text()
        for option in manual.options(command, context):
            for each in (*option.opts, *option.secondary_opts):
                assert manual.escaped(each) in written, (name, each)
        for child_name, child, below in manual.children(command, context):
            check(child, below, f"{name}-{child_name}")

    check(root, context, "exo")


@pytest.mark.parametrize("code", list(ExitCode), ids=lambda code: code.name)
def test_every_exit_code_is_in_its_page(code):
    written = (CHECKOUT / manual.EXIT_CODES_PAGE).read_text()
    assert f".B {code.value} {code.name.lower()}\n" in written


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        (".SH not a section", "\\&.SH not a section"),
        ("'quoted", "\\(aqquoted"),
        ("back\\slash", "back\\eslash"),
        ('a-b `c` ^ ~ "d"', "a\\-b \\(gac\\(ga \\(ha \\(ti \\(dqd\\(dq"),
    ],
)
def test_text_is_escaped(text, safe):
    assert manual.escaped(text) == safe


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_plain_ascii_with_a_name_line(page):
    text = page.read_bytes().decode("ascii")
    stem = page.name.rpartition(".")[0]
    assert f"\n.SH NAME\n{manual.escaped(stem)} \\- " in text
    assert all(len(line) < 200 for line in text.splitlines())


@pytest.mark.system
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_clean(page):
    for check in (["mandoc", "-Tlint", "-W", "warning"], ["groff", "-man", "-ww", "-z", "-Tutf8"]):
        if shutil.which(check[0]) is None:
            pytest.skip(f"{check[0]} is not installed")
        done = subprocess.run([*check, page], capture_output=True, text=True, check=False)
        assert (done.stdout + done.stderr).strip() == ""


def test_the_page_on_findings_has_every_kind():
    text = (CHECKOUT / "man/man7/exo-findings.7").read_text()
    listed = re.findall(r"^\.(?:B|BR) ([a-z]+_?[a-z]*)(?: \" \*\")?$", text, re.MULTILINE)
    assert set(listed) == {*(rule.kind for rule in RULES), *UNHEALED, "no_progress", "diverged", "unreported"}
    assert set(re.findall(r'^\.BR ([a-z_]+) " \*"$', text, re.MULTILINE)) == UNHEALED


def test_the_page_on_recordings_has_the_table_of_the_translator():
    text = (CHECKOUT / "man/man7/exo-recordings.7").read_text()
    written = re.findall(r'^\.BR (\w+) " \((\w+)\)"$', text, re.MULTILINE)
    assert dict(written) == {kind: use for kind, (use, _) in KINDS.items()}
