"""Seconds of whole commands, from start to end.

    python benchmarks/commands.py

- default: `run_sim.py` without arguments (``--backend auto``), with ``--backend inline`` and with
  ``--backend ray``.
- sweep: 12 small runs as one sweep, and as 12 processes of ``--backend inline``, as many at a time as there
  are cores.

The sides of a workload run one after the other in every repetition, in turning order. A ratio is taken within
a repetition; printed are medians, with the smallest and largest.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from simulation_peers.sides import QUIET, span

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("--rounds", "10", "--num-clients", "4", "--partition", "dirichlet:0.5")
SEEDS = range(12)
FOLDERS = itertools.count()


def command(folder: Path, *arguments: str) -> None:
    """Run `run_sim.py` into a new folder below ``folder``; all runs share its cache."""
    where = ("--run-dir", str(folder / str(next(FOLDERS))), "--cache-dir", str(folder / "cache"))
    words = [sys.executable, "run_sim.py", *arguments, *where]
    subprocess.run(words, cwd=ROOT, env=os.environ | QUIET, check=True, capture_output=True)


def as_processes(folder: Path) -> None:
    """Run every seed as a command of its own."""
    with ThreadPoolExecutor(os.cpu_count()) as processes:
        words = [(*SMALL, "--backend", "inline", "--seed", str(seed)) for seed in SEEDS]
        list(processes.map(lambda one: command(folder, *one), words))


Sides = Mapping[str, Callable[[Path], None]]

WORKLOADS: Mapping[str, Sides] = {
    "default": {
        "auto": command,
        "inline": lambda folder: command(folder, "--backend", "inline"),
        "ray": lambda folder: command(folder, "--backend", "ray"),
    },
    "sweep": {
        "12 processes": as_processes,
        "a sweep of 12": lambda folder: command(folder, *SMALL, "--seed", ",".join(map(str, SEEDS))),
    },
}
RATIOS = {"default": [("auto", "inline"), ("ray", "auto")], "sweep": [("12 processes", "a sweep of 12")]}


def measure(sides: Sides, repetitions: int, folder: Path) -> dict[str, list[float]]:
    """Return the seconds of each side by repetition, after one run that is not counted."""
    command(folder)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for repetition in range(repetitions):
        for side in list(sides)[:: -1 if repetition % 2 else 1]:
            started = time.perf_counter()
            sides[side](folder)
            seconds[side].append(time.perf_counter() - started)
    return seconds


def main() -> None:
    """Run the workloads and print their tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    for workload, sides in WORKLOADS.items():
        with tempfile.TemporaryDirectory() as folder:
            seconds = measure(sides, options.repetitions, Path(folder))
        print(f"\n**{workload}**\n\n| side | s a process | spread |\n| --- | --- | --- |")
        for side, values in seconds.items():
            print(f"| {side} | {median(values):.2f} | {span(values)} |")
        print()
        for upper, lower in RATIOS[workload]:
            ratios = [u / w for u, w in zip(seconds[upper], seconds[lower], strict=True)]
            print(f"- time of the process, {upper} / {lower}: {median(ratios):.2f} ({span(ratios)})")
        print(flush=True)


if __name__ == "__main__":
    main()
