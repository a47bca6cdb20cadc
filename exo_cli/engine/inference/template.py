"""Chat templates: messages to the text of a prompt, as the model's own Jinja template says.

It knows what templates may use (the names that the transformers library gives them) and runs them in Jinja's sandbox,
because a template comes with the model, from anybody. It knows no tokens.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from exo_cli.engine.core.tasks import ChatMessage
from exo_cli.engine.inference import EngineError


class ChatTemplate:
    """One template with the names of special tokens that it may use."""

    def __init__(self, source: str, names: Mapping[str, object]) -> None:
        """Compile `source`; `names` are there for each prompt.

        Raises:
            EngineError: it is no template.
        """
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = time.strftime
        self._names = dict(names)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise EngineError(f"the chat template of this model cannot be read: {error}", "bad_model") from error

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """The text of the prompt, up to where the model is to go on.

        Raises:
            EngineError: the template refuses these messages.
        """
        words = [{"role": role_for(message), "content": message.content} for message in messages]
        try:
            return self._template.render(
                messages=words, tools=None, documents=None, add_generation_prompt=True, **self._names
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise EngineError(
                f"the chat template of this model refuses these messages: {error}", "bad_request"
            ) from error


def role_for(message: ChatMessage) -> str:
    """The role as models know it: no template has heard of developers."""
    return "system" if message.role == "developer" else message.role


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
