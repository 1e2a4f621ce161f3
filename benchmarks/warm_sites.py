"""Seconds of one exchange with real SuperNodes: a message to each of two, with TLS, until all have answered.

    python benchmarks/warm_sites.py

- empty: a Flower app whose client sends back at once what it gets, 78 kB (`empty_app`).
- warm: the digits with their model of the same size, as SuperNodes train it.
- cold: the same with ``warm=false`` in the node config.
- looks: as warm, where the site's SuperExec looks for messages every 0.1 s instead of every second
  (``FLWR_SUPEREXEC_TASK_POLL_INTERVAL``, a variable of Flower's).

For each of the last three that is asked for, a federation stands on this machine; the empty app runs on that
of "warm". The sides of a repetition run one after the other, in turning order. The first exchange of a run is
told apart.
"""

import argparse
import csv
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from simulation_peers.sides import span

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fedbn_flower.consortium.local import LocalFederation  # noqa: E402

NODES = 2
Side = Callable[[Path, int], list[float]]
Seconds = dict[str, list[list[float]]]
"""Of every exchange, by side and repetition."""


def looking_often(federation: LocalFederation) -> LocalFederation:
    """Have the SuperExecs of a federation, which has not begun, look for messages every 0.1 s."""
    federation.environment["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = "0.1"
    return federation


def flwr_run(federation: LocalFederation, app: Path, config: str) -> None:
    """Run an app in a federation, to its end."""
    command = ["flwr", "run", app, "local", "--stream", "--run-config", config]
    before = federation.runs()
    ended = federation.run(command, quiet=True)
    if ended.returncode or not federation.all_complete(but=before):
        raise RuntimeError(f"{ended.stdout}{ended.stderr}")


def empty(federation: LocalFederation, folder: Path, rounds: int) -> list[float]:
    """Return the seconds of the empty app's exchanges."""
    out = folder / "seconds.json"
    app = ROOT / "benchmarks" / "empty_app"
    flwr_run(federation, app, f"rounds={rounds} nodes={NODES} out='{out}'")
    return list(map(float, json.loads(out.read_text())))


def ours(federation: LocalFederation, app: Path, folder: Path, rounds: int) -> list[float]:
    """Return the seconds of the training of every round."""
    job = f"dataset='digits' num-clients={NODES} fraction-evaluate=0.0 cache-dir='{app.parent / 'cache'}'"
    flwr_run(federation, app, f"{job} rounds={rounds} run-dir='{folder / 'run'}'")
    with (folder / "run" / "metrics.csv").open() as file:
        return [float(row["train-seconds"]) for row in csv.DictReader(file)]


def measure(
    sides: dict[str, Side], repetitions: int, rounds: int, folder: Path
) -> dict[str, list[list[float]]]:
    """Return the seconds of each side by repetition and exchange."""
    seconds: Seconds = {name: [] for name in sides}
    for repetition in range(repetitions):
        for name in list(sides)[:: -1 if repetition % 2 else 1]:
            place = folder / f"{name}-{repetition}"
            place.mkdir()
            seconds[name].append(sides[name](place, rounds))
            print(name, " ".join(f"{value:.1f}" for value in seconds[name][-1]), file=sys.stderr, flush=True)
    return seconds


def main() -> None:
    """Run the sides and print their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--sides", default="empty,warm,cold,looks", help="others are compared with the first")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill ends what was started, too
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app = folder / "fedbn-flower"
        left_out = shutil.ignore_patterns(".?*", "__pycache__", "runs", "tests", "benchmarks")
        shutil.copytree(ROOT, app, ignore=left_out)
        federations = {
            "warm": LocalFederation(folder / "warm", NODES),
            "cold": LocalFederation(folder / "cold", NODES, node_config="warm=false"),
            "looks": looking_often(LocalFederation(folder / "looks", NODES)),
        }
        sides: dict[str, Side] = {
            name: partial(ours, federation, app) for name, federation in federations.items()
        }
        sides["empty"] = partial(empty, federations["warm"])
        sides = {name: sides[name] for name in options.sides.split(",")}
        with ExitStack() as stack:
            for needed in {"warm" if side == "empty" else side for side in sides}:
                stack.enter_context(federations[needed])
            seconds = measure(sides, options.repetitions, options.rounds, folder)
    print("| side | s an exchange | spread | the first |\n| --- | --- | --- | --- |")
    later = {name: [value for run in runs for value in run[1:]] for name, runs in seconds.items()}
    for name, runs in seconds.items():
        began = median(run[0] for run in runs)
        print(f"| {name} | {median(later[name]):.1f} | {span(later[name], 1)} | {began:.1f} |")
    print()
    first, *others = seconds
    for name in others:
        pairs = zip(seconds[name], seconds[first], strict=True)
        ratios = [median(own[1:]) / median(other[1:]) for own, other in pairs]
        print(f"- {name} / {first}: {median(ratios):.2f} ({span(ratios)})")


if __name__ == "__main__":
    main()
