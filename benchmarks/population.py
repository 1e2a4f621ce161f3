"""What a large population costs: 20 examples per client, 1,000 clients a round, with a checkpoint after each.

python benchmarks/population.py --clients 10000,1000000 --run-dir runs/population
"""

import argparse
import csv
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

from fedbn_flower import simulate

ROUNDS, A_ROUND, EXAMPLES, FEATURES = 6, 1000, 20, 8


def run(clients: int, client: str, backend: str, folder: Path) -> str:
    """Run one federation in this process and return its row of the table."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((EXAMPLES * clients, FEATURES), dtype=np.float32)
    y = (x[:, 0] + rng.standard_normal(len(x), dtype=np.float32) > 0).astype(np.int64)
    started = time.monotonic()
    simulate(
        data=(x, y, x[:2000] + np.float32(0.01), y[:2000]), num_clients=clients, partition="iid",
        model="mlp-bn", client=client, fraction_train=A_ROUND / clients, fraction_evaluate=0, rounds=ROUNDS,
        batch_size=EXAMPLES, backend=backend, run_dir=str(folder),
    )  # fmt: skip
    seconds = time.monotonic() - started
    with (folder / "metrics.csv").open(newline="") as file:
        rounds = [float(row["seconds"]) for row in csv.DictReader(file)]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    files = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    times = f"{seconds - sum(rounds):.1f} | {rounds[0]:.2f} | {median(rounds[1:]):.2f}"
    return f"| `{client}` | {backend} | {clients:,} | {times} | {memory:,.0f} | {files:.1f} |"


def main() -> None:
    """Run each row in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", default="10000,1000000")
    parser.add_argument("--client", default="fedavg,fedbn")
    parser.add_argument("--backend", default="inline,ray")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--one", action="store_true", help="a single row, in this process")
    options = parser.parse_args()
    if options.one:
        print(run(int(options.clients), options.client, options.backend, options.run_dir))
        return
    print("| client | backend | clients | beside rounds, s | round 1, s | a round, s | MB | files, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for client in options.client.split(","):
        for backend in options.backend.split(","):
            for clients in options.clients.split(","):
                shutil.rmtree(options.run_dir, ignore_errors=True)
                words = ["--clients", clients, "--client", client, "--backend", backend, "--one"]
                command = [sys.executable, __file__, *words, "--run-dir", str(options.run_dir)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                print(done.stdout.splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
