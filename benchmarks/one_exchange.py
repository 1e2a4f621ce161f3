"""Seconds of a round between real SuperNodes, in which a site is asked once or twice.

    python benchmarks/one_exchange.py --found runs/exchanges.json

A SuperLink and SuperNodes on this machine (fedbn-sim consortium try), and runs of ``flwr run`` in turning
order: with ``evaluate-with-training`` ``off``, which asks sites to train and then to evaluate, and ``auto``,
which asks them once; and ``off`` in a second federation of which no site is warm. A row of ``metrics.csv``
says how long the server waited for each. A round between is one after the first, in which workers start, and
before the last, which has its evaluation: the median of them counts. A ratio is taken within a repetition;
printed are medians, with the smallest and largest. With ``--found`` each run is kept in a file as it comes,
and the same command goes on after those that are there.
"""

import argparse
import csv
import json
import signal
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.simulation_peers.sides import span  # noqa: E402
from fedbn_flower.consortium.local import LocalFederation  # noqa: E402

COLD, OFF, AUTO = "`off`, `warm=false`", "`off`", "`auto`"
WAYS = {COLD: "off", OFF: "off", AUTO: "auto"}
"""The values of the key, by how the table names a way."""
WAITED = ("train-seconds", "evaluate-seconds")


class Measured(NamedTuple):
    """What a run took, a round."""

    exchanges: float
    """How many times sites were asked."""
    waited: float
    """Seconds until they had answered."""
    seconds: float
    """Seconds in all."""
    between: float
    """Seconds of a round between the first and the last one."""


def measured(folder: Path) -> Measured:
    """Read what a run took from its folder."""
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    waits = [float(row[name]) for row in rows for name in WAITED]
    summary = json.loads((folder / "summary.json").read_text())
    rounds = summary["rounds"]
    return Measured(
        sum(wait > 0 for wait in waits) / rounds,
        sum(waits) / rounds,
        summary["seconds-per-round"],
        median(float(row["seconds"]) for row in rows[1:-1]),
    )


def shown(values: Iterable[float]) -> str:
    """Return the median of some numbers with the smallest and largest."""
    found = list(values)
    return f"{median(found):.2f} ({span(found)})"


def table(found: dict[str, list[Measured]]) -> str:
    """Return the table of all runs by way, and the ratios."""
    lines = [
        "| evaluate-with-training | exchanges a round | s waited a round | s a round | s a round between |",
        "|---|---|---|---|---|",
    ]
    for way, runs in found.items():
        columns = (shown(column) for column in zip(*runs, strict=True))
        lines.append(f"| {way} | {' | '.join(columns)} |")
    lines.append("")
    for name, place in (("exchanges", 0), ("seconds", 2), ("seconds of a round between", 3)):
        for other in (OFF, COLD):
            ratios = [b[place] / a[place] for a, b in zip(found[other], found[AUTO], strict=True)]
            lines.append(f"- {name}, {AUTO} / {other}: {shown(ratios)}")
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
    parser.add_argument("--found", type=Path, metavar="FILE", help="keeps what was measured")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill ends what was started, too
    clients = {"dataset": "digits", "num-clients": options.supernodes, "partition": "iid", "client": "fedbn"}
    clients["eval-data"] = "global"
    found: dict[str, list[Measured]] = {way: [] for way in WAYS}
    if options.found and options.found.exists():
        kept = json.loads(options.found.read_text())
        found = {way: [Measured(*values) for values in kept[way]] for way in WAYS}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        warm, cold = (
            stack.enter_context(LocalFederation(place / kind, options.supernodes, node_config=f"warm={kind}"))
            for kind in ("true", "false")
        )
        for repetition in range(options.repetitions):
            for way in list(WAYS)[:: -1 if repetition % 2 else 1]:
                if len(found[way]) > repetition:
                    continue
                keys = {**clients, "rounds": options.rounds, "evaluate-with-training": WAYS[way]}
                folder = place / f"{list(WAYS).index(way)}-{repetition}"
                found[way].append(run(cold if way == COLD else warm, folder, keys))
                print(way, found[way][-1], file=sys.stderr, flush=True)
                if options.found:
                    options.found.write_text(json.dumps(found))
    print(f"**{options.supernodes} SuperNodes, {options.rounds} rounds**\n\n{table(found)}", flush=True)


if __name__ == "__main__":
    main()
