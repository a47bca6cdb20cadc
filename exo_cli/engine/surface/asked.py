"""What a request asks for: judging its params, and finding the one thing that a name or a beginning of an id means."""

from exo_cli.engine.control import Params
from exo_cli.engine.core.errors import NotFoundError, UsageError
from exo_cli.engine.core.items import Item


def text(params: Params, key: str) -> str | None:
    """A text, or None when it is not given. Raises UsageError."""
    value = params.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{key} has to be text")
    return value


def seconds(params: Params, default: float) -> float:
    """How long to wait."""
    value = params.get("timeout_seconds")
    return float(value) if isinstance(value, int | float) else default


def chosen(
    wanted: str, items: list[Item], keys: tuple[str, ...], kind: str, hint: str, *, identity: str | None = None
) -> Item:
    """The one item with this id or name, or with a beginning of it that no other has.

    `identity` (else the first of the keys) tells things apart: items that share it are one, of which the first is
    taken. An exact match counts before a beginning, an earlier key before a later one.

    Raises:
        NotFoundError: none is called that.
        UsageError: several are.
    """
    exact = ([item for item in items if item[key] == wanted] for key in keys)
    begun = [item for item in items if wanted and any(str(item[key]).startswith(wanted) for key in keys)]
    found = next(filter(None, exact), begun)
    if not found:
        raise NotFoundError(f"no {kind} {wanted!a}", hint)
    candidates = list(dict.fromkeys(str(item[identity or keys[0]]) for item in found))
    if len(candidates) > 1:
        lines = "".join(f"\n  {candidate}" for candidate in candidates)
        raise UsageError(f"{kind} {wanted!a} is ambiguous{lines}", hint, code="ambiguous")
    return found[0]
