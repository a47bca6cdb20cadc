"""Requests to a real runner child with the mlx engine: a tiny random model, and the small real one."""

import json
import shutil
import sys
from contextlib import ExitStack

import mlx.core as mx
import pytest

from exo_cli.engine.core.tasks import ChatMessage, ChatParams
from exo_cli.engine.inference.generate import Alone
from exo_cli.engine.inference.gguf import converted
from exo_cli.engine.inference.loading import load_model, open_folder
from exo_cli.engine.inference.precision import Precision
from exo_cli.engine.inference.stage import Stage
from exo_cli.engine.inference.tokens import open_vocabulary
from exo_cli.engine.runner.blas import blas_environment
from exo_cli.engine.runner.frames import Assign, Cancel, Connect, Generate, Load, Memory, Step, Stop, Warmup
from tests.inference import smollm
from tests.inference.test_pipeline import free_addresses
from tests.inference.tiny import CONTEXT, LAYERS, write_model
from tests.runner.a_child import Child, a_chat, an_instance

SMALL_CONTEXT = 256


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("tiny") / "m", "llama")


@pytest.fixture(scope="module")
def tiny(folder):
    with Child() as child:
        child.make_ready(model=folder, layers=LAYERS, context=SMALL_CONTEXT)
        yield child


@pytest.fixture
def child(tiny):
    """The one child of this module: whatever a test does to it, it must be as good as new for the next."""
    assert tiny.alive()
    tiny.reports.clear()
    return tiny


def room_for(child, extra=0):
    """A prompt of exactly so many characters (one token each) that `extra` tokens of context are left."""
    empty = len("[user]") + len("[assistant]")
    return "x" * (SMALL_CONTEXT - empty - extra)


def test_the_context_holds_the_prompt_and_the_answer(child):
    child.ask("fits", room_for(child, 1), temperature=0)
    done = child.until_done("fits")
    assert done.reason in ("length", "stop")
    assert done.usage.prompt_tokens == SMALL_CONTEXT - 1
    for name, extra, tokens in (("full", 0, SMALL_CONTEXT), ("over", -5000, SMALL_CONTEXT + 5000)):
        child.ask(name, room_for(child, extra))
        done = child.until_done(name)
        assert (done.reason, done.code) == ("error", "context_overflow")
        assert f"has {tokens} tokens" in done.error
        assert f"holds {SMALL_CONTEXT}" in done.error
    child.ask("grows", "a", temperature=2, seed=3, max_tokens=10_000)
    done = child.until_done("grows")
    if done.reason == "length":
        assert done.usage.prompt_tokens + done.usage.tokens == SMALL_CONTEXT


def test_a_seed_is_a_text_also_beside_others(child):
    for name, seed in (("a", 7), ("b", 8), ("c", 7)):
        child.ask(name, temperature=1.5, seed=seed, max_tokens=40)
    child.ask("long", "word " * 40, temperature=1.5, seed=7, max_tokens=10)
    child.ask("d", temperature=1.5, seed=7, max_tokens=40)
    done = child.until_done("d")
    texts = {name: child.text_of(name) for name in "abcd"}
    assert texts["a"] == texts["c"] == texts["d"] != texts["b"]
    assert done.seed == 7


def test_without_a_seed_texts_differ_and_the_seed_is_told(child):
    child.ask("a", temperature=1.5, max_tokens=40)
    child.ask("b", temperature=1.5, max_tokens=40)
    child.until_done("b")
    seeds = [report.seed for report in child.reports if report.type == "Done"]
    assert seeds[0] != seeds[1]
    child.ask("again", temperature=1.5, max_tokens=40, seed=seeds[0])
    child.until_done("again")
    assert child.text_of("again") == child.text_of("a") != child.text_of("b")


