"""Identifiers: what they look like, how they are derived, and the one place where a foreign one is judged.

Ids are opaque strings. Those of instances and runners derive from the command that made them, so that a repeated
command names the same things (idempotence is then a law, not a promise).
"""

import base64
import hashlib
import re
from typing import Annotated, NewType

from pydantic import StringConstraints

_ID = StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$")

NodeId = NewType("NodeId", str)
ClusterId = NewType("ClusterId", str)
InstanceId = NewType("InstanceId", str)
RunnerId = NewType("RunnerId", str)

AnId = Annotated[str, _ID]

_MODEL = re.compile(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?(@[A-Za-z0-9][A-Za-z0-9._-]{0,95})?$"
)


def derived(prefix: str, *parts: str) -> str:
    """`prefix-` and 12 characters (60 bits) of the hash of the parts: the same parts give the same id."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    return f"{prefix}-{base64.b32encode(digest)[:12].decode().lower()}"


def instance_id_for(command_id: str) -> InstanceId:
    """The id of the instance that a place command makes."""
    return InstanceId(derived("i", command_id))


def runner_id_for(instance_id: str, rank: int) -> RunnerId:
    """The id of the runner of one rank; it survives re-creation, `attempt` tells incarnations apart."""
    return RunnerId(f"{instance_id}-{rank}")


def instance_id_in(runner_id: str) -> InstanceId:
    """The way back from `runner_id_for`; it does not need the instance to be there still."""
    return InstanceId(runner_id.rpartition("-")[0])


def model_name_fault(name: str) -> str | None:
    """Why `name` is no model name (`name`, `org/name`, `org/name@revision`), or None when it is one.

    The same judgement serves the command line, the wire and the log; nothing that passes can leave a folder.
    """
    if not name:
        return "a model name is empty"
    if len(name) > 200:
        return f"a model name has {len(name)} characters, at most 200 are allowed"
    parts = re.split(r"[/@]", name)
    if name in {".", ".."} or name.endswith("/"):
        return f"{name!a} is not a model name (a folder is written ./folder or as a whole path)"
    if any(part.strip(".") == "" for part in parts) or ".." in name:
        return f"{name!a} is not a model name (a part of it is empty or has dots only)"
    if not _MODEL.match(name):
        return f"{name!a} is not a model name (expected name or org/name[@revision])"
    return None
