"""The long forms of the promises: homes as in the end-to-end tests, and the table of what was measured."""

import platform
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import cache, new_home, script

__all__ = ["cache", "new_home", "script"]

_ROWS: list[tuple[str, str, str]] = []


@pytest.fixture
def figure():
    """A function that notes a figure for the table at the end: what it is, how much, and what was promised."""

    def note(what: str, value: str, promised: str = "") -> None:
        _ROWS.append((what, value, promised))

    return note


def pytest_terminal_summary(terminalreporter):
    if not _ROWS:
        return
    memory = psutil.virtual_memory().total >> 30
    terminalreporter.section(f"figures on {platform.node()}: {psutil.cpu_count()} cores, {memory} GiB")
    rows = [("what", "measured", "promised"), *_ROWS]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line(line.rstrip())


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.accept)
