"""`exo chat [PROMPT]`: talk to a model, once, in a pipe, or in a session.

The answer goes to stdout as it comes, everything else to stderr. Without a node it starts one for its own duration: the
node ends by itself when the last connection to it closes, however this process ends, so nothing is left running.
"""

import os
import secrets
import select
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

import typer

from exo_cli import views
from exo_cli.api import EndpointOption, Host, NodeProcess
from exo_cli.engine.client import Client
from exo_cli.engine.client.endpoint import Answering, Message
from exo_cli.engine.core.errors import BadDataError, ExoError, NotFoundError, UnavailableError, UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)
DEFAULT_MODEL = "smollm2"
START_SECONDS = 30.0
LOAD_SECONDS = 900.0
SLOW_STDIN_SECONDS = 2.0


class ChatFormat(StrEnum):
    """The answer as text, as one document, or as the chunks of the field's chat interface."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


@dataclass(slots=True)
class Talk:
    """What goes with every turn, and the turns so far."""

    model: str | None
    sampling: Message
    stop: list[str]
    timeout_seconds: float | None
    format: ChatFormat
    stats: bool
    messages: list[Message] = field(default_factory=list[Message])


@app.command()
def chat(
    ctx: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="What to ask; stdin is added when it is a pipe or a file.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", metavar="MODEL", help="Which placed model.")] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Instructions that stand before the conversation.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after this many tokens.")] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, max=10, metavar="T", help="0 takes the likeliest.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0, max=1, metavar="P", help="Sample from the likeliest of this sum.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=0, metavar="N", help="Sample from this many likeliest.")] = None,
    min_p: Annotated[
        float | None, typer.Option(min=0, max=1, metavar="P", help="Leave out what is rarer, relative to the best.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, metavar="N", help="Repeat a sampling.")] = None,
    stop: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Stop before this text; repeatable.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="The longest that an answer may take.")
    ] = None,
    read_stdin: Annotated[
        bool, typer.Option("--stdin/--no-stdin", help="Whether stdin may be part of the prompt.")
    ] = True,
    start: Annotated[
        bool, typer.Option("--start/--no-start", help="Whether to start a node for this chat when none runs.")
    ] = True,
    stats: Annotated[bool, typer.Option("--stats", help="Say on stderr what the answer took.")] = False,
    output: Annotated[ChatFormat, typer.Option("--output", "-o", help="Format of the answer.")] = ChatFormat.TEXT,
    endpoint: EndpointOption = None,
) -> None:
    """Talk to a model.

    With a PROMPT, or with text on stdin, it answers once. On a terminal without a prompt it is a session: Ctrl-C ends
    an answer, Ctrl-D ends the session, /clear forgets the turns so far, /exit leaves.

    When no node runs on this machine, one is started for the duration of the chat.
    """
    host = Host.of(ctx)
    options = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "max_tokens": max_tokens,
        "seed": seed,
    }
    talk = Talk(
        model=model and model.removeprefix("model/"),
        sampling={key: value for key, value in options.items() if value is not None},
        stop=stop or [],
        timeout_seconds=timeout,
        format=output,
        stats=stats,
        messages=[{"role": "system", "content": _clean(system)}] if system else [],
    )
    asked = _prompt(host, prompt, read_stdin)
    if asked is None:
        _session(host, talk, start)
        return
    talk.messages.append({"role": "user", "content": asked})
    _once(host, talk, start)


# -- what is asked ----------------------------------------------------------------------------------------------------


def _clean(text: str) -> str:
    """An argument as text: bytes of it that were no UTF-8 become a replacement mark."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _prompt(host: Host, argument: str | None, read_stdin: bool) -> str | None:
    """The argument, a blank line, and stdin, as far as they are there; None means a session."""
    given = None if argument is None else _clean(argument)
    piped = _piped(host, alone=given is None) if read_stdin else None
    parts = [part for part in (given, piped) if part is not None and part.strip()]
    if parts:
        return "\n\n".join(parts)
    if given is None and sys.stdin is not None and sys.stdin.isatty():
        return None
    raise UsageError("there is no prompt: neither an argument nor text on stdin", 'exo chat "Say hello"')


