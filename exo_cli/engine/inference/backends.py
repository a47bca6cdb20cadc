"""What mlx can run on here, and how much memory there is. It knows no model.

mlx is imported inside the functions: only the runner child calls them.
"""

import ctypes
import platform
import sys
from pathlib import Path

from exo_cli.engine.inference import ENGINES, EngineError

_GLIBC_NEEDED = (2, 35)


def facts() -> dict[str, object]:
    """What `--probe` prints.

    Raises:
        EngineError: no backend works; one line says why and what to install.
    """
    names = backends()
    total, available = memory_bytes()
    memory: dict[str, int] = {"total_bytes": total, "available_bytes": available}
    if "mlx_metal" in names:
        memory["working_set_bytes"] = working_set_bytes()
    return {"backends": names, "engines": list(ENGINES), "memory": memory}


def backends() -> list[str]:
    """The backends that work here, the one that mlx uses by itself first."""
    try:
        import mlx.core as mx

        mx.eval(mx.zeros((1,)) + 1)
    except (ImportError, RuntimeError, OSError) as error:
        raise EngineError(_why_not(error), "no_backend") from error
    found = ["mlx_cpu"]
    if sys.platform == "darwin" and mx.metal.is_available():
        found.insert(0, "mlx_metal")
    elif mx.cuda.is_available():
        found.insert(0, "mlx_cuda")
    return found


def on_gpu() -> bool:
    """Whether arrays live on a GPU by default."""
    import mlx.core as mx

    return bool(mx.default_device() == mx.Device(mx.gpu))


def working_set_bytes() -> int:
    """What Metal recommends at most; 0 where there is no such figure."""
    import mlx.core as mx

    return int(mx.device_info().get("max_recommended_working_set_size", 0))


def keep_resident() -> None:
    """Let Metal keep weights where they are; without it macOS may page out what was not used for a moment."""
    import mlx.core as mx

    if sys.platform == "darwin" and mx.metal.is_available() and working_set_bytes():
        mx.set_wired_limit(working_set_bytes())


def openblas_preloaded() -> bool:
    """Whether this process has an OpenBLAS in place of the reference BLAS that comes with mlx."""
    return _openblas("openblas_set_num_threads") is not None


def set_blas_threads(threads: int) -> None:
    """Give the preloaded OpenBLAS, if there is one, so many threads; it read the environment before we could."""
    if function := _openblas("openblas_set_num_threads"):
        function(ctypes.c_int(threads))


def memory_bytes() -> tuple[int, int]:
    """(total, available) of this machine, or of the control group that this process is in where that is less."""
    total, available = _machine_bytes()
    limit, used = _cgroup_bytes("memory.max"), _cgroup_bytes("memory.current")
    if limit is None or limit >= total:
        return total, available
    return limit, min(available, max(0, limit - (used or 0)))


def _machine_bytes() -> tuple[int, int]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        import psutil  # Only where there is no /proc: it takes a while to import.

        memory = psutil.virtual_memory()
        return int(memory.total), int(memory.available)
    figures = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
    return figures["MemTotal"], figures["MemAvailable"]


def _cgroup_bytes(name: str) -> int | None:
    try:
        text = Path("/sys/fs/cgroup", name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _openblas(symbol: str) -> "ctypes._NamedFuncPointer | None":
    if sys.platform != "linux":
        return None
    try:
        return ctypes.CDLL(None)[symbol]
    except AttributeError:
        return None


def _why_not(error: Exception) -> str:
    """One line: what is missing, and what to do about it."""
    machine, release = platform.machine(), platform.mac_ver()[0]
    if sys.platform == "darwin" and (machine != "arm64" or int(release.partition(".")[0] or 0) < 14):
        return f"mlx needs a Mac with Apple silicon and macOS 14 or newer (this is {machine}, macOS {release})"
    library, version = platform.libc_ver()
    if sys.platform == "linux":
        if library != "glibc" or tuple(map(int, version.split(".")[:2])) < _GLIBC_NEEDED:
            return f"mlx needs glibc 2.35 or newer (this system has {library or 'another libc'} {version})".rstrip()
        return f"mlx has no backend here: install exo-cli[cpu] or exo-cli[cuda] ({type(error).__name__}: {error})"
    return f"mlx cannot be used here ({type(error).__name__}: {error})"
