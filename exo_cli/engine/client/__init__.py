"""What commands hold: one connection to a node's control surface. Blocking, standard library only.

Asks with `call`, follows with `stream`. A node on this machine is reached through its socket; one at HOST:PORT through
the route between nodes, which is imported only then. Every wait has an end: connecting takes at most 2 s, a plain
answer has a deadline, and a stream that falls silent is checked by greeting the node anew.
"""

from typing import Any, Protocol, cast

from exo_cli.engine.client.endpoint import ANSWER_SECONDS, Answering, Endpoint, Message
from exo_cli.engine.client.local import LocalLink
from exo_cli.engine.core.errors import UnavailableError, WaitTimeoutError


class Link(Protocol):
    """One way to a node: its greeting, and questions that are answered by events and a result."""

    hello: Message

    def ask(self, method: str, params: Message, deadline_seconds: float | None) -> Answering:
        """Ask, yield the events, return the result. Closed early, it cancels what was asked for."""
        ...

    def close(self) -> None:
        """Let go of the node; it cancels everything that was asked for here."""
        ...


class Client:
    """A connection to one node. `hello` is how it greeted: its id, name, version, pid, and whether it is solo."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Connect.

        Raises:
            UnavailableError: nobody there, or nobody who answers; `details["reason"]` says which.
        """
        self.endpoint = endpoint
        self._link = _link(endpoint)

    @property
    def hello(self) -> Message:
        """The node's greeting."""
        return self._link.hello

    def call(self, method: str, /, *, deadline_seconds: float = ANSWER_SECONDS, **params: Any) -> Message:
        """Ask for something that is answered soon."""
        answering = self._link.ask(method, params, deadline_seconds)
        while True:
            try:
                next(answering)
            except StopIteration as end:
                return cast("Message", end.value)

    def stream(self, method: str, /, *, deadline_seconds: float | None = None, **params: Any) -> Answering:
        """Follow something: yields its events, returns its result. Closing the generator cancels it.

        Raises:
            WaitTimeoutError: it has not ended after `deadline_seconds`.
        """
        try:
            return (yield from self._link.ask(method, params, deadline_seconds))
        except UnavailableError as error:
            if deadline_seconds is None or error.details.get("reason") != "hung":
                raise
            raise WaitTimeoutError(f"it did not end within {deadline_seconds:g} s", "exo runners") from None

    def renew(self) -> None:
        """Connect anew, then let go of the old connection and of all that was asked for on it."""
        fresh, old = _link(self.endpoint), self._link
        self._link = fresh
        old.close()

    def close(self) -> None:
        """Let go of the node."""
        self._link.close()

    def __enter__(self) -> "Client":
        """Hold it for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go at the block's end."""
        self.close()


def _link(endpoint: Endpoint) -> Link:
    if (path := endpoint.socket_path) is not None:
        return LocalLink(endpoint, path)
    from exo_cli.engine.client.remote import RemoteLink

    return RemoteLink(endpoint)
