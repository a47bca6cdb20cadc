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


def chosen(wanted: str, items: list[Item], keys: tuple[str, ...], kind: str, hint: str) -> Item:
    """The one item with this id, name, or unique beginning of an id. Raises NotFoundError or UsageError."""
    for key in keys:
        exact = [item for item in items if item[key] == wanted]
        if exact:
            return exact[0]
    found = [item for item in items if wanted and any(str(item[key]).startswith(wanted) for key in keys)]
    if not found:
        raise NotFoundError(f"no {kind} {wanted!a}", hint)
    if len({str(item[keys[-1]]) for item in found}) > 1:
        lines = "".join(f"\n  {item[keys[0]]}" for item in found)
        raise UsageError(f"{kind} {wanted!a} is ambiguous{lines}", hint, code="ambiguous")
    return found[0]
