"""GGUF files as model folders."""

import json
import os
import subprocess
import sys

import mlx.core as mx
import pytest

from exo_cli.engine.inference import EngineError
from exo_cli.engine.inference.gguf import converted, converted_in
from tests.inference.smollm import gguf_file


def write_gguf(path, tensors=None, **facts):
    """A file with a few facts; mx.save_gguf takes strings, lists of strings and arrays."""
    meta = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2", **facts}
    mx.save_gguf(str(path), tensors or {"token_embd.weight": mx.zeros((4, 32))}, meta)
    return path


@pytest.mark.parametrize(
    ("facts", "tensors", "words"),
    [
        ({"general.architecture": "mamba"}, None, "family 'mamba' are not supported"),
        ({}, {"blk.0.ssm.weight": mx.zeros((4, 32))}, r"a tensor 'blk\.0\.ssm\.weight'"),
        ({}, {"rope_freqs.weight": mx.zeros((4, 32))}, r"a tensor 'rope_freqs\.weight'"),
        ({}, None, "does not say|has no"),
    ],
)
def test_what_is_not_known_is_refused_and_leaves_nothing(tmp_path, facts, tensors, words):
    source = write_gguf(tmp_path / "m.gguf", tensors, **facts)
    with pytest.raises(EngineError, match=words):
        converted(source, tmp_path / "out" / "m")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".m.lock"]


def test_what_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"not a model")
    with pytest.raises(EngineError, match="cannot be read as GGUF"):
        converted(tmp_path / "m.gguf", tmp_path / "m")
    with pytest.raises(EngineError, match="is no file"):
        converted(tmp_path / "none.gguf", tmp_path / "m")


def child(*arguments):
    return [sys.executable, "-P", "-m", "exo_cli.engine.runner.child", *map(str, arguments)]


def test_the_mode_of_the_child_says_in_one_line_what_is_wrong(tmp_path):
    done = subprocess.run(
        child("--convert", tmp_path / "none", tmp_path / "m"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path / 'none'} is no file\n"
    assert done.stdout == ""


def test_the_probe_says_what_could_run():
    done = subprocess.run(child("--probe"), capture_output=True, text=True, timeout=60, check=True)
    facts = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert set(facts) == {"backends", "engines", "memory"}
    assert set(facts["backends"]) & {"mlx_cpu", "mlx_metal", "mlx_cuda"}
    assert facts["engines"] == ["mlx", "scripted"]
    assert 0 < facts["memory"]["available_bytes"] <= facts["memory"]["total_bytes"]


def test_the_probe_says_why_nothing_can_run(tmp_path):
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").write_text("raise ImportError('libmlx.so: cannot open shared object file')")
    done = subprocess.run(
        child("--probe"), capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.count("\n") == 1
    assert "mlx" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.model
def test_two_that_convert_at_once_make_one_whole_folder(tmp_path):
    processes = [
        subprocess.Popen(child("--convert", gguf_file(), tmp_path / "m"), stderr=subprocess.PIPE) for _ in range(2)
    ]
    assert [process.communicate(timeout=60)[1] for process in processes] == [b"", b""]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".m.lock", "m"]


@pytest.mark.model
def test_a_file_in_the_cache_is_made_anew_only_when_it_changes(tmp_path):
    source = tmp_path / "model.gguf"
    source.write_bytes(gguf_file().read_bytes())
    first = converted_in(tmp_path / "cache", source)
    made = (first / "config.json").stat().st_mtime_ns
    assert converted_in(tmp_path / "cache", source) == first
    assert (first / "config.json").stat().st_mtime_ns == made
    source.touch()
    assert converted_in(tmp_path / "cache", source) != first
