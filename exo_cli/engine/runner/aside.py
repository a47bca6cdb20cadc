"""What the child program does beside being a runner: probe the machine for engines, convert a file, tell of itself.

The first two need mlx, which only this process may import. Each is over in a second and prints one line.
"""

import json
import os
import sys
import traceback
from pathlib import Path

from exo_cli.engine.inference import EngineError


def probe() -> int:
    """Print one JSON line about what could run here, or one line on why nothing can (then the code is 1)."""
    from exo_cli.engine.inference.backends import facts

    try:
        found = facts()
    except EngineError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def convert(source: Path, target: Path) -> int:
    """Make the folder `target` of a GGUF file; what went wrong is one line on standard error."""
    from exo_cli.engine.inference.gguf import converted

    try:
        converted(source, target)
    except (EngineError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def print_stack(error: BaseException) -> None:
    """Say on standard error where an error happened, without its message: that may quote what somebody asked."""
    each: BaseException | None = error
    while each is not None:
        sys.stderr.write(f"{type(each).__name__}, whose message is not for this file, at:\n")
        traceback.print_tb(each.__traceback__)
        each = each.__cause__


def resident_bytes() -> int:
    """What this process holds in memory."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import psutil  # Only where there is no /proc: 15 ms at each start are saved elsewhere.

        return int(psutil.Process().memory_info().rss)
