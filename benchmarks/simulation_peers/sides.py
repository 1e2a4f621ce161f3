"""Running the sides in turn, and the tables of what they measured."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from .job import Job
from .recorder import Measurement

BENCHMARKS = Path(__file__).resolve().parents[1]
WARM_UP = 2  # rounds
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Side:
    """One row of a table: a module of this package and its job."""

    name: str
    module: str
    job: Job
    python: str = sys.executable

    def run(self) -> Measurement:
        started = time.perf_counter()
        printed = run_module(self.module, [self.job.to_json()], self.python)
        return Measurement(**{**printed, "process_seconds": time.perf_counter() - started})

    def milliseconds(self, measured: Measurement) -> float:
        """Of a round, in the steady state."""
        return 1000 * median(measured.seconds[WARM_UP:])


@dataclass(frozen=True)
class Figure:
    """What a table is about: its column's title, the value, and what a ratio of two is called."""

    title: str
    value: Callable[[Side, Measurement], float]
    name: str = "time"


UPDATE = Figure("ms a client update", lambda side, m: side.milliseconds(m) / side.job.per_round)
ROUND = Figure("ms a round", Side.milliseconds)
RUN = Figure("s a run", lambda _, measured: sum(measured.seconds[WARM_UP:]))
PROCESS = Figure("s a process", lambda _, measured: measured.process_seconds, "time of the process")
DRIVER_PEAK = Figure("driver peak, MB", lambda _, measured: measured.driver_peak / 1e6, "driver peak")
RECEIVED = Figure("MB to the driver a round", lambda _, measured: measured.received / 1e6, "bytes")

Results = dict[str, list[Measurement]]
Ratio = tuple[str, str]


def run_module(module: str, arguments: list[str], python: str = sys.executable) -> dict:
    """What a module of this package, in a process of its own, printed last.

    Raises
    ------
    SystemExit
        When it failed; with what it wrote to standard error.
    """
    command = [python, "-m", f"{__package__}.{module}", *arguments]
    paths = [str(BENCHMARKS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | QUIET | {"PYTHONPATH": os.pathsep.join(paths)}
    ended = subprocess.run(
        command, cwd=BENCHMARKS, env=environment, check=False, capture_output=True, text=True
    )
    if ended.returncode:
        raise SystemExit(f"{module} failed:\n{ended.stderr}")
    printed: dict = json.loads(ended.stdout.splitlines()[-1])
    return printed


def run_all(sides: list[Side], repetitions: int) -> Results:
    """Every side once in each repetition, forwards and backwards in turn."""
    results: Results = {side.name: [] for side in sides}
    for repetition in range(repetitions):
        for side in sides[:: -1 if repetition % 2 else 1]:
            print(f"repetition {repetition + 1} of {repetitions}: {side.name}", end="", file=sys.stderr)
            results[side.name].append(measured := side.run())
            print(f": {side.milliseconds(measured):.2f} ms a round", file=sys.stderr, flush=True)
    return results


def span(values: Iterable[float], digits: int = 2) -> str:
    """Smallest and largest."""
    values = list(values)
    return f"{min(values):.{digits}f}-{max(values):.{digits}f}"


def print_table(title: str, sides: list[Side], results: Results, figure: Figure = UPDATE) -> None:
    """A row a side."""
    print(f"\n## {title}\n")
    more = ["card peak, MB", "card works, %"] if any(side.job.device == "cuda" for side in sides) else []
    header = ["side", "processes that train", figure.title, "spread", "driver peak, MB", "workers peak, MB"]
    print(f"| {' | '.join([*header, *more, 'loss at the end'])} |")
    print("| --- " * len([*header, *more, ""]) + "|")
    for side in sides:
        runs = results[side.name]
        values = [figure.value(side, run) for run in runs]
        driver, workers = (max(getattr(run, f"{who}_peak") for run in runs) for who in ("driver", "workers"))
        figures = [f"{median(values):.2f}", span(values), f"{driver / 1e6:.0f}", f"{workers / 1e6:.0f}"]
        if more:
            figures.append(f"{max(run.card_peak for run in runs) / 1e6:.0f}")
            figures.append(f"{100 * median(run.card_share for run in runs):.0f}")
        loss = median(run.loss for run in runs)
        print(f"| {' | '.join([side.name, str(side.job.workers), *figures, f'{loss:.4f}'])} |")
    print(flush=True)


def print_ratios(wanted: list[Ratio], sides: list[Side], results: Results, figure: Figure = UPDATE) -> None:
    """The ratios of those that ran: medians over the repetitions, each ratio taken within one."""
    by_name = {side.name: side for side in sides}
    for upper, lower in wanted:
        if upper in by_name and lower in by_name:
            pairs = zip(results[upper], results[lower], strict=True)
            ratios = [figure.value(by_name[upper], u) / figure.value(by_name[lower], w) for u, w in pairs]
            print(f"- {figure.name}, {upper} / {lower}: {median(ratios):.3f} ({span(ratios, 3)})")
    print(flush=True)