def _piped(host: Host, *, alone: bool) -> str | None:
    """Stdin when it is a pipe or a file. Beside an argument nothing else is read: it might never end (cron, ssh)."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return None
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not alone and not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return None
    if not stat.S_ISREG(mode) and not select.select([sys.stdin], [], [], SLOW_STDIN_SECONDS)[0]:
        host.console.say("waiting for text on stdin (--no-stdin does without)")
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise BadDataError(f"stdin is not UTF-8 text (byte {error.start})", "file -") from None


# -- one answer -------------------------------------------------------------------------------------------------------


def _once(host: Host, talk: Talk, start: bool) -> None:
    for attempt in (1, 2, 3):
        client, solo = _connect(host, start)
        with client:
            try:
                if solo:
                    _place_for_solo(host, client, talk)
                _answer(host, client, talk)
            except UnavailableError as error:
                # The solo node of another chat ends with that chat; ours may have come in its last moment.
                if solo and error.details.get("reason") == "lost" and not error.details.get("begun") and attempt < 3:
                    continue
                raise
        if solo:
            host.console.say("to keep a node running between chats: exo node start --detach && exo place smollm2")
        return


def _connect(host: Host, start: bool) -> tuple[Client, bool]:
    """The node that is there, else one of our own. Only where nobody said which node, and none is there at all."""
    try:
        client = host.connect()
        return client, bool(client.hello.get("solo"))
    except UnavailableError as error:
        if host.endpoint.source is not None or error.details.get("reason") != "absent" or not start:
            raise
    host.console.say("no node is running: starting one for this chat")
    process = NodeProcess(host.config.state / "solo-node.log", "--solo")
    return process.wait_answers(host.endpoint, START_SECONDS, own=False), True


def _place_for_solo(host: Host, client: Client, talk: Talk) -> None:
    """Put the model on a node that is there for chats alone, and wait with the phases on stderr."""
    instances: list[Message] = client.call("instances").get("items") or []
    wanted = talk.model or (None if instances else DEFAULT_MODEL)
    if wanted is None:
        found = instances[0]
    else:
        command_id = f"c-{secrets.token_hex(8)}"
        found = client.call("place", deadline_seconds=60, model=wanted, command_id=command_id)["item"]
    if found.get("status") != "ready":
        host.wait_instance(client, str(found["instance_id"]), "ready", LOAD_SECONDS)


def _answer(host: Host, client: Client, talk: Talk) -> str:
    """Show one answer as it comes; its text. If it ends early, what has come so far stays, on a line of its own."""
    asking = client.stream(
        "chat",
        model=talk.model,
        messages=talk.messages,
        sampling=talk.sampling,
        stop=talk.stop,
        timeout_seconds=talk.timeout_seconds,
    )
    writer = Writer(host, talk.format)
    try:
        result = _pump(host, asking, writer)
    except NotFoundError as error:
        error.hints = error.hints or (f"exo place {talk.model or DEFAULT_MODEL}",)
        raise
    except ExoError as error:
        error.details["begun"] = bool(writer.text)
        raise
    finally:
        asking.close()
        host.console.end_progress()
        writer.end()
    item: Message = result.get("item") or {}
    writer.finish(item)
    if talk.stats:
        host.console.say(views.chat_figures(item))
    return writer.text


def _pump(host: Host, asking: Answering, writer: "Writer") -> Message:
    while True:
        try:
            event = next(asking)
        except StopIteration as end:
            result: Message = end.value
            return result
        match event.get("type"):
            case "waiting":
                host.console.progress(str(event.get("text", "")))
            case "started":
                host.console.end_progress()
                writer.about = event
            case "chunk":
                writer.chunk(str(event.get("text", "")))
            case _:
                pass


class Writer:
    """The answer in the chosen format: text as it comes, chunks of the field's chat interface, or one document."""

    def __init__(self, host: Host, form: ChatFormat) -> None:
        """Write to the host's console."""
        self.console = host.console
        self.form = form
        self.text = ""
        self.about: Message = {}

    def chunk(self, piece: str) -> None:
        """Take a piece of the answer."""
        self.text += piece
        if self.form is ChatFormat.TEXT:
            self.console.text(piece)
        elif self.form is ChatFormat.JSONL:
            self._line({"role": "assistant", "content": piece}, {"finish_reason": None})

    def end(self) -> None:
        """The answer is over, well or not: text gets its line end."""
        if self.form is ChatFormat.TEXT and self.text and not self.text.endswith("\n"):
            self.console.text("\n")

    def finish(self, item: Message) -> None:
        """It ended well: the document, or the last chunk with what it took."""
        if self.form is ChatFormat.JSON:
            self.console.document(views.item_document("Chat", None, {**item, "text": self.text}))
        elif self.form is ChatFormat.JSONL:
            self._line({}, item)

    def _line(self, delta: Message, item: Message) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": item.get("finish_reason")}
        ids: Message = {
            "id": self.about.get("task_id"),
            "object": "chat.completion.chunk",
            "model": self.about.get("model"),
        }
        figures: Message = {key: item[key] for key in ("usage", "seed") if key in item}
        self.console.json_line({"object": "chat.completion.chunk", **ids, "choices": [choice], **figures})


# -- a session --------------------------------------------------------------------------------------------------------


def _session(host: Host, talk: Talk, start: bool) -> None:
    """Turn after turn on one connection; an error ends a turn, not the session."""
    client, solo = _connect(host, start)
    with client:
        if solo:
            _place_for_solo(host, client, talk)
        host.console.say("Ctrl-C ends an answer, Ctrl-D the session; /clear forgets, /exit leaves")
        first = list(talk.messages)
        for line in _lines(host):
            if line == "/exit":
                break
            if line == "/clear":
                talk.messages = list(first)
            elif line.startswith("/"):
                host.console.say("there are /clear and /exit")
            elif line:
                _turn(host, client, talk, line)
    if solo:
        host.console.say("to keep a node running between chats: exo node start --detach && exo place smollm2")


def _turn(host: Host, client: Client, talk: Talk, line: str) -> None:
    talk.messages.append({"role": "user", "content": line})
    try:
        text = _answer(host, client, talk)
    except KeyboardInterrupt:
        talk.messages.pop()
        # Where a line was cut off nobody knows: a new connection ends the answer and starts clean.
        client.renew()
    except UnavailableError:
        raise
    except ExoError as error:
        talk.messages.pop()
        host.console.error(error, machine=host.machine)
    else:
        talk.messages.append({"role": "assistant", "content": text})


def _lines(host: Host) -> Iterator[str]:
    """What the person types. Ctrl-C at the prompt clears the line, twice in a second leaves."""
    with suppress(ImportError):
        import readline  # noqa: F401 - gives input() its editing and history
    last = 0.0
    while True:
        try:
            yield _clean(input("> ")).strip()
        except EOFError:
            host.console.say("")
            return
        except KeyboardInterrupt:
            host.console.say("")
            if time.monotonic() - last < 1:
                raise
            last = time.monotonic()
