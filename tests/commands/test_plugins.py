"""Plugins: found without importing them, run, and a broken one breaks nothing but itself."""

import json
import os
import stat

import pytest

from exo_cli import plugins

METADATA = "Metadata-Version: 2.1\nName: {0}\nVersion: 1.2\nSummary: says {0}\n\nSummary: not this\n"
MODULES = {
    "well": "import typer\nfrom exo_cli.api import Host\napp = typer.Typer()\n"
    "@app.command()\n"
    "def well(ctx: typer.Context, name: str, loud: bool = False):\n"
    "    Host.of(ctx).console.data(f'hello {name} {loud}')\n",
    "plain": "def main(argv, host):\n    host.console.data(' '.join(argv))\n    return 4\n",
    "noimport": "import no_such_module_anywhere\n",
    "leaves": "import sys\nsys.exit(0)\n",
    "clicky": "class Command:\n    def make_context(self): ...\napp = Command()\n",
    "raises": "def main(argv, host):\n    raise RuntimeError('from inside\\nwith \\x1b[31m')\n",
    "refuses": "from exo_cli.api import NotFoundError\n"
    "def main(argv, host):\n    raise NotFoundError('no such thing', 'exo runners')\n",
    "exits": "import sys\ndef main(argv, host):\n    sys.exit(9)\n",
    "node": "def main(argv, host):\n    raise AssertionError('a built-in command was shadowed')\n",
}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of distributions on sys.path, one for each module above, and none other."""
    folder = tmp_path / "site"
    for name, source in MODULES.items():
        info = folder / f"exo_{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (folder / f"exo_{name}.py").write_text(source)
        (info / "METADATA").write_text(METADATA.format(f"exo-{name}"))
        attribute = "app" if "app =" in source else "main"
        (info / "entry_points.txt").write_text(
            f"[console_scripts]\nother = x:y\n[{plugins.GROUP}]\n{name} = exo_{name}:{attribute}\n"
        )
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return folder


def _standing():
    return {plugin.name: plugin.standing for plugin in plugins.offered()}


def test_they_are_found_and_listed_without_being_imported(exo, site):
    listed = exo("--help").out
    assert "says exo-well" in listed
    assert "says exo-noimport" in listed
    assert _standing()["node"] == "shadowed by the built-in command"
    document = json.loads(exo("plugin", "list", "-o", "json").out)
    found = {each["name"]: each for each in document["items"]}
    assert found["well"]["dist"] == "exo-well"
    assert (found["well"]["version"], found["well"]["standing"]) == ("1.2", "runs")
    assert found.keys() == MODULES.keys()


def test_a_typer_app_runs(exo, site):
    assert exo("well", "you", "--loud").out == "hello you True\n"
    assert exo("well", "--help").out.startswith("Usage: exo well [OPTIONS]")
    ended = exo("well")
    assert (ended.code, ended.err.splitlines()[0]) == (2, "error: missing argument 'name'")


def test_a_callable_runs_with_all_its_words(exo, site):
    ended = exo("plain", "-x", "--help", "--", "y")
    assert (ended.code, ended.out) == (4, "-x --help -- y\n")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("noimport", "cannot be loaded: ModuleNotFoundError"),
        ("leaves", "cannot be loaded: SystemExit"),
        ("clicky", "cannot be used: TypeError: it offers a click command"),
        ("raises", "raised: RuntimeError: from inside with \\x1b[31m"),
    ],
)
def test_a_broken_one_is_named_and_the_rest_works(exo, site, home, name, said):
    ended = exo(name)
    assert ended.code == 70
    first, *others = ended.err.splitlines()
    assert first.startswith(f"error: the plugin {name} (exo-{name} 1.2) {said}")
    assert f"hint: exo plugin doctor {name}" in others
    assert f"hint: pip uninstall exo-{name}" in others
    assert said.split(": ")[1] in next((home / "state").glob("crash-*.log")).read_text()
    assert exo("--help").code == 0
    assert exo("well", "you").code == 0


def test_its_own_ends_are_its_own(exo, site):
    assert exo("refuses").err == "error: no such thing\nhint: exo runners\n"
    assert exo("refuses").code == 3
    assert exo("exits").code == 9


@pytest.mark.parametrize("how", ["option", "variable"])
def test_they_can_be_switched_off(exo, site, monkeypatch, how):
    if how == "variable":
        monkeypatch.setenv("EXO_NO_PLUGINS", "1")
    off = ["--no-plugins"] if how == "option" else []
    assert "says exo-well" not in exo(*off, "--help").out
    assert exo(*off, "well", "you").code == 2


def test_the_cache_follows_what_is_installed(site, home):
    assert "well" in _standing()
    assert list((home / "cache").glob("plugins-*.tsv"))
    info = site / "exo_late-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\nlate = exo_late:main\n")
    assert "late" in _standing()


def test_a_cache_that_is_damaged_or_cannot_be_written_is_no_matter(site, home):
    _standing()
    cache = next((home / "cache").glob("plugins-*.tsv"))
    cache.write_bytes(b"\xff\xfe")
    assert "well" in _standing()
    cache.unlink()
    cache.mkdir()
    assert "well" in _standing()


def test_the_doctor_imports_each_alone(exo, site):
    (healthy,) = json.loads(exo("plugin", "doctor", "well", "-o", "json").out)["items"]
    assert healthy["error"] is None
    assert healthy["import_ms"] > 0
    ended = exo("plugin", "doctor", "leaves")
    assert ended.code == 70
    assert "SystemExit" in ended.out
    assert ended.err.startswith("error: cannot be loaded: leaves\n")
    assert exo("plugin", "doctor", "bogus").code == 3


def test_completion_knows_them(program, site):
    assert program("__complete", "bash", "exo wel").out == "well \n:done\n"
    assert program("__complete", "fish", "--", "noimp").out == "noimport\tsays exo-noimport\n:done\n"


# -- programs on PATH -------------------------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder on PATH for programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def _program(folder, name, text='#!/bin/sh\necho "$0 $*"\nexit 5\n'):
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_program_takes_the_commands_place(program, programs):
    path = _program(programs, "exo-greet")
    ended = program("greet", "--all", "you")
    assert (ended.code, ended.out) == (5, f"{path} --all you\n")
    assert program("__complete", "bash", "exo gree").out == "greet \n:done\n"


def test_the_longest_name_wins(program, programs):
    _program(programs, "exo-greet")
    longer = _program(programs, "exo-greet-all")
    assert program("greet", "all", "you").out == f"{longer} you\n"


def test_it_is_told_the_settings(program, programs):
    _program(programs, "exo-tell", "#!/bin/sh\necho $EXO_ENDPOINT $EXO_OUTPUT $EXO_COLOR $EXO_PLUGIN_API\n")
    said = program("--endpoint", "h:7101", "-o", "json", "--color", "never", "tell").out
    assert said == "h:7101 json never 1\n"


@pytest.mark.parametrize("name", ["exo-cli", "exo-bench", "exo-tools", "exo-place", "exo-UP"])
def test_names_that_are_taken_do_not_run(exo, programs, name):
    _program(programs, name)
    assert _standing()[name[4:]] != "runs"


def test_a_program_that_cannot_be_executed_is_126(program, programs):
    _program(programs, "exo-broken", "#!/no/such/interpreter\n")
    assert program("broken").code in {126, 127}


def test_folders_that_everybody_writes_to_are_passed_over(programs, monkeypatch):
    _program(programs, "exo-greet")
    programs.chmod(0o777)
    assert "greet" not in _standing()
    programs.chmod(0o755)
    assert "greet" in _standing()
    monkeypatch.chdir(programs)
    monkeypatch.setenv("PATH", ".:")
    assert "greet" not in _standing()


def test_an_entry_point_wins_over_a_program(site, programs):
    _program(programs, "exo-well")
    both = [(plugin.source, plugin.standing) for plugin in plugins.offered() if plugin.name == "well"]
    assert both == [("entry point", "runs"), ("program", "shadowed by exo-well")]
    assert os.environ["PATH"].startswith(str(programs))
