"""What this machine has: memory, cores, addresses, disk, and what mlx can run on here.

Limits of control groups count, on every level above this process. What mlx can do is asked of the runner child, since
nothing else may import mlx, and remembered until another mlx is installed.
"""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from exo_cli import __version__
from exo_cli.engine.core.topology import NodeFacts

CHILD = (sys.executable, "-P", "-m", "exo_cli.engine.runner.child", "--probe")
PROBE_SECONDS = 20.0
_DISTRIBUTIONS = ("mlx", "mlx-metal", "mlx-cpu", "mlx-cuda", "mlx-cuda-12", "mlx-cuda-13", "mlx-lm", "exo-cli")
_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Backends:
    """What mlx can run on, the first by itself; `working_set_bytes` is Metal's limit, `fault` why there is nothing."""

    names: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    working_set_bytes: int | None = None
    fault: str | None = None


def node_facts(
    name: str, addresses: Sequence[str] = (), *, log_dir: str | None = None, cache: Path | None = None
) -> NodeFacts:
    """The facts of this node. `addresses` are those it listens at; those of the interfaces when there are none."""
    found = backends(cache)
    total, available = memory_bytes()
    if found.working_set_bytes:
        available = min(available, found.working_set_bytes)
    return NodeFacts(
        name=name,
        version=__version__,
        addresses=tuple(addresses) or interface_addresses(),
        memory_bytes=total,
        memory_available_bytes=available,
        backends=found.names,
        cores=cores(),
        platform=f"{sys.platform}-{platform.machine()}"[:64],
        engines=found.engines,
        log_dir=log_dir,
    )


def threads_for(world_size: int, cores: int, runners_on_machine: int) -> int:
    """Threads for the matrix products of one runner.

    A rank of a split gets one: such threads spin, and two ranks with two threads each on two cores were measured at a
    twentieth of the speed. One core is left to everybody else: on two busy cores two threads took 2 to 10 s to a first
    token that one thread had after 0.4 s, and on two quiet ones a second thread made decoding no faster.
    """
    return 1 if world_size > 1 else max(1, (cores - 1) // max(1, runners_on_machine))


def memory_bytes(root: Path = _ROOT) -> tuple[int, int]:
    """(total, available): of the machine, or of the control group that leaves the least."""
    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    for limit, used in _memory_limits(root):
        if limit < total:
            total = limit
        available = min(available, max(0, limit - used))
    return total, available


def cores(root: Path = _ROOT) -> int:
    """Cores that this process may use: its affinity, and whole cores of the quota of its control groups."""
    if sys.platform == "linux":
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    return max(1, min([allowed, *(int(quota) for quota in _core_quotas(root))]))


def interface_addresses() -> tuple[str, ...]:
    """Addresses that other machines may reach: IPv4, IPv6, link-local ones with their zone; loopback when alone."""
    up = {name for name, facts in psutil.net_if_stats().items() if facts.isup}
    found = [
        address.address
        for name, of_interface in psutil.net_if_addrs().items()
        if name in up
        for address in of_interface
        if address.family in (socket.AF_INET, socket.AF_INET6)
    ]
    far = [address for address in found if not _is_loopback(address)]
    return tuple(dict.fromkeys(sorted(far or found, key=_reach)))


def free_disk_bytes(folder: Path) -> int:
    """Room where `folder` is or would be made."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def backends(cache: Path | None = None) -> Backends:
    """What mlx can run on here: asked once a process, and kept in the folder `cache` if it works."""
    return _backends(cache, _installed())


@lru_cache(maxsize=8)
def _backends(cache: Path | None, installed: str) -> Backends:
    file = cache / "backends.json" if cache else None
    if file and (known := _remembered(file, installed)):
        return known
    found = _ask_child()
    if file and not found.fault:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            fresh = file.with_name(f"{file.name}.{os.getpid()}")
            fresh.write_text(json.dumps({"installed": installed, "found": asdict(found)}))
            fresh.replace(file)
    return found


def _installed() -> str:
    """What the answer depends on: packages, and whether there is a driver of NVIDIA's."""
    found = [platform.machine(), platform.python_version(), f"nvidia={Path('/dev/nvidiactl').exists()}"]
    for name in _DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            found.append(f"{name}={version(name)}")
    return " ".join(found)


def _remembered(file: Path, installed: str) -> Backends | None:
    try:
        match json.loads(file.read_bytes()):
            case {"installed": str(of), "found": {"names": list(names), "engines": list(engines)} as found}:
                limit = found.get("working_set_bytes")
                known = Backends(tuple(map(str, names)), tuple(map(str, engines)), limit)
                return known if of == installed and (limit is None or isinstance(limit, int)) else None
            case _:
                return None
    except (OSError, ValueError):
        return None


def _ask_child() -> Backends:
    try:
        done = subprocess.run(
            CHILD,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
            start_new_session=True,
        )
        told: object = json.loads(done.stdout) if done.returncode == 0 else None
    except subprocess.TimeoutExpired:
        return Backends(fault=f"mlx did not answer within {PROBE_SECONDS:.0f} s")
    except (OSError, ValueError) as error:
        return Backends(fault=f"mlx could not be asked ({error})")
    match told:
        case {"backends": list(names), "engines": list(engines), "memory": dict(memory)}:
            limit = memory.get("working_set_bytes")
            return Backends(tuple(map(str, names)), tuple(map(str, engines)), limit if isinstance(limit, int) else None)
        case _:
            said = (done.stdout or done.stderr).decode(errors="replace").strip().splitlines()
            return Backends(fault=said[-1][:500] if said else f"asking for mlx ended with code {done.returncode}")


def _memory_limits(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, used) of each control group with a limit. Cached files count as free: they go when room is needed."""
    for folder in _groups(root, "memory"):
        for limit_name, used_name, cached_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = _number(folder / limit_name), _number(folder / used_name)
            if limit is not None:
                yield limit, max(0, (used or 0) - _line_of(folder / "memory.stat", cached_name))


def _core_quotas(root: Path) -> Iterator[float]:
    for folder in _groups(root, "cpu"):
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = (folder / "cpu.max").read_text().split()
            yield int(quota) / int(period)
        quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if quota_us and period_us:
            yield quota_us / period_us


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's control groups, version 1 and 2, up to the highest that can be seen."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / controllers if controllers else root / "sys/fs/cgroup"
        # In a container the path is often that of the host, of which only the top is mounted here.
        below = (top / path.lstrip("/")) if ".." not in path else top
        while below != top:
            yield below
            below = below.parent
        yield top


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _line_of(file: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


_REACH: tuple[Callable[[str], bool], ...] = (
    lambda address: ":" not in address and not address.startswith("169.254."),
    lambda address: ":" in address and not address.startswith("fe80:"),
    lambda address: ":" not in address,
)


def _reach(address: str) -> int:
    """How far an address reaches: plain ones first, those of one cable last."""
    return next((rank for rank, fits in enumerate(_REACH) if fits(address)), len(_REACH))
