"""Model files on this machine. `models` is the store; `hub`, `listing` and `fetching` run in a process of their own."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exo_cli.engine.store.models import ModelStore as ModelStore


def __getattr__(name: str) -> object:
    # The hub process imports this package too, and needs neither trio nor pydantic: half a second of each look-up.
    if name == "ModelStore":
        from exo_cli.engine.store.models import ModelStore

        return ModelStore
    raise AttributeError(name)
