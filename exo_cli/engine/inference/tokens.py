"""Words to tokens and back: the vocabulary of a model folder, its prompts, and text out of a stream of tokens.

Two ways to the same tokens. The quick one reads tokenizer.json with the library that wrote it. The other one goes
through mlx_lm and transformers, takes over a second to import, and is for folders that have no such file or whose
prompts are made by code of mlx_lm. Neither runs code that comes with a model.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from exo_cli.engine.core.tasks import ChatMessage
from exo_cli.engine.inference import EngineError
from exo_cli.engine.inference.families import FAMILIES, whole_mlx_lm
from exo_cli.engine.inference.template import ChatTemplate, role_for

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
_LONGEST_CHARACTER_TOKENS = 16


class Vocabulary:
    """What a model's tokens mean."""

    def __init__(
        self,
        prompt: Callable[[Sequence[ChatMessage]], list[int]],
        decode: Callable[[list[int]], str],
        ends: frozenset[int],
    ) -> None:
        """`ends` are the tokens with which a model says that it is done."""
        self.prompt = prompt
        self.ends = ends
        self._decode = decode

    def stream(self) -> "TokenText":
        """Text out of one task's tokens."""
        return TokenText(self._decode)


class TokenText:
    """Tokens to text, one by one. A character that needs more tokens is held back until it is whole."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        """Begin a text."""
        self._decode = decode
        self._window: list[int] = []
        self._shown = 0

    def add(self, token: int) -> str:
        """The text that this token sets free."""
        self._window.append(token)
        # How a token reads can depend on the one before it, so that one is decoded again each time.
        before, now = self._decode(self._window[: self._shown]), self._decode(self._window)
        unfinished = now.endswith(_UNFINISHED) and len(self._window) - self._shown < _LONGEST_CHARACTER_TOKENS
        if unfinished or len(now) <= len(before):
            return ""
        self._window = self._window[self._shown :]
        self._shown = len(self._window)
        return now[len(before) :]

    def rest(self) -> str:
        """What is still held back, as well as it can be read."""
        return self._decode(self._window)[len(self._decode(self._window[: self._shown])) :]


def open_vocabulary(folder: Path, config: dict[str, Any]) -> Vocabulary:
    """The vocabulary of a model folder. `config` is its config.json.

    Raises:
        EngineError: it would need code that comes with the model, or it cannot be read.
    """
    settings = _json_file(folder / "tokenizer_config.json")
    if "auto_map" in settings:
        raise EngineError(
            f"the tokenizer of {folder.name} is code of its own (auto_map), which is never run", "foreign_code"
        )
    ends = _numbers(config.get("eos_token_id"))
    source = _template_source(folder, settings)
    known = "chat_template_type" not in settings and config.get("model_type") in FAMILIES
    # {% generation %} is a tag of the transformers library alone.
    if known and (folder / "tokenizer.json").is_file() and "endgeneration" not in (source or ""):
        return _quick(folder, settings, source, ends)
    return _through_mlx_lm(folder, ends)


def _quick(folder: Path, settings: dict[str, Any], source: str | None, ends: set[int]) -> Vocabulary:
    from tokenizers import AddedToken, Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # The library raises nothing more special than this.
        raise EngineError(f"tokenizer.json of {folder.name} cannot be read: {error}", "bad_model") from error
    # A file may carry the limits of its training, and would cut prompts silently.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for facts in settings.get("added_tokens_decoder", {}).values():
        if tokenizer.token_to_id(facts["content"]) is None:
            tokenizer.add_tokens([AddedToken(facts["content"], special=facts.get("special", False))])
    names = {name: _content(settings[name]) for name in _SPECIAL if settings.get(name)}
    end = tokenizer.token_to_id(names["eos_token"]) if "eos_token" in names else None
    if end is not None:
        ends.add(end)
    # As mlx_lm does: a model that can think is told to.
    thinks = tokenizer.token_to_id("<think>") is not None and tokenizer.token_to_id("</think>") is not None
    template = ChatTemplate(source, {**names, "enable_thinking": thinks}) if source else None

    def prompt(messages: Sequence[ChatMessage]) -> list[int]:
        if template is None:
            return list(tokenizer.encode("\n".join(message.content for message in messages)).ids)
        return list(tokenizer.encode(template.render(messages), add_special_tokens=False).ids)

    def decode(tokens: list[int]) -> str:
        return str(tokenizer.decode(tokens, skip_special_tokens=False))

    return Vocabulary(prompt, decode, frozenset(ends))


def _through_mlx_lm(folder: Path, ends: set[int]) -> Vocabulary:
    tokenizer = whole_mlx_lm("utils").load_tokenizer(folder, eos_token_ids=list(ends) or None)

    def prompt(messages: Sequence[ChatMessage]) -> list[int]:
        if not tokenizer.has_chat_template:
            return list(tokenizer.encode("\n".join(message.content for message in messages)))
        words = [{"role": role_for(message), "content": message.content} for message in messages]
        try:
            return list(tokenizer.apply_chat_template(words, add_generation_prompt=True))
        except Exception as error:  # Templates raise what they like.
            raise EngineError(
                f"the chat template of this model refuses these messages: {error}", "bad_request"
            ) from error

    return Vocabulary(prompt, tokenizer.decode, frozenset(tokenizer.eos_token_ids))


def _template_source(folder: Path, settings: dict[str, Any]) -> str | None:
    """The template beside the tokenizer, or in its settings: one, or several with names."""
    if (file := folder / "chat_template.jinja").is_file():
        return file.read_text()
    found = settings.get("chat_template") or _json_file(folder / "chat_template.json").get("chat_template")
    if isinstance(found, list):
        named = {entry["name"]: entry["template"] for entry in found}
        return named.get("default")
    return found


def _json_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise EngineError(f"{path} is no JSON: {error}", "bad_model") from error
    return value if isinstance(value, dict) else {}


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else str(token)


def _numbers(value: Any) -> set[int]:
    if value is None:
        return set()
    return set(value) if isinstance(value, list) else {value}
