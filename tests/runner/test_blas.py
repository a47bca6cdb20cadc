"""The OpenBLAS in front of mlx's own, made once from wheels."""

import os
import subprocess
import sys

import pytest

from exo_cli.engine.runner import blas

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="on macOS mlx has Accelerate")

MAKE = """
import sys
from pathlib import Path
from exo_cli.engine.runner.blas import openblas
print(openblas(Path(sys.argv[1])))
"""
USE = """
import ctypes
from exo_cli.engine.inference.backends import openblas_preloaded, set_blas_threads
import mlx.core as mx
product = mx.ones((70, 90)) @ mx.ones((90, 50))
assert mx.all(product == 90).item()
set_blas_threads(1)
print(openblas_preloaded(), ctypes.CDLL(None).openblas_get_num_threads())
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def run(code, *arguments, env=None):
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        capture_output=True, text=True, timeout=60, check=True, env={**os.environ, **(env or {})},
    )  # fmt: skip
    return done.stdout.strip()


def test_two_that_want_it_at_once_get_one_whole_library(cache):
    processes = [
        subprocess.Popen([sys.executable, "-P", "-c", MAKE, str(cache)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    paths = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(paths) == 1
    made = [path for path in cache.iterdir() if not path.name.startswith(".")]
    assert [str(path / "libopenblas.so") for path in made] == list(paths)
    assert not list(cache.glob(".*draft*"))


def test_the_preloaded_library_is_the_one_that_mlx_uses(cache):
    environment = blas.blas_environment(cache, 2)
    assert environment["OPENBLAS_NUM_THREADS"] == "2"
    assert environment["LD_PRELOAD"].startswith(str(cache))
    assert run(USE, env=environment) == "True 1"


def test_a_preload_of_the_user_is_kept(cache, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/lib/theirs.so")
    assert blas.blas_environment(cache, 1)["LD_PRELOAD"].endswith("libopenblas.so:/lib/theirs.so")


def test_without_the_wheel_the_system_serves_or_nothing(cache, monkeypatch):
    monkeypatch.setattr(blas, "_PACKAGE", "no_such_wheel")
    monkeypatch.setattr(blas.ctypes.util, "find_library", lambda name: f"lib{name}.so.0")
    assert blas.blas_environment(cache, 1)["LD_PRELOAD"] == "libopenblas.so.0"
    monkeypatch.setattr(blas.ctypes.util, "find_library", lambda _: None)
    assert blas.blas_environment(cache, 1) == {}


def test_a_wheel_that_cannot_be_renamed_only_costs_speed(tmp_path, monkeypatch):
    broken = tmp_path / "patchelf"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(blas, "_patchelf", lambda: broken)
    monkeypatch.setattr(blas.ctypes.util, "find_library", lambda _: None)
    assert blas.blas_environment(tmp_path / "cache", 1) == {}
    assert not list((tmp_path / "cache").glob("openblas*"))


def test_elsewhere_there_is_nothing_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(blas.sys, "platform", "darwin")
    assert blas.blas_environment(tmp_path, 4) == {}
