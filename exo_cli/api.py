"""The stable surface for commands, ours and those of other packages: everything else may change between versions.

A command gets a `Host`: the terminal, the options that every command shares, a client for the node, and the ways to
show an answer. A plugin is a `typer.Typer` or a callable `(argv, host) -> int` in the entry-point group
`exo.commands.v1`; it raises the errors named here, and they end as every command's do.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol

import typer

from exo_cli import __version__, views
from exo_cli.console import MACHINE, Console, Format, visible
from exo_cli.engine.client import Client
from exo_cli.engine.client.endpoint import Answering, Endpoint, Message, local_endpoint
from exo_cli.engine.core.errors import (
    AuthError,
    BadDataError,
    BadStateError,
    ConflictError,
    ExitCode,
    ExoError,
    FailedError,
    InfeasibleError,
    InternalError,
    NotFoundError,
    UnavailableError,
    UsageError,
    WaitTimeoutError,
)
from exo_cli.engine.paths import Paths, find_paths

__all__ = [
    "AnswerFormat", "AnswerWriter", "AuthError", "BadDataError", "BadStateError", "Client", "ConflictError", "Console",
    "Endpoint", "EndpointOption", "ExitCode", "ExoError", "FailedError", "Format", "HeadersOption", "Host",
    "InfeasibleError", "InternalError", "NotFoundError", "OutputOption", "Paths", "PluginFacts", "UnavailableError",
    "UsageError", "WaitTimeoutError",
]  # fmt: skip

API_VERSION = 1
PRODUCT = f"exo/{__version__}"
# Which failure a command with several targets ends with: the first of these that occurred.
PRECEDENCE = (70, 5, 4, 7, 9, 11, 6, 3, 2, 1)


class PluginFacts(Protocol):
    """What is known of a plugin without importing it. `standing` is `runs`, or why it does not."""

    name: str
    source: str
    target: str
    dist: str
    version: str
    summary: str
    standing: str


class Host:
    """What a command runs in. `plugins` lists what other packages offer; the app fills it in."""

    def __init__(self, console: Console) -> None:
        """Start with nothing chosen: formats and colour by the streams, this home's own node."""
        self.console = console
        self.output: Format | None = None
        self.headers = True
        self.chosen: Endpoint | None = None
        self.machine = False
        self.interrupted = "interrupted"
        self.plugins: Callable[[], Sequence[PluginFacts]] = tuple

    @staticmethod
    def of(ctx: typer.Context) -> "Host":
        """The host of a running command."""
        host = ctx.find_object(Host)
        assert host is not None, "commands run under the app, which puts a Host into the context"
        return host

    @property
    def config(self) -> Paths:
        """The folders of this environment."""
        return find_paths()

    @property
    def format(self) -> Format:
        """How an answer is to be written."""
        return self.output or (Format.TABLE if self.console.on_terminal else Format.PLAIN)

    @property
    def endpoint(self) -> Endpoint:
        """The node that was chosen, else the one of this home."""
        return self.chosen or local_endpoint()

    def connect(self) -> Client:
        """A connection to the node; the caller closes it."""
        return Client(self.endpoint)

    def command(self) -> dict[str, Any]:
        """What goes with a wish: an id, so that a repetition on the way is harmless, and who asks."""
        import getpass

        try:
            user = getpass.getuser()
        except (OSError, KeyError):
            user = None
        return {"command_id": f"c-{os.urandom(8).hex()}", "client": PRODUCT, "user": user}

    # -- answers ------------------------------------------------------------------------------------------------------

    def show_list(self, kind: views.Kind, reply: Message, nothing: str = "") -> None:
        """A list in the chosen format; `nothing` is said on a terminal when it is empty."""
        items: list[Message] = reply.get("items") or []
        match self.format:
            case Format.JSON:
                self.console.document(views.list_document(kind, reply.get("revision"), items))
            case Format.JSONL:
                self.lines(items)
            case Format.NAME:
                for item in items:
                    self.console.data(visible(views.line_name(kind, item)))
            case shape:
                if items or not (nothing and self.console.on_terminal):
                    self.console.table(
                        views.table(kind, items, wide=shape is Format.WIDE),
                        headers=self.headers,
                        plain=shape is Format.PLAIN,
                    )
                else:
                    self.console.say(nothing)

    def show_item(self, kind: views.Kind, reply: Message) -> None:
        """A single thing in the chosen format; tables give a row to each of its fields."""
        item: Message = reply.get("item") or {}
        match self.format:
            case Format.JSON:
                self.console.document(views.item_document(kind.document, reply.get("revision"), item))
            case Format.JSONL:
                self.lines([item])
            case Format.NAME:
                self.console.data(visible(views.line_name(kind, item)))
            case shape:
                self.console.table(views.fields(item), headers=False, plain=shape is Format.PLAIN)

    def lines(self, items: Iterable[object]) -> None:
        """One JSON value a line."""
        for item in items:
            self.console.json_line(item)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait_instance(self, client: Client, instance_id: str, goal: str, timeout_seconds: float) -> Message:
        """Wait until an instance is `ready` or `deleted`, with its progress on stderr; the item as it is then."""
        wanted: Message = {"instance_id": instance_id, "for": goal, "timeout_seconds": timeout_seconds}
        waiting = client.stream("wait", **wanted)
        return self.follow(waiting).get("item") or {}

    def follow(self, waiting: Answering) -> Message:
        """Show the progress events of something that is waited for; its result."""
        try:
            while True:
                event = next(waiting)
                if event.get("type") == "progress":
                    self.console.progress(views.progress_line(event.get("item") or {}))
        except StopIteration as end:
            result: Message = end.value
            return result
        finally:
            waiting.close()
            self.console.end_progress()

    def fail_all(self, errors: Sequence[ExoError]) -> NoReturn:
        """Name every failure of a command with several targets, and end with the most telling one's code."""
        for error in errors:
            self.console.error(error, machine=self.machine)
        codes = {int(error.exit_code) for error in errors}
        raise typer.Exit(next((code for code in PRECEDENCE if code in codes), 1))


