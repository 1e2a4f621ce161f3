"""Seconds of what a person waits for before and after the rounds: whole processes, and a whole `flwr run`.

    python benchmarks/startup.py [--against CHECKOUT]
    python benchmarks/startup.py --flwr-run

- The first times ``--help``, ``--list``, a wrong flag, a data path that is not there, ``import fedbn_flower``
  and the default job, ``run_sim.py`` without arguments, of this checkout and of another one.
- The second times ``flwr run`` of five rounds on ten simulated nodes, on one SuperLink: an app that does
  nothing (`empty_app`), the same app where both sides import PyTorch first, as no app of PyTorch can do
  without, and the default job for ten clients.

The sides run one after the other in every repetition, in turning order, after one run each that is not
counted. A ratio is taken within a repetition; printed are medians, with the smallest and largest.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

from simulation_peers.sides import QUIET, span

ROOT = Path(__file__).resolve().parents[1]
NODES = 10
ROUNDS = 5
MISTAKE = 2  # exit status
COMMANDS: Mapping[str, tuple[int, list[str]]] = {
    "run_sim.py --help": (0, ["run_sim.py", "--help"]),
    "run_sim.py --list": (0, ["run_sim.py", "--list"]),
    "a wrong flag": (MISTAKE, ["run_sim.py", "--no-such-flag", "1"]),
    "a data path that is not there": (MISTAKE, ["run_sim.py", "--dataset", "./nowhere"]),
    "from fedbn_flower import simulate": (0, ["-c", "from fedbn_flower import simulate"]),
    "run_sim.py, the default job": (0, ["run_sim.py"]),
}
Side = Callable[[Path], None]
"""Does its work into a new folder."""


def process(checkout: Path, name: str, cache: Path, folder: Path) -> None:
    """Run one of the `COMMANDS` of a checkout."""
    status, words = COMMANDS[name]
    if words == ["run_sim.py"]:
        words = [*words, "--run-dir", str(folder / "run"), "--cache-dir", str(cache)]
    environment = os.environ | QUIET | {"PYTHONPATH": str(checkout)}
    ended = subprocess.run(
        [sys.executable, *words], cwd=checkout, env=environment, capture_output=True, check=False
    )
    if ended.returncode != status:
        raise RuntimeError(f"{name}: {ended.stderr.decode()}")


def flwr_run(app: Path, home: Path, environment: Mapping[str, str], keys: str, file: Path) -> None:
    """Run an app on simulated nodes, to its end, which writes a file."""
    nodes = f"num-supernodes={NODES} client-resources-num-cpus=1 init-args-num-cpus={os.cpu_count()}"
    words = ["flwr", "run", str(app), "--stream", "-c", keys, "--federation-config", nodes]
    ended = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode or not file.exists():  # its status is 0 if the run failed
        raise RuntimeError(f"{app.name}: {ended.stdout[-3000:]}{ended.stderr[-3000:]}")


def measure(sides: Mapping[str, Side], repetitions: int, place: Path) -> dict[str, list[float]]:
    """Return the seconds of each side by repetition."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for repetition in range(-1, repetitions):
        for name in list(sides)[:: -1 if repetition % 2 else 1]:
            folder = Path(tempfile.mkdtemp(dir=place))
            started = time.perf_counter()
            sides[name](folder)
            took = time.perf_counter() - started
            print(f"{name}: {took:.2f}", file=sys.stderr, flush=True)
            if repetition >= 0:
                seconds[name].append(took)
    return seconds


def shown(values: list[float]) -> str:
    """Return the median of some numbers with the smallest and largest."""
    return f"{median(values):.2f} ({span(values)})"


def of_processes(place: Path, repetitions: int, against: Path | None) -> str:
    """Return the table of the processes, with the ratios to those of another checkout."""
    header = ["command", "s", *(["s there", "here / there"] if against else [])]
    rows = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    for name in COMMANDS:
        checkouts = {"here": ROOT, **({"there": against} if against else {})}
        sides = {side: _process(checkout, name, place / side) for side, checkout in checkouts.items()}
        seconds = measure(sides, repetitions, place)
        cells = [name, *map(shown, seconds.values())]
        if against:
            cells.append(shown([a / b for a, b in zip(seconds["here"], seconds["there"], strict=True)]))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _process(checkout: Path, name: str, cache: Path) -> Side:
    return lambda folder: process(checkout, name, cache, folder)


def of_flwr_run(place: Path, repetitions: int) -> str:
    """Return the table of ``flwr run``, and the ratios to apps that do nothing."""
    app, home = place / "fedbn-flower", place / "home"
    home.mkdir()
    left_out = shutil.ignore_patterns(".?*", "__pycache__", "runs", "tests", "benchmarks")
    shutil.copytree(ROOT, app, ignore=left_out)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | QUIET | {"FLWR_HOME": str(home), "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": port}
    environment.pop("PYTHONPATH", None)
    empty = ROOT / "benchmarks" / "empty_app"

    def nothing(folder: Path, imports: str = "") -> None:
        out = folder / "seconds.json"
        keys = f"rounds={ROUNDS} nodes={NODES} out='{out}' imports='{imports}'"
        flwr_run(empty, home, environment, keys, out)

    def ours(folder: Path) -> None:
        run = folder / "run"
        job = f"num-clients={NODES} partition='iid' run-dir='{run}' cache-dir='{place / 'cache'}'"
        flwr_run(app, home, environment, f"rounds={ROUNDS} {job}", run / "report.html")

    torch = partial(nothing, imports="torch")
    sides = {"an empty app": nothing, "one that imports PyTorch": torch, "the default job": ours}
    try:
        seconds = measure(sides, repetitions, place)
    finally:
        _end_superlink(home)
    rows = [f"| {name} | {shown(values)} |" for name, values in seconds.items()]
    *others, job = seconds
    ratios = [
        f"- {job} / {other}: {shown([b / a for a, b in zip(seconds[other], seconds[job], strict=True)])}"
        for other in others
    ]
    return "\n".join(["| app | s |", "|---|---|", *rows, "", *ratios])


def _end_superlink(home: Path) -> None:
    """End the SuperLink that `flwr run` left behind: the processes whose environment has this home."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"FLWR_HOME={home}".encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), 15)
        except OSError:  # it has ended, or is another user's
            continue


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--flwr-run", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        against = options.against and options.against.resolve()
        print(
            of_flwr_run(place, options.repetitions)
            if options.flwr_run
            else of_processes(place, options.repetitions, against)
        )


if __name__ == "__main__":
    main()
