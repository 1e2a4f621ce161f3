"""Seconds of a round between real SuperNodes, in which a site is asked once or twice.

    python benchmarks/one_exchange.py

A SuperLink and SuperNodes on this machine (deploy/local_federation.py), and runs of ``flwr run`` in turning
order: with ``evaluate-with-training`` ``off``, which asks sites to train and then to evaluate, and ``auto``,
which asks them once. A row of ``metrics.csv`` says how long the server waited for each. A ratio is taken
within a repetition; printed are medians, with the smallest and largest.
"""

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.simulation_peers.sides import span  # noqa: E402
from deploy.local_federation import LocalFederation  # noqa: E402

WAYS = ("off", "auto")
WAITED = ("train-seconds", "evaluate-seconds")


class Measured(NamedTuple):
    """What a run took, a round."""

    exchanges: float
    """How many times sites were asked."""
    waited: float
    """Seconds until they had answered."""
    seconds: float
    """Seconds in all."""


def measured(folder: Path) -> Measured:
    """Read what a run took from its folder."""
    with (folder / "metrics.csv").open() as file:
        waits = [float(row[name]) for row in csv.DictReader(file) for name in WAITED]
    summary = json.loads((folder / "summary.json").read_text())
    rounds = summary["rounds"]
    return Measured(
        sum(wait > 0 for wait in waits) / rounds, sum(waits) / rounds, summary["seconds-per-round"]
    )


def shown(values: Iterable[float]) -> str:
    """Return the median of some numbers with the smallest and largest."""
    found = list(values)
    return f"{median(found):.2f} ({span(found)})"


def table(found: dict[str, list[Measured]]) -> str:
    """Return the table of all runs by way, and the ratios."""
    lines = [
        "| evaluate-with-training | exchanges a round | s waited a round | s a round |",
        "|---|---|---|---|",
    ]
    for way, runs in found.items():
        columns = (shown(column) for column in zip(*runs, strict=True))
        lines.append(f"| `{way}` | {' | '.join(columns)} |")
    lines.append("")
    for name, place in (("exchanges", 0), ("seconds", 2)):
        ratios = [b[place] / a[place] for a, b in zip(found["off"], found["auto"], strict=True)]
        lines.append(f"- {name}, `auto` / `off`: {shown(ratios)}")
    return "\n".join(lines)


def run(federation: LocalFederation, folder: Path, keys: dict[str, object]) -> Measured:
    """Start a run and wait for it; return what it took."""
    words = " ".join(f"{key}={value!r}" for key, value in (keys | {"run-dir": str(folder)}).items())
    result = federation.run(["flwr", "run", ROOT, "--stream", "--run-config", words], quiet=True)
    if not (folder / "summary.json").exists():
        raise RuntimeError(f"the run failed: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    return measured(folder)


def main() -> None:
    """Bring a federation up, run both ways in turn, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--supernodes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repetitions", type=int, default=2)
    options = parser.parse_args()
    clients = {"dataset": "digits", "num-clients": options.supernodes, "partition": "iid", "client": "fedbn"}
    found: dict[str, list[Measured]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with LocalFederation(place / "federation", options.supernodes) as federation:
            for repetition in range(options.repetitions):
                for way in WAYS[:: -1 if repetition % 2 else 1]:
                    keys = {**clients, "rounds": options.rounds, "evaluate-with-training": way}
                    found[way].append(run(federation, place / f"{way}-{repetition}", keys))
    print(f"**{options.supernodes} SuperNodes, {options.rounds} rounds**\n\n{table(found)}", flush=True)


if __name__ == "__main__":
    main()
