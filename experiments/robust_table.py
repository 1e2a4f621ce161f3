"""Print the tables of docs/results/robust.md, of the runs of experiments/robust.toml.

    python experiments/robust_table.py runs/robust

A row is a defence, a column an attack. A cell is the test accuracy of the last model, and for the backdoor
also the share of patched examples that it takes for the target, both in per cent.
"""

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any


def defence(config: dict[str, Any]) -> str:
    """Return what protects a run."""
    clip = float(config.get("clip-update-norm", 0))
    return f"weighted, clipped to {clip:g}" if clip else str(config["mean"])


def cell(summary: dict[str, Any]) -> str:
    """Return what came of a run."""
    accuracy = f"{100 * summary['global']['accuracy']:.1f}" if summary.get("global") else "diverged"
    success = (summary.get("attack") or {}).get("success")
    return accuracy if success is None else f"{accuracy} ({100 * success:.0f})"


def main() -> None:
    """Read the runs' folders and print a table for each partition."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+")
    asked = tomllib.loads(Path(__file__).with_name("robust.toml").read_text())["attack"]
    cells: dict[str, dict[str, dict[str, str]]] = {}
    for folder in parser.parse_args().folder:
        for path in sorted(folder.glob("*/summary.json")):
            config = json.loads((path.parent / "config.json").read_text())
            rows = cells.setdefault(config["partition"], {}).setdefault(defence(config), {})
            rows[config["attack"]] = cell(json.loads(path.read_text()))
    for partition, rows in cells.items():
        attacks = [attack for attack in asked if any(attack in row for row in rows.values())]
        print(f"\n`{partition}`\n\n| defence | {' | '.join(f'`{attack}`' for attack in attacks)} |")
        print("|---" * (len(attacks) + 1) + "|")
        for name, row in rows.items():
            print(f"| {name} | {' | '.join(row.get(attack, '') for attack in attacks)} |")


if __name__ == "__main__":
    main()
