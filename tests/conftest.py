"""What every test stands on: an environment of its own, so that no test reads or writes the user's folders."""

import itertools
import signal

import pytest

_COUNT = itertools.count()


def pytest_addoption(parser):
    parser.addoption("--rewrite", action="store_true", help="write tests/scripts/*.txt anew; then read the diff")


def pytest_configure():
    """A shell has its background jobs ignore Ctrl-C, and what they start inherits that: here it is always heard."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """The files that mostly wait for processes come first: while they wait, the other workers compute."""
    waiting = ("e2e", "inference", "runner")
    items.sort(key=lambda item: item.path.parent.name not in waiting)


@pytest.fixture(scope="session")
def homes(tmp_path_factory):
    """Where the homes of the tests lie."""
    return tmp_path_factory.mktemp("h")


@pytest.fixture(autouse=True)
def own_home(homes, monkeypatch):
    """HOME and EXO_HOME point into a folder of this test alone; it is made by whoever writes into it."""
    home = homes / str(next(_COUNT))
    for name in [name for name in __import__("os").environ if name.startswith(("EXO_", "XDG_"))]:
        if name != "EXO_TEST_NEED_ALL":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("EXO_HOME", str(home / "exo"))
    return home
