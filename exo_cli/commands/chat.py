"""`exo chat [PROMPT]`: talk to a model, once, in a pipe, or in a session.

The answer goes to stdout as it comes, everything else to stderr. Without a node it starts one for its own duration: the
node ends by itself when the last connection to it closes, however this process ends, so nothing is left running.
"""

from dataclasses import dataclass, field
from typing import Annotated

import typer

from exo_cli import views
from exo_cli.api import PRODUCT, AnswerFormat, AnswerWriter, EndpointOption, Host, model_name
from exo_cli.engine.client import Client
from exo_cli.engine.client.background import start_solo
from exo_cli.engine.client.endpoint import Answering, Message
from exo_cli.engine.core.errors import ExoError, NotFoundError, UnavailableError, UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)
DEFAULT_MODEL = "smollm2"
DEFAULT_MAX_TOKENS = 512
"""A small model may never come to an end. On two cores of a CPU the one that comes with us says these in a minute."""
START_SECONDS = 30.0
LOAD_SECONDS = 900.0


@dataclass(slots=True)
class Talk:
    """What goes with every turn, and the turns so far."""

    model: str | None
    sampling: Message
    stop: list[str]
    timeout_seconds: float | None
    format: AnswerFormat
    stats: bool
    messages: list[Message] = field(default_factory=list[Message])


ModelOption = Annotated[str | None, typer.Option("--model", "-m", metavar="MODEL", help="Which placed model.")]
SystemOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Instructions before the conversation.")]
MaxTokensOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="Stop after this many tokens.", show_default="512, or a full context")
]
TemperatureOption = Annotated[
    float | None,
    typer.Option(min=0, max=10, metavar="T", help="How freely to choose; 0 takes the likeliest.", show_default="0.7"),
]
TopPOption = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, metavar="P", help="Choose from the likeliest that add up to this.", show_default="1.0, all"
    ),
]
TopKOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Choose from this many of the likeliest.", show_default="0, all"),
]
MinPOption = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, metavar="P", help="Leave out what is rarer, relative to the likeliest.", show_default="0.0, none"
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(min=0, max=2**32 - 1, metavar="N", help="Repeat the same choices.", show_default="drawn anew"),
]
StopOption = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Stop before this text; repeatable.")]
TimeoutOption = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="The longest that an answer may take.", show_default="no limit"),
]
StdinOption = Annotated[bool, typer.Option("--stdin/--no-stdin", help="Whether stdin may be part of the prompt.")]
StartOption = Annotated[
    bool, typer.Option("--start/--no-start", help="Whether to start a node for this chat when none runs.")
]


@app.command()
def chat(
    ctx: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="What to ask; stdin is added when it is a pipe or a file.")
    ] = None,
    model: ModelOption = None,
    system: SystemOption = None,
    max_tokens: MaxTokensOption = DEFAULT_MAX_TOKENS,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    min_p: MinPOption = None,
    seed: SeedOption = None,
    stop: StopOption = None,
    timeout: TimeoutOption = None,
    read_stdin: StdinOption = True,
    start: StartOption = True,
    stats: Annotated[bool, typer.Option("--stats", help="Say on stderr what the answer took.")] = False,
    output: Annotated[AnswerFormat, typer.Option("--output", "-o", help="Format of the answer.")] = AnswerFormat.TEXT,
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
        model=model and model_name(model),
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
    piped = host.console.piped(beside_argument=argument is not None) if read_stdin else None
    given = None if argument is None else _clean(argument)
    if parts := [part.rstrip("\n") for part in (given, piped) if part is not None and part.strip()]:
        return "\n\n".join(parts)
    if argument is None and host.console.is_typed:
        return None
    raise UsageError("there is no prompt: neither an argument nor text on stdin", 'exo chat "Say hello"')


# -- one answer -------------------------------------------------------------------------------------------------------