class AnswerFormat(StrEnum):
    """The answer as text, as one document, or as the chunks of the field's chat interface."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


class AnswerWriter:
    """An answer of a model: text as it comes, chunks of the field's chat interface, or one document."""

    def __init__(self, console: Console, form: AnswerFormat) -> None:
        """Begin an answer."""
        self.console = console
        self.form = form
        self.text = ""
        self.about: Message = {}

    def chunk(self, piece: str) -> None:
        """Take a piece of the answer."""
        self.text += piece
        if self.form is AnswerFormat.TEXT:
            self.console.text(piece)
        elif self.form is AnswerFormat.JSONL:
            self._line({"role": "assistant", "content": piece}, {"finish_reason": None})

    def end(self) -> None:
        """The answer is over, well or not: text gets its line end."""
        if self.form is AnswerFormat.TEXT and self.text and not self.text.endswith("\n"):
            self.console.text("\n")

    def finish(self, item: Message) -> None:
        """It ended well: the document, or the last chunk with what it took."""
        if self.form is AnswerFormat.JSON:
            self.console.document(views.item_document("Chat", None, {**item, "text": self.text}))
        elif self.form is AnswerFormat.JSONL:
            self._line({}, item)

    def _line(self, delta: Message, item: Message) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": item.get("finish_reason")}
        whose: Message = {"id": self.about.get("task_id"), "model": self.about.get("model")}
        figures: Message = {key: item[key] for key in ("usage", "seed") if key in item}
        self.console.json_line({"object": "chat.completion.chunk", **whose, "choices": [choice], **figures})


# -- options that several commands share; each works before and after the command's name -------------------------------


def model_name(given: str) -> str:
    """A model as the node takes it: a path is the person's, so it is made whole here, where it was typed."""
    name = given.removeprefix("model/")
    return os.path.abspath(Path(name).expanduser()) if name.startswith(("./", "../", "~/")) else name  # noqa: PTH100


def _set_output(ctx: typer.Context, value: Format | None) -> None:
    if value is not None:
        Host.of(ctx).output = value
        Host.of(ctx).machine = value in MACHINE


def _set_endpoint(ctx: typer.Context, value: str | None) -> None:
    if value is None:
        return
    source = ctx.get_parameter_source("endpoint")
    named = "EXO_ENDPOINT" if source is not None and source.name == "ENVIRONMENT" else "--endpoint"
    if named == "EXO_ENDPOINT" and Host.of(ctx).chosen is not None:
        return  # the option stood before the command's name
    address = f"unix:{value}" if value.startswith("/") else value
    host, _, port = address.rpartition(":")
    if not address.startswith("unix:/") and not (host and port.isdecimal() and int(port) < 65536):
        raise UsageError(f"{value!a} (from {named}) is neither HOST:PORT nor unix:/PATH", "exo node show")
    Host.of(ctx).chosen = Endpoint(address, named)


def _set_headers(ctx: typer.Context, value: bool) -> None:
    if not value:
        Host.of(ctx).headers = False


OutputOption = Annotated[
    Format | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="table, plain, wide, json, jsonl or name.",
        show_default="table on a terminal, else plain",
        callback=_set_output,
    ),
]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="ADDRESS",
        envvar="EXO_ENDPOINT",
        help="The node to talk to: HOST:PORT or unix:/PATH.",
        show_default="this machine's",
        callback=_set_endpoint,
    ),
]
HeadersOption = Annotated[
    bool, typer.Option("--headers/--no-headers", help="Whether tables have a header.", callback=_set_headers)
]