def test_numbers_that_are_none_fail_the_request_alone(tmp_path, folder):
    """A model that computes NaN as soon as the prompt has a Z in it."""
    broken = tmp_path / "m"
    shutil.copytree(folder, broken)
    weights = mx.load(str(broken / "model.safetensors"))
    number = json.loads((broken / "tokenizer.json").read_text())["model"]["vocab"]["Z"]
    embedding = weights["model.embed_tokens.weight"]
    embedding[number] = mx.nan
    mx.save_safetensors(str(broken / "model.safetensors"), {**weights, "model.embed_tokens.weight": embedding})
    with Child() as child:
        child.make_ready(model=broken, layers=LAYERS, context=CONTEXT)
        child.ask("bad", "Z", temperature=0)
        done = child.until_done("bad")
        assert (done.reason, done.code) == ("error", "generation_failed")
        assert "NaN" in done.error
        assert child.text_of("bad") == ""
        child.ask("good", temperature=0, max_tokens=3)
        assert child.until_done("good").reason in ("length", "stop")


def test_each_chunk_of_the_prompt_is_a_sign_of_life(child):
    child.ask("t", "word " * 40, temperature=0, max_tokens=2)
    child.until_done("t")
    steps = [report.tokens for report in child.reports if isinstance(report, Step)]
    assert steps[:3] == [0, 0, 0]
    assert sum(steps) <= 2


def test_cancel_is_heard_while_the_prompt_is_read(child):
    child.ask("t", "word " * 40, temperature=0)
    child.send(Cancel(task_id="t"))
    assert child.until_done("t").reason == "cancelled"


def test_a_stop_string_ends_the_text_before_it(child):
    child.ask("whole", temperature=1.5, seed=11, max_tokens=60)
    child.until_done("whole")
    text = child.text_of("whole")
    stop = text[20:23]
    child.send(Generate(task_id="cut", params=a_chat(temperature=1.5, seed=11, max_tokens=60, stop=(stop,))))
    done = child.until_done("cut")
    assert done.reason == "stop"
    assert child.text_of("cut") == text[: text.index(stop)]


def test_a_template_that_refuses_is_an_answer(tmp_path, folder):
    changed = tmp_path / "m"
    shutil.copytree(folder, changed)
    (changed / "chat_template.jinja").write_text(
        "{% if messages[0].role == 'assistant' %}{{ raise_exception('a user speaks first') }}{% endif %}hi"
    )
    with Child() as child:
        child.make_ready(model=changed, layers=LAYERS, context=CONTEXT)
        params = ChatParams(messages=(ChatMessage(role="assistant", content="me first"),))
        child.send(Generate(task_id="t", params=params))
        done = child.until_done("t")
        assert (done.reason, done.code) == ("error", "bad_request")
        assert "a user speaks first" in done.error


@pytest.mark.long
def test_a_family_that_is_not_in_the_table_answers_too(tmp_path):
    """The other way, through mlx_lm and transformers: loading, template, tokens and text."""
    other = write_model(tmp_path / "m", "llama")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "model_type": "iquestcoder"}))
    with Child() as known, Child() as child:
        known.make_ready(model=write_model(tmp_path / "known", "llama"), layers=LAYERS, context=CONTEXT)
        child.make_ready(model=other, layers=LAYERS, context=CONTEXT)
        for each in (known, child):
            each.ask("t", "word " * 30, temperature=0, max_tokens=12)
            each.until_done("t")
        assert child.text_of("t") == known.text_of("t") != ""


def test_a_model_that_computes_nothing_fails_while_warming_up(tmp_path, folder):
    broken = tmp_path / "m"
    shutil.copytree(folder, broken)
    weights = mx.load(str(broken / "model.safetensors"))
    weights = {name: value * mx.nan if "norm" in name else value for name, value in weights.items()}
    mx.eval(weights)
    mx.save_safetensors(str(broken / "model.safetensors"), weights)
    with Child() as child:
        child.send(Assign(instance=an_instance("mlx", layers=LAYERS), runner_id="i-1-0", threads=1))
        child.send(Load(model_path=str(broken)), Warmup())
        failed = child.until_status("RunnerFailed")
        assert failed.phase == "RunnerWarmingUp"
        assert "NaN" in failed.error_message
        assert child.wait() == 1


