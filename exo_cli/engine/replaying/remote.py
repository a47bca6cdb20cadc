"""Remote: the event log and the state of a running public system, over its HTTP API.

The state is asked for first: the log that comes after it holds everything that is in it.
"""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from exo_cli.engine.core.agreement import index_of
from exo_cli.engine.core.errors import BadDataError, UnavailableError, UsageError

if TYPE_CHECKING:
    from exo_cli.engine.core.foreign.values import Fields

# Of silence: a long log takes longer as a whole.
SILENCE_SECONDS = 20.0
STATE_LIMIT_BYTES = 256 << 20
_SCHEMES = ("http://", "https://")


def is_url(path: str) -> bool:
    """Whether it is one, and no file."""
    return path.startswith(_SCHEMES)


def _host_in(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


class Remote:
    """A running public system."""

    def __init__(self, url: str) -> None:
        """Ask it for its state.

        Raises:
            UsageError: no URL of a host.
            UnavailableError: nobody there, or it does not answer.
            BadDataError: what answers is something else.
        """
        if not _host_in(url):
            raise UsageError(f"no host in {url!a}", "exo replay http://localhost:52415")
        self.url = url.rstrip("/").removesuffix("/events").removesuffix("/state")
        self._events: HTTPResponse | None = None
        with _told(self.url), self._get("/state") as answer:
            body = answer.read(STATE_LIMIT_BYTES)
        try:
            self.state: Fields = cast("Fields", _an_object(json.loads(body)))
            self.index = index_of(self.state)
        except (ValueError, RecursionError) as error:
            raise self.not_it("/state", str(error).splitlines()[0]) from None

    def read(self, n_bytes: int = -1) -> bytes:
        """The next bytes of its log, which is asked for at the first."""
        with _told(self.url):
            self._events = self._events or self._get("/events")
            return self._events.read(n_bytes)

    def close(self) -> None:
        """Hang up."""
        if self._events is not None:
            self._events.close()

    def cut_off(self, index: int) -> UnavailableError:
        """The error for a log that ends before all that is in the state has come."""
        return UnavailableError(
            f"{self.url}/events ended after event {index} of {self.index}", f"exo replay {shlex.quote(self.url)}"
        )

    def not_it(self, path: str, why: str) -> BadDataError:
        """The error for an answer that the public system does not give."""
        return BadDataError(
            f"{self.url}{path} is not what exo-explore/exo answers: {why}", f"curl {self._quoted(path)}"
        )

    def _get(self, path: str) -> HTTPResponse:
        request = Request(self.url + path, headers={"Accept": "application/json"})
        try:
            return cast("HTTPResponse", urlopen(request, timeout=SILENCE_SECONDS))
        except HTTPError as error:
            error.close()
            raise self.not_it(path, f"HTTP {error.code}") from None

    def _quoted(self, path: str) -> str:
        return shlex.quote(self.url + path)


@contextmanager
def _told(url: str) -> Iterator[None]:
    """What goes wrong on the way, in a line."""
    try:
        yield
    except (OSError, HTTPException, ValueError) as error:
        why = str(error.reason if isinstance(error, URLError) else error) or type(error).__name__
        raise UnavailableError(f"{url} does not answer: {why}", f"curl {shlex.quote(url)}/state") from None


def _an_object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value
