"""Run the measurements that are named (all of them when none is), print a table and keep it under bench/results/."""

import importlib
import json
import platform
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """One table a module that has a `run`."""
    names = sys.argv[1:] or sorted(each.stem for each in HERE.glob("*.py") if not each.stem.startswith("_"))
    machine = f"{platform.node()}: {platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    print(machine)
    kept: dict[str, object] = {"machine": machine}
    for name in names:
        run = getattr(importlib.import_module(f"bench.{name}"), "run", None)
        if run is None:
            continue
        rows = run()
        for row in rows:
            bar = "" if row.bar is None else f"{'>=' if row.at_least else '<='} {row.bar:g}"
            print(f"{name:10} {row.what:45} {row.value:12,.2f} {row.unit:6} {bar:8} {row.verdict}", flush=True)
        kept[name] = [{**row._asdict(), "verdict": row.verdict} for row in rows]
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / f"{platform.node()}.json").write_text(json.dumps(kept, indent=1) + "\n")


main()
