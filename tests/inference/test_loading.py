"""Model folders: what is read, what is refused, and in which numbers it is held."""

import json

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from exo_cli.engine.inference import CalledOffError, EngineError
from exo_cli.engine.inference.families import FAMILIES
from exo_cli.engine.inference.loading import load_model, model_bytes, open_folder
from exo_cli.engine.inference.precision import Precision, choose
from exo_cli.engine.inference.tokens import open_vocabulary
from tests.inference.tiny import CONFIGS, LAYERS, write_model

STORED, WIDE = Precision(False, ""), Precision(True, "")


def load(folder, layers=range(LAYERS), precision=STORED, progress=None, cancelled=lambda: False):
    sizes = []
    model, _ = load_model(
        open_folder(folder, folder.parent),
        layers,
        lambda size: sizes.append(size) or precision,
        progress or (lambda _loaded, _total: None),
        cancelled,
    )
    return model, sizes[0]


def weights(model):
    return dict(tree_flatten(model.parameters()))


def test_each_known_family_has_a_tiny_model():
    assert set(CONFIGS) == set(FAMILIES)


def test_only_the_layers_of_the_shard_are_held(tmp_path):
    folder = write_model(tmp_path / "m", "llama")
    first, last = load(folder, range(2))[0], load(folder, range(4, LAYERS))[0]
    assert {name.split(".")[2] for name in weights(first) if ".layers." in name} == {"0", "1"}
    assert {name.split(".")[2] for name in weights(last)} == {"4", "5"}
    assert {name for name in weights(first) if ".layers." not in name} == {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
    }


def test_progress_counts_layers_and_a_load_can_be_called_off(tmp_path):
    folder, seen = write_model(tmp_path / "m", "llama"), []
    load(folder, range(1, 4), progress=lambda loaded, total: seen.append((loaded, total)))
    assert list(dict.fromkeys(seen)) == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(CalledOffError):
        load(folder, progress=lambda loaded, _total: seen.append(loaded), cancelled=lambda: 2 in seen)


def test_a_shard_needs_only_its_own_files(tmp_path):
    folder = write_model(tmp_path / "m", "llama")
    everything = mx.load(str(folder / "model.safetensors"))
    places = {name: f"model-{2 if '.layers.5.' in name else 1}.safetensors" for name in everything}
    for file in set(places.values()):
        mx.save_safetensors(str(folder / file), {n: everything[n] for n in places if places[n] == file})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (folder / "model.safetensors").unlink()
    (folder / "model-1.safetensors").rename(folder / "elsewhere")
    with pytest.raises(EngineError, match=r"lacks model-1\.safetensors"):
        load(folder)
    (folder / "elsewhere").rename(folder / "model-1.safetensors")
    (folder / "model-2.safetensors").unlink()
    load(folder, range(3))


def test_a_weight_that_is_missing_is_named(tmp_path):
    folder = write_model(tmp_path / "m", "llama")
    everything = mx.load(str(folder / "model.safetensors"))
    everything.pop("model.layers.3.mlp.up_proj.weight")
    mx.save_safetensors(str(folder / "model.safetensors"), everything)
    with pytest.raises(EngineError, match=r"layers\.3\.mlp\.up_proj"):
        load(folder)
    load(folder, range(3))


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "gemma3"])
def test_packed_weights_become_float32(tmp_path, family):
    folder = write_model(tmp_path / "m", family, packed=True)
    packed, size = load(folder)
    wide, _ = load(folder, precision=WIDE)
    assert {str(value.dtype) for value in weights(wide).values()} == {"mlx.core.float32"}
    assert model_bytes(wide) == size
    assert model_bytes(packed) < size
    prompt = mx.array([[1, 2, 3, 4]])
    assert mx.allclose(packed(prompt), wide(prompt), atol=1e-3).item()


def test_half_weights_are_widened_too(tmp_path):
    folder = write_model(tmp_path / "m", "qwen3")
    half = {name: value.astype(mx.float16) for name, value in mx.load(str(folder / "model.safetensors")).items()}
    mx.save_safetensors(str(folder / "model.safetensors"), half)
    model, size = load(folder, precision=WIDE)
    assert model_bytes(model) == size == 2 * sum(value.nbytes for value in half.values())


def test_a_family_that_is_not_in_the_table_is_loaded_whole(tmp_path):
    folder = write_model(tmp_path / "m", "qwen2")
    config = json.loads((folder / "config.json").read_text())
    known, _ = load(folder)
    config["model_type"] = "iquestcoder"  # mlx_lm says that these are llama models
    (folder / "config.json").write_text(json.dumps(config))
    everything = mx.load(str(folder / "model.safetensors"))
    mx.save_safetensors(str(folder / "model.safetensors"), {n: v for n, v in everything.items() if ".bias" not in n})
    model, _ = load(folder)
    assert len(weights(model)) < len(weights(known))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_file": "evil.py"}, "brings code of its own"),
        ({"model_type": "no_such"}, "not supported"),
        ({"intermediate_size": 64}, "do not fit"),
    ],
)
def test_what_cannot_be_loaded_is_refused_in_one_sentence(tmp_path, change, words):
    folder = write_model(tmp_path / "m", "llama")
    config = {**json.loads((folder / "config.json").read_text()), **change}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(EngineError, match=words):
        load(folder)


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_config_that_cannot_be_read_is_refused(tmp_path, text):
    folder = write_model(tmp_path / "m", "llama")
    (folder / "config.json").unlink()
    if text is not None:
        (folder / "config.json").write_text(text)
    with pytest.raises(EngineError, match=r"config\.json"):
        load(folder)


def test_a_tokenizer_with_code_of_its_own_is_refused(tmp_path):
    folder = write_model(tmp_path / "m", "llama")
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}}))
    with pytest.raises(EngineError, match="never run"):
        open_vocabulary(folder, CONFIGS["llama"])


def test_a_truncated_weight_file_is_refused(tmp_path):
    folder = write_model(tmp_path / "m", "llama")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(EngineError, match="cannot be read"):
        load(folder)


def test_the_choice_of_numbers_says_why():
    assert choose("stored", 1, 1).note == "weights as stored: asked for"
    assert choose("float32", 1 << 60, 1).float32
    automatic = choose("auto", 1 << 60, 1)
    assert not automatic.float32
    assert automatic.note.startswith("weights as stored: ")
