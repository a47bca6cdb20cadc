"""Homes with nodes in them, scripts for their engines, and a cache that all of them share."""

from itertools import count
from pathlib import Path

import pytest

from tests.e2e.cluster import Home

_COUNT = count()


@pytest.fixture(scope="session")
def cache(homes):
    """What every node makes once and keeps (what mlx can do here, a BLAS made ready): made by the first of them."""
    return homes / "cache"


@pytest.fixture(scope="module")
def new_home(homes, cache):
    """A function that makes another home; all that runs in them is ended when the file's tests are over."""
    made = []

    def make(name="", **options):
        number = next(_COUNT)
        path = homes / (name or f"e{number}")
        home = Home(path, homes / f"s{number}", options.get("cache", cache))
        made.append(home)
        return home

    yield make
    for home in reversed(made):
        home.close()


@pytest.fixture(scope="session")
def script(homes):
    """A function that writes a script for the scripted engine."""

    def write(*lines) -> Path:
        file = homes / f"script-{next(_COUNT)}.txt"
        file.write_text("\n".join(lines) + "\n")
        return file

    return write
