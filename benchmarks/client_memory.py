"""What 1,000 clients' FedDyn memory costs: private memory of driver and workers, and what all processes
share (the object store), with and without it.

python benchmarks/client_memory.py --dataset path/to/mnist --run-dir runs/memory
"""

import argparse
import os
from pathlib import Path

import ray

from fedbn_flower.config.making import run_config
from fedbn_flower.runtime.ray.pool import RayPool
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

CLIENTS = 1000


def private_bytes(pid: int) -> int:
    """Memory that the process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private"))


def shared_bytes() -> int:
    """Shared memory in use on this machine, by whatever process."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Shmem:"))


def main() -> None:
    """Run both jobs, each on fresh workers, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    options = parser.parse_args()
    print("| strategy | driver, MB | workers, MB | shared, MB | clients' memory by arithmetic, MB |")
    print("| --- | --- | --- | --- | --- |")
    for strategy, objective in (("fedavg", "sgd"), ("feddyn", "feddyn")):
        values = {
            "strategy": strategy, "objective": objective, "client": "shared", "model": "mlp-bn",
            "dataset": options.dataset, "partition": "iid", "num-clients": CLIENTS, "rounds": 2,
            "local-epochs": 1, "fraction-evaluate": 0, "checkpoint-every": 0,
        }  # fmt: skip
        federation = Federation(run_config(values))
        before = shared_bytes()
        pool = RayPool(2, verbose=False)
        workers = ray.get([worker.process_id.remote() for worker in pool.workers])
        simulate(federation, options.run_dir / strategy, pool)
        parameters = sum(p.numel() for p in federation.inputs.model()[0].parameters())
        expected = 4 * parameters * CLIENTS if objective == "feddyn" else 0
        driver, all_workers = private_bytes(os.getpid()), sum(map(private_bytes, workers))
        figures = (driver, all_workers, shared_bytes() - before, expected)
        pool.close()
        print(f"| {strategy} | {' | '.join(f'{figure / 1e6:.0f}' for figure in figures)} |", flush=True)


if __name__ == "__main__":
    main()
