"""Every objective under FedAvg, and every client under SGD, on one non-IID split of CIFAR-10.

20 clients, Dirichlet 0.3, the simple CNN, SGD 0.01 with momentum 0.9, batch 64. Every client is tested on its
own share of the test set. Prints one table; runs that are already in the folder are not run again.

    python benchmarks/objectives_and_clients.py --dataset path/to/cifar10 --run-dir runs/objectives
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

PAIRS = ("feddyn", "scaffold", "fedproto", "fedsat")
OBJECTIVES = (
    "sgd",
    "fedprox",
    "feddyn",
    "scaffold",
    "moon",
    "fedrs",
    "fedsam",
    "fedntd",
    "fedproto",
    "fedsat",
)
CLIENTS = ("fedper", "fedrep", "ditto", "alone")
COMMON = (
    "--partition dirichlet:0.3 --num-clients 20 --model simple-cnn --batch-size 64 --client-lr 0.01 "
    "--client-momentum 0.9 --eval-data local --checkpoint-every 0"
)
WORST = 0.1
RUN_SIM = Path(__file__).resolve().parents[1] / "run_sim.py"


def methods() -> dict[str, str]:
    """The flags of every row, by its title."""
    rows = {}
    for name in OBJECTIVES:
        strategy = name if name in PAIRS else "fedavg"
        momentum = " --client-momentum 0" if name == "scaffold" else ""
        rows[name] = f"--client fedavg --strategy {strategy} --objective {name}{momentum}"
    rows["fedsat, calc"] = f"{rows['fedsat']} --loss calc"
    for name in CLIENTS:
        pair = "--strategy fedproto --objective fedproto" if name == "alone" else "--strategy fedavg"
        rows[f"client {name}"] = f"--client {name} {pair}"
    rows["client fedavg, fine-tuned"] = "--client fedavg --strategy fedavg --fine-tune 50"
    return rows


def worst_tenth(summary: dict[str, Any]) -> float:
    """The mean accuracy of the tenth of the clients that have the lowest."""
    ordered = sorted(client["accuracy"] for client in summary["clients"].values())
    return mean(ordered[: max(1, round(WORST * len(ordered)))])


def cell(values: list[float], scale: float = 100) -> str:
    """Mean and standard deviation over the seeds."""
    spread = f" +- {scale * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{scale * mean(values):.1f}{spread}"


def flags_of(common: str, own: str) -> list[str]:
    """The common flags, but for those that a row has of its own."""
    words = [*common.split(), *own.split()]
    return [word for pair in dict(zip(words[::2], words[1::2], strict=True)).items() for word in pair]


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--rounds", default="10")
    parser.add_argument("--local-epochs", default="5")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    for seed in range(options.seeds):
        for title, own in methods().items():
            folder = options.run_dir / f"{title.replace(', ', '-').replace(' ', '-')}-seed{seed}"
            if not (folder / "summary.json").exists():
                where = ["--dataset", options.dataset, "--seed", str(seed), "--run-dir", str(folder)]
                length = ["--rounds", options.rounds, "--local-epochs", options.local_epochs]
                command = [sys.executable, str(RUN_SIM), *flags_of(COMMON, own), *length, *where]
                subprocess.run(command, check=True, stdout=sys.stderr)
    print("| | accuracy, mean of all examples | worst tenth of the clients | s a round |")
    print("| --- | --- | --- | --- |")
    for title in methods():
        name = title.replace(", ", "-").replace(" ", "-")
        found = [
            json.loads((options.run_dir / f"{name}-seed{seed}" / "summary.json").read_text())
            for seed in range(options.seeds)
        ]
        accuracies = cell([one["mean"]["accuracy"] for one in found])
        seconds = cell([one["seconds-per-round"] for one in found], 1)
        print(f"| `{title}` | {accuracies} | {cell([worst_tenth(one) for one in found])} | {seconds} |")


if __name__ == "__main__":
    main()
