"""Addresses: what `host:port` means, which hosts are this machine, which ports are free and who holds the others.

A node takes a block of three ports; its address names the first. Nothing here opens a socket that stays open.
"""

import contextlib
import ipaddress
import re
import socket

from exo_cli.engine.core.errors import ConflictError, UsageError

CONTROL, PUBLISHED, DATA = range(3)  # which port of the block is which
BLOCK = 3
LAST_PORT = 65536 - BLOCK
FIRST_PORTS = (7101, 7104, 7107, *range(7130, 7190, BLOCK))  # around 7110 to 7129, where runners meet

_EXAMPLES = {"--listen": "127.0.0.1:7101", "--peer": "HOST:7101"}
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `name:port`, `127.0.0.1:port` or `[::1]:port`.

    Raises:
        ValueError: it is none of these. Addresses come from other machines, so nothing odd passes.
    """
    host, colon, digits = address.rpartition(":")
    if not (colon and digits.isascii() and digits.isdigit()):
        raise ValueError(f"not an address (host:port): {address!r}")
    if len(digits) > 5 or not 0 < int(digits) <= LAST_PORT:
        raise ValueError(f"not a port from 1 to {LAST_PORT} (a node uses three in a row): {address!r}")
    if host.startswith("[") and host.endswith("]") and "%" not in host:
        with contextlib.suppress(ValueError):
            return str(ipaddress.IPv6Address(host[1:-1])), int(digits)
    if not _HOST.fullmatch(host):
        raise ValueError(f"not a host name or IP address: {host!r}")
    return host, int(digits)


def checked_address(address: str, option: str = "--peer") -> tuple[str, int]:
    """Host and port of an address that a person gave to an option of `exo node start`. Raises UsageError."""
    try:
        return split_address(address)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", f"exo node start {option} {_EXAMPLES[option]}") from None


def join_address(host: str, port: int) -> str:
    """The way back from `split_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether an IP address can only be reached from this machine."""
    return ipaddress.ip_address(host).is_loopback


def first_free_block(host: str = "127.0.0.1", starts: tuple[int, ...] = FIRST_PORTS) -> int:
    """The first port of the first block of three that are all free (just now: bind it soon).

    Raises:
        ConflictError: all are taken.
    """
    for start in starts:
        if all(_is_free(host, start + offset) for offset in range(BLOCK)):
            return start
    raise ConflictError(
        f"no three ports in a row are free on {host} ({starts[0]} to {starts[-1] + BLOCK - 1})",
        f"exo node start --listen {join_address(host, starts[-1] + 100)}",
        code="port_in_use",
    )


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # What a stopped node leaves behind for a minute (TIME_WAIT) does not keep the next one away.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def port_taken(host: str, port: int) -> ConflictError:
    """The error for a port that is in use, with its holder where the system tells."""
    holder = port_holder(port)
    return ConflictError(
        f"port {port} is in use" + (f" by {holder}" if holder else ""),
        f"exo node start --listen {join_address(host, port + 100)}",
        code="port_in_use",
        details={"port": port, "holder": holder},
    )


def port_holder(port: int) -> str | None:
    """Who listens on a TCP port of this machine, as `pid 123 (name)`; None when the system does not tell."""
    import psutil  # 20 ms that only a failed start pays

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            address = connection.laddr
            if connection.status == psutil.CONN_LISTEN and address and address.port == port and connection.pid:
                return f"pid {connection.pid} ({psutil.Process(connection.pid).name()})"
    return None
