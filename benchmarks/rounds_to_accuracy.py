"""Rounds to a test accuracy on MNIST: FedAvg, FedProx, SCAFFOLD and FedDyn on two-shard clients.

McMahan et al.'s setting: 100 clients of two shards, 10 a round, 2NN, E=5, B=50. Prints one table; runs that
are already in the folder are not run again.

    python benchmarks/rounds_to_accuracy.py --dataset path/to/mnist --run-dir runs/rounds
"""

import argparse
import csv
import subprocess
import sys
from pathlib import Path

METHODS = {
    "FedAvg": ("fedavg", "sgd"),
    "FedProx, mu 0.01": ("fedavg", "fedprox"),
    "SCAFFOLD": ("scaffold", "scaffold"),
    "FedDyn, alpha 0.01": ("feddyn", "feddyn"),
}
COMMON = (
    "--partition shards:2 --num-clients 100 --fraction-train 0.1 --fraction-evaluate 0 --model 2nn "
    "--client fedavg --local-epochs 5 --batch-size 50 --client-lr 0.1 --checkpoint-every 0"
)
TARGETS = (0.90, 0.95)
RUN_SIM = Path(__file__).resolve().parents[1] / "run_sim.py"


def accuracies(folder: Path) -> list[float]:
    """The global model's test accuracy by round."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [float(row["global-accuracy"]) for row in csv.DictReader(file)]


def rounds_to(target: float, curve: list[float]) -> str:
    """The first round whose accuracy is at least the target."""
    reached = next((i for i, accuracy in enumerate(curve, start=1) if accuracy >= target), None)
    return str(reached) if reached else f"> {len(curve)}"


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--rounds", default="400")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    print(f"| method | {' | '.join(f'rounds to {t:.0%}' for t in TARGETS)} | accuracy, last 10 rounds |")
    print("|" + " --- |" * (len(TARGETS) + 2))
    for method, (strategy, objective) in METHODS.items():
        curves = []
        for seed in range(options.seeds):
            folder = options.run_dir / f"{strategy}-{objective}-seed{seed}"
            if not (folder / "summary.json").exists():
                names = ["--strategy", strategy, "--objective", objective, "--seed", str(seed)]
                where = ["--dataset", options.dataset, "--rounds", options.rounds, "--run-dir", str(folder)]
                command = [sys.executable, str(RUN_SIM), *COMMON.split(), *names, *where]
                subprocess.run(command, check=True, stdout=sys.stderr)
            curves.append(accuracies(folder))
        reached = [" / ".join(rounds_to(target, curve) for curve in curves) for target in TARGETS]
        last = " / ".join(f"{100 * sum(curve[-10:]) / 10:.1f} %" for curve in curves)
        print(f"| {method} | {' | '.join(reached)} | {last} |")


if __name__ == "__main__":
    main()