@pytest.mark.parametrize(
    ("instance", "words"),
    [
        ({"layers": LAYERS + 1}, "has 6 layers, the instance was placed for 7"),
        ({"layers": LAYERS, "ranks": 2, "strategy": "tensor"}, "cannot split a model by tensor"),
    ],
)
def test_an_instance_that_does_not_fit_fails_the_runner(folder, instance, words):
    with Child() as child:
        child.send(Assign(instance=an_instance("mlx", **instance), runner_id="i-1-0", threads=1))
        child.send(Load(model_path=str(folder)))
        assert words in child.until_status("RunnerFailed").error_message


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def answer(cache):
    """The small model alone: its answer and what was said of its memory."""
    with Child(cache=cache, env=blas_environment(cache, 1)) as child:
        instance = an_instance("mlx", layers=smollm.LAYERS, context=2048)
        child.send(Assign(instance=instance, runner_id="i-1-0", threads=1))
        child.send(Load(model_path=str(smollm.gguf_file())), Warmup())
        child.until_status("RunnerReady", 60)
        child.ask("t", smollm.QUESTION, temperature=0, max_tokens=40)
        done = child.until_done("t", 60)
        notes = [report for report in child.reports if isinstance(report, Memory) and report.note]
        return done, child.text_of("t"), notes


@pytest.mark.model
def test_the_small_model_knows_the_capital_of_france(answer):
    done, text, notes = answer
    assert done.reason == "stop"
    assert "Paris" in text
    assert done.usage.prompt_tokens == 42
    if sys.platform == "linux":
        assert notes[0].note.startswith("weights in float32")
    assert notes[0].model_bytes > 90_000_000


@pytest.mark.model
@pytest.mark.long
def test_two_ranks_of_the_small_model_say_the_same(answer, cache):
    instance = an_instance("mlx", layers=smollm.LAYERS, ranks=2, borders=[0, 14, 30], context=2048)
    addresses = tuple(free_addresses(2))
    with ExitStack() as stack:
        children = [stack.enter_context(Child(cache=cache, env=blas_environment(cache, 1))) for _ in range(2)]
        for rank, child in enumerate(children):
            child.send(Assign(instance=instance, runner_id=f"i-1-{rank}", threads=1))
            child.send(Connect(ring=addresses), Load(model_path=str(smollm.gguf_file())), Warmup())
        for child in children:
            child.until_status("RunnerReady", 60)
        children[0].ask("t", smollm.QUESTION, temperature=0, max_tokens=40)
        children[1].send(Generate(task_id="t"))
        assert children[0].until_done("t", 60).reason == "stop"
        assert children[1].until_done("t").reason == "stop"
        assert children[0].text_of("t") == answer[1]
        held = [next(r.model_bytes for r in child.reports if isinstance(r, Memory)) for child in children]
        assert held[1] < held[0] < answer[2][0].model_bytes
        for child in children:
            child.send(Stop())
        assert [child.wait() for child in children] == [0, 0]


@pytest.mark.accept
@pytest.mark.model
def test_the_margin_of_the_question_is_wide(cache):
    """Equality of greedy texts is only promised where the first token is no near tie."""
    folder = open_folder(converted(smollm.gguf_file(), cache / "margin"), cache)
    layers = range(smollm.LAYERS)
    model, _ = load_model(folder, layers, lambda _: Precision(True, ""), lambda _l, _t: None, lambda: False)
    alone = Alone(Stage(model, layers, smollm.LAYERS))
    alone.begin()
    prompt = open_vocabulary(folder.path, folder.config).prompt((ChatMessage(role="user", content=smollm.QUESTION),))
    logits = alone.feed(mx.array([prompt]), True)
    first, second = sorted(logits[0].tolist())[:-3:-1]
    assert first - second > 0.5
