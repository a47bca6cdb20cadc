"""Facts about machines, and which of them can reach which.

All facts of a node nest in one `NodeFacts`, so that a lost node drops them all at once.
"""

from pydantic import Field

from exo_cli.engine.core.ids import AnId
from exo_cli.engine.core.runners import Value


class NodeFacts(Value):
    """What a node says of itself when it joins, and again when it changed by more than a sixteenth. Bytes."""

    name: str = Field(max_length=128)
    version: str = Field(max_length=64)
    addresses: tuple[str, ...] = ()
    memory_bytes: int = Field(ge=0)
    memory_available_bytes: int = Field(ge=0)
    backends: tuple[str, ...] = ()
    cores: int = Field(ge=1)
    platform: str = Field(default="", max_length=64)
    engines: tuple[str, ...] = ()
    log_dir: str | None = None


class Edge(Value):
    """`source` can reach `sink` at `address` (`host:port`)."""

    source: AnId
    sink: AnId
    address: str = Field(max_length=256)


def changed_enough(old: NodeFacts, new: NodeFacts) -> bool:
    """Whether a change is worth an event: free memory by more than a sixteenth of all, anything else at all."""
    if old.model_copy(update={"memory_available_bytes": new.memory_available_bytes}) != new:
        return True
    return abs(old.memory_available_bytes - new.memory_available_bytes) * 16 > max(1, new.memory_bytes)
