"""What the child program does when it is not to be a runner: probe this machine for the engines, convert a file.

Both need mlx, which only this process may import. Each is over in a second and prints one line.
"""

import json
import sys
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
