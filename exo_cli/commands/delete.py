"""`exo delete ID...`: take instances off; done when their runners are gone."""

import sys
import time
from typing import Annotated

import typer

from exo_cli import views
from exo_cli.api import EndpointOption, Host, OutputOption
from exo_cli.console import MACHINE, Format, described, visible
from exo_cli.engine.client import Client
from exo_cli.engine.client.endpoint import Message
from exo_cli.engine.core.errors import ExoError, NotFoundError, UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Target:
    """One id on its way out: the node's last answer, whether it is gone, or why not."""

    def __init__(self, wish: str) -> None:
        """Start with what was asked for."""
        self.item: Message = {"instance_id": wish}
        self.wish = wish
        self.gone = False
        self.error: ExoError | None = None

    @property
    def instance_id(self) -> str:
        """Its whole id."""
        return str(self.item["instance_id"])

    def begin(self, host: Host, client: Client, *, absent_is_fine: bool) -> None:
        """Ask for it."""
        try:
            self.item |= client.call("delete", instance_id=self.wish, **host.command())["item"]
            host.console.say(f"deleting {self.instance_id}")
        except NotFoundError as error:
            self.gone = absent_is_fine
            self.error = None if absent_is_fine else error
        except ExoError as error:
            self.error = error

    def finish(self, host: Host, client: Client, end: float) -> None:
        """Wait until its runners are gone, at most until `end` (monotonic)."""
        try:
            host.wait_instance(client, self.instance_id, "deleted", max(0.0, end - time.monotonic()))
            self.gone = True
        except NotFoundError:
            self.gone = True
        except ExoError as error:
            self.error = error

    def document(self) -> Message:
        """As scripts get it."""
        error = None if self.error is None else described(self.error)
        return {**self.item, "deleted": self.gone, "error": error}


@app.command()
def delete(
    ctx: typer.Context,
    instances: Annotated[
        list[str], typer.Argument(metavar="INSTANCE", help="Ids, or their beginnings; - reads them from stdin.")
    ],
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="An instance that is gone already is no failure.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether to wait until its runners are gone.")] = True,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait, for all together.")
    ] = 60.0,
    output: OutputOption = None,
    endpoint: EndpointOption = None,
) -> None:
    """Take instances off their machines; their open chats end."""
    host = Host.of(ctx)
    targets = [Target(wish) for wish in _ids(instances)]
    with host.connect() as client:
        # All are told first: they end side by side, and one deadline holds for all.
        for target in targets:
            target.begin(host, client, absent_is_fine=ignore_not_found)
        end = time.monotonic() + timeout
        for target in targets:
            if wait and not target.gone and target.error is None:
                target.finish(host, client, end)
            if target.gone and host.format not in MACHINE:
                _say_gone(host, target)
    if host.format in MACHINE:
        host.show_list(views.INSTANCE, {"items": [target.document() for target in targets]})
    if failures := [target.error for target in targets if target.error is not None]:
        host.fail_all(failures)


def _say_gone(host: Host, target: Target) -> None:
    name = visible(target.instance_id)
    host.console.data(f"instance/{name}" if host.format is Format.NAME else f"deleted {name}")


def _ids(given: list[str]) -> list[str]:
    words: list[str] = []
    for word in given:
        words += sys.stdin.read().split() if word == "-" else [word]
    ids = list(dict.fromkeys(word.removeprefix("instance/") for word in words))
    if not all(ids):
        raise UsageError("an instance id is empty", "exo runners")
    return ids
