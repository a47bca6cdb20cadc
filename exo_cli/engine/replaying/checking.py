"""Checking beside: a process of its own that checks a log and prints what it found, while another indexes it."""

import json
import sys

from exo_cli.engine.replaying import replay


def main(path: str) -> None:
    """Print findings and notes as JSON. Raises what `replay` raises."""
    item = replay(path, check=True)["item"]
    assert isinstance(item, dict)
    json.dump({name: item[name] for name in ("findings", "notes")}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