def _once(host: Host, talk: Talk, start: bool) -> None:
    for attempts_left in (2, 1, 0):
        with _connect(host, start) as client:
            try:
                _prepare(host, client, talk)
                _answer(host, client, talk)
                _part(host, client)
                return
            except UnavailableError as error:
                # The solo node of another chat ends with that chat; ours may have come in its last moment.
                lost = error.details.get("reason") == "lost" and not error.details.get("begun")
                if not (lost and client.hello.get("solo") and attempts_left):
                    raise


def _connect(host: Host, start: bool) -> Client:
    """The node that is there, else one of our own. Only where nobody said which node, and none is there at all."""
    try:
        return host.connect()
    except UnavailableError as error:
        if host.endpoint.source is not None or error.details.get("reason") != "absent" or not start:
            raise
    host.console.say("no node is running: starting one for this chat")
    return start_solo(host.config.state / "solo-node.log", host.endpoint, START_SECONDS)


def _prepare(host: Host, client: Client, talk: Talk) -> None:
    """On a node that is there for chats alone: put the model there, and wait with the phases on stderr."""
    if not client.hello.get("solo"):
        return
    instances: list[Message] = client.call("instances").get("items") or []
    wanted = talk.model or (None if instances else DEFAULT_MODEL)
    if wanted is None:
        found = instances[0]
    else:
        found = client.call("place", deadline_seconds=60, model=wanted, **host.command())["item"]
    if found.get("status") != "ready":
        host.wait_instance(client, str(found["instance_id"]), "ready", LOAD_SECONDS)


def _part(host: Host, client: Client) -> None:
    """After chats on a node that goes away with them: how to keep one."""
    if client.hello.get("solo"):
        host.console.say("to keep a node running between chats: exo node start --detach && exo place smollm2")


def _answer(host: Host, client: Client, talk: Talk) -> str:
    """Show one answer as it comes; its text. If it ends early, what has come so far stays, on a line of its own."""
    asking = client.stream(
        "chat",
        model=talk.model,
        messages=talk.messages,
        sampling=talk.sampling,
        stop=talk.stop,
        deadline_seconds=talk.timeout_seconds,
        timeout_seconds=talk.timeout_seconds,
        client=PRODUCT,
    )
    writer = AnswerWriter(host.console, talk.format)
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
    if item.get("finish_reason") == "length":
        host.console.say(_cut_off(item, talk))
    if talk.stats:
        host.console.say(views.chat_figures(item))
    return writer.text


def _cut_off(item: Message, talk: Talk) -> str:
    """Which of the two lengths ended an answer that the model had not ended."""
    tokens = (item.get("usage") or {}).get("tokens")
    why = "--max-tokens" if tokens == talk.sampling["max_tokens"] else "the context is full"
    return f"stopped at {tokens} tokens ({why})"


def _pump(host: Host, asking: Answering, writer: AnswerWriter) -> Message:
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


# -- a session --------------------------------------------------------------------------------------------------------


def _session(host: Host, talk: Talk, start: bool) -> None:
    """Turn after turn on one connection; an error ends a turn, not the session."""
    with _connect(host, start) as client:
        _prepare(host, client, talk)
        host.console.say("Ctrl-C ends an answer, Ctrl-D the session; /clear forgets, /exit leaves")
        first = list(talk.messages)
        for line in map(str.strip, map(_clean, host.console.typed())):
            if line == "/exit":
                break
            if line == "/clear":
                talk.messages = list(first)
            elif line.startswith("/"):
                host.console.say("there are /clear and /exit")
            elif line:
                _turn(host, client, talk, line)
        _part(host, client)


def _turn(host: Host, client: Client, talk: Talk, line: str) -> None:
    talk.messages.append({"role": "user", "content": line})
    try:
        text = _answer(host, client, talk)
    except KeyboardInterrupt:
        talk.messages.pop()
        # Where a line was cut off nobody knows: a new connection ends the answer and starts clean.
        client.renew()
    except ExoError as error:
        if error.details.get("reason") in {"lost", "hung", "absent"}:
            raise
        talk.messages.pop()
        host.console.error(error, machine=host.machine)
    else:
        talk.messages.append({"role": "assistant", "content": text})
