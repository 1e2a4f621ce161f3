"""Seconds of whole commands, from start to end, and CPU seconds of all their processes.

    python benchmarks/commands.py
    python benchmarks/commands.py --workload sweep --repetitions 1

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
import resource
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


def cpu_seconds() -> float:
    """Return the CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(sides: Sides, repetitions: int, folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds and CPU seconds of each side by repetition, after one run that is not counted."""
    command(folder)
    seconds: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for repetition in range(repetitions):
        for side in list(sides)[:: -1 if repetition % 2 else 1]:
            started, used = time.perf_counter(), cpu_seconds()
            sides[side](folder)
            seconds[side].append((time.perf_counter() - started, cpu_seconds() - used))
    return seconds


def main() -> None:
    """Run the workloads and print their tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="default: all")
    options = parser.parse_args()
    for workload in options.workload or WORKLOADS:
        with tempfile.TemporaryDirectory() as folder:
            seconds = measure(WORKLOADS[workload], options.repetitions, Path(folder))
        print(f"\n**{workload}**\n\n| side | s | spread | CPU s | spread |\n| --- | --- | --- | --- | --- |")
        for side, values in seconds.items():
            columns = [f"{median(column):.2f} | {span(column)}" for column in zip(*values, strict=True)]
            print(f"| {side} | {' | '.join(columns)} |")
        print()
        for upper, lower in RATIOS[workload]:
            for number, what in enumerate(("time of the process", "CPU time")):
                pairs = zip(seconds[upper], seconds[lower], strict=True)
                ratios = [u[number] / w[number] for u, w in pairs]
                print(f"- {what}, {upper} / {lower}: {median(ratios):.2f} ({span(ratios)})")
        print(flush=True)


if __name__ == "__main__":
    main()
