"""What secure aggregation costs: a client's masks against its training, the server's unmasking, and bytes.

Masks are of one client of 100 with 20 neighbours, over the numbers of each model, of which ResNet-18 has 11
million. Training is the median of some steps on random images, times the steps of an epoch of 500 examples, a
client's share of CIFAR-10's 50,000. All is in one process with one thread. Sums are checked to the bit.

Rounds are of 1,000 simulated clients with 60 pictures of 28 x 28, as many as MNIST has, in three steps of
an MLP with BatchNorm. Runs with and without take turns, and a ratio is taken within a repetition.

With ``--only sites`` rounds are those of a SuperLink and SuperNodes on this machine, with the digits: without
``secagg``, with it, and with it where training and evaluation are two answers. Of a run the median of the
rounds between the first and the last one counts, in which sites have their workers. They take minutes: with
``--found`` each is kept in a file as it comes, and the same command goes on after those that are there.

python benchmarks/secagg.py
python benchmarks/secagg.py --only rounds --backend ray
python benchmarks/secagg.py --only sites --sites 3 --repetitions 2 --found runs/secagg-sites.json
"""

import argparse
import csv
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn
from torchvision.models import resnet18

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fedbn_flower import simulate  # noqa: E402
from fedbn_flower.consortium.local import LocalFederation  # noqa: E402
from fedbn_flower.secagg.cryptography import (  # noqa: E402
    DIGEST,
    KeyPair,
    agree,
    digest_of,
    expand,
    join,
    mask,
    remove,
    seal,
    split,
)
from fedbn_flower.secagg.graph import default_k, neighbours, threshold  # noqa: E402
from fedbn_flower.secagg.integers import Grid  # noqa: E402
from fedbn_flower.secagg.noise import NoiseShares  # noqa: E402

CLIENTS, NEIGHBOURS, EXAMPLES, BATCH = 100, 20, 500, 32
PARAMETERS = 11_000_000
SIMULATED, PICTURES = 1000, 60
AT_SITES = {
    "off": {"secagg": "off"},
    "on": {"secagg": "on"},
    "on, two answers": {"secagg": "on", "evaluate-with-training": "off"},
}
"""What runs of SuperNodes have, by how the table names it."""


def seconds(call: Callable[[], object], repetitions: int = 3) -> float:
    """Return the median of some calls, after one that does not count."""
    call()
    found = []
    for _ in range(repetitions):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return median(found)


def mlp_bn() -> nn.Module:
    """Return the hidden layers of 200 of the project's MLP-BN, for pictures of 32 x 32 x 3."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3072, 200), nn.BatchNorm1d(200), nn.ReLU(), nn.Linear(200, 200),
        nn.BatchNorm1d(200), nn.ReLU(), nn.Linear(200, 10),
    )  # fmt: skip


def epoch(model: nn.Module, repetitions: int) -> float:
    """Return the seconds of an epoch, from those of a step."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return seconds(step, repetitions) * -(-EXAMPLES // BATCH)


def client(size: int, noise: bool = False, clients: int = CLIENTS, k: int = NEIGHBOURS) -> dict[str, float]:
    """Return the seconds of a client's parts of a round with vectors of this size."""
    vector = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    vector /= np.sqrt(float(np.sum(vector.astype(np.float64) ** 2)))
    grid, rng = Grid.plan(1.0, clients, size), np.random.default_rng()
    numbers = grid.quantise(vector, rng)
    own, others = KeyPair.new(), [KeyPair.new() for _ in range(k)]
    shares_wanted = (k + 1) // 2 + 1

    def keys() -> dict[int, bytes]:
        """Shares and letters to all neighbours, and the masks that are agreed on."""
        seed, holders = os.urandom(32), range(k + 1)
        for shares in (split(secret, shares_wanted, holders) for secret in (seed, own.private_bytes())):
            for holder, other in enumerate(others):
                seal(agree(own, other.public, b"letters"), shares[holder], b"")
        return {i + 1: agree(own, other.public, b"masks") for i, other in enumerate(others)}

    pairs, found = keys(), {"keys and letters": seconds(keys)}
    found["quantise"] = seconds(lambda: grid.quantise(vector, rng))
    found["mask"] = seconds(lambda: mask(numbers, os.urandom(32), pairs, 0))
    if noise:
        found["noise"] = seconds(NoiseShares.plan(1.0, 1.0, CLIENTS, 67, size).draw, 1)
    return found


def print_clients(repetitions: int) -> None:
    """Print a client's seconds beside those of its training."""
    models = {"MLP-BN": mlp_bn(), "ResNet-18": resnet18(num_classes=10)}
    print(
        f"One client of {CLIENTS} with {NEIGHBOURS} neighbours, {EXAMPLES} examples in batches of {BATCH}:\n"
    )
    print("| model | numbers | epoch, s | keys and letters, s | quantise, s | mask, s | together / epoch |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, model in models.items():
        size = sum(parameter.numel() for parameter in model.parameters())
        trained, costs = epoch(model, repetitions), client(size)
        parts = " | ".join(f"{cost:.3f}" for cost in costs.values())
        print(f"| {name} | {size:,} | {trained:.3f} | {parts} | {sum(costs.values()) / trained:.3f} |")
    drawn = client(PARAMETERS // 10, noise=True)["noise"] * 10
    print(f"\nWith dp client, drawing the noise of {PARAMETERS:,} numbers takes {drawn:.1f} s more.\n")


def print_sizes() -> None:
    """Print a client's seconds and bytes by the number of clients and of the model's numbers."""
    print("A client by the number of clients, each with as many neighbours as are safe by default:\n")
    costs_of = "keys and letters, s | quantise, s | mask, s"
    print(f"| clients | neighbours | shares | numbers | {costs_of} | bytes | over plain |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for clients in (10, 100, 1000):
        k = default_k(clients)
        for size in (10_000, 199_610, PARAMETERS):
            costs = client(size, clients=clients, k=k)
            parts = " | ".join(f"{cost:.4f}" for cost in costs.values())
            whole, plain = bytes_of(size, k, clients), 2 * 4 * size
            shares = threshold(clients, k=k)
            row = f"| {clients:,} | {k} | {shares} | {size:,} | {parts} | {whole:,} | {whole / plain:.4f} |"
            print(row, flush=True)
    print()


def print_rounds(backend: str, repetitions: int, modes: list[str]) -> None:
    """Print the seconds of rounds of many simulated clients, with and without."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((SIMULATED * PICTURES, 1, 28, 28), dtype=np.float32)
    y = rng.integers(0, 10, len(x))
    found: dict[str, list[float]] = {mode: [] for mode in modes}
    with tempfile.TemporaryDirectory() as name:
        for repetition in range(repetitions):
            models = {}
            for mode in modes[:: -1 if repetition % 2 else 1]:
                folder = Path(name) / f"{mode}-{repetition}"
                simulate(
                    data=(x, y, x[:2000] + np.float32(0.01), y[:2000]), num_clients=SIMULATED,
                    partition="iid", model="mlp-bn", client="shared", clip_update_norm=1.0, secagg=mode,
                    fraction_evaluate=0, evaluate_every=5, rounds=5, batch_size=20, backend=backend,
                    run_dir=str(folder),
                )  # fmt: skip
                found[mode].append(median(round_seconds(folder)))
                models[mode] = (folder / "model.safetensors").read_bytes()
            assert len({models[mode] for mode in modes if mode != "off"}) == 1
    print(f"{SIMULATED:,} clients, {backend}:\n\n| secagg | a round, s | over off |\n| --- | --- | --- |")
    for mode in modes:
        ratios = [b / a for a, b in zip(found["off"], found[mode], strict=True)]
        columns = (
            f"{median(some):.2f} ({min(some):.2f} to {max(some):.2f})" for some in (found[mode], ratios)
        )
        print(f"| {mode} | {' | '.join(columns)} |", flush=True)
    print()


def round_seconds(folder: Path) -> list[float]:
    """Return the seconds of a run's rounds but for the first and the last one."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [float(row["seconds"]) for row in csv.DictReader(file)][1:-1]


def print_sites(sites: int, rounds: int, repetitions: int, kept: Path | None) -> None:
    """Print the seconds of rounds of SuperNodes, with and without; ``kept`` has those of earlier calls."""
    found: dict[str, list[float]] = {way: [] for way in AT_SITES}
    if kept and kept.exists():
        found = json.loads(kept.read_text())
    missing = [
        way
        for repetition in range(repetitions)
        for way in [*AT_SITES][:: -1 if repetition % 2 else 1]
        if len(found[way]) <= repetition
    ]
    with ExitStack() as stack:
        if missing:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            federation = stack.enter_context(LocalFederation(place / "federation", sites))
        for number, way in enumerate(missing):
            found[way].append(site_seconds(federation, place / str(number), AT_SITES[way], rounds))
            print(f"{way}: {found[way][-1]:.2f}", file=sys.stderr, flush=True)
            if kept:
                kept.write_text(json.dumps(found))
    print(
        f"{sites} SuperNodes, {rounds} rounds:\n\n| secagg | a round, s | over off, s |\n| --- | --- | --- |"
    )
    for way, values in found.items():
        more = [b - a for a, b in zip(found["off"], values, strict=True)]
        columns = (f"{median(some):.2f} ({min(some):.2f} to {max(some):.2f})" for some in (values, more))
        print(f"| {way} | {' | '.join(columns)} |", flush=True)
    print()


def site_seconds(federation: LocalFederation, folder: Path, way: dict[str, str], rounds: int) -> float:
    """Return the seconds of a round of SuperNodes, from a run of so many rounds.

    Raises
    ------
    RuntimeError
        When the run fails.
    """
    keys = {
        "dataset": "digits", "partition": "iid", "client": "shared", "clip-update-norm": 1.0,
        "num-clients": federation.supernodes, "rounds": rounds, "run-dir": str(folder), **way,
    }  # fmt: skip
    words = " ".join(f"{key}={value!r}" for key, value in keys.items())
    done = federation.run(["flwr", "run", ROOT, "--stream", "--run-config", words], quiet=True)
    if not (folder / "summary.json").exists():
        raise RuntimeError(f"the run failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return median(round_seconds(folder))


class Round:
    """A round of clients that all send, as the server has it when it knows who dropped out."""

    def __init__(self, size: int, k: int) -> None:
        self.graph = neighbours(range(CLIENTS), k, 0)
        self.threshold = (k + 1) // 2 + 1
        self.keys = [KeyPair.new() for _ in range(CLIENTS)]
        self.seeds = [os.urandom(32) for _ in range(CLIENTS)]
        self.shares = [
            [split(secret, self.threshold, [me, *self.graph[me]]) for secret in (seed, pair.private_bytes())]
            for me, (seed, pair) in enumerate(zip(self.seeds, self.keys, strict=True))
        ]
        self.size = size

    def total(self, survivors: set[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of the survivors' masked vectors, and that of their integers.

        Masks between two survivors cancel, and are left out.
        """
        plain = np.zeros(self.size, np.uint32)
        for me in survivors:
            plain += expand(me.to_bytes(32, "big"), self.size, 32) % np.uint32(1000)
        masked = plain.copy()
        for me in survivors:
            gone = {v: agree(self.keys[me], self.keys[v].public, b"") for v in self.graph[me]}
            gone = {v: seed for v, seed in gone.items() if v not in survivors}
            masked += mask(np.zeros(self.size, np.uint32), self.seeds[me], gone, me)
        return masked, plain

    def unmask(self, masked: np.ndarray, survivors: set[int]) -> tuple[np.ndarray, float]:
        """Return the plain sum, and the seconds that secrets took."""
        began = time.perf_counter()
        held = [
            {h: share for h, share in self.shares[me][me not in survivors].items() if h in survivors}
            for me in range(CLIENTS)
        ]
        seeds = [join(held[me], self.threshold, digest=digest_of(self.seeds[me])) for me in survivors]
        pairs = []
        for lost in set(range(CLIENTS)) - survivors:
            private = join(held[lost], self.threshold, public=self.keys[lost].public)
            pair = KeyPair.of(private)
            others = survivors.intersection(self.graph[lost])
            pairs += [(me, lost, agree(pair, self.keys[me].public, b"")) for me in others]
        secrets = time.perf_counter() - began
        return remove(masked, seeds, pairs), secrets


def print_server(size: int) -> None:
    """Print the seconds of unmasking, by who dropped out."""
    scale = PARAMETERS / size
    print(f"The server, {CLIENTS} clients; masks of {size:,} numbers, times {scale:g} for {PARAMETERS:,}:\n")
    print("| neighbours | dropped out | secrets, s | masks, s | together, s |")
    print("| --- | --- | --- | --- | --- |")
    for k in (NEIGHBOURS, default_k(CLIENTS)):
        round_ = Round(size, k)
        for share in (0.0, 0.05, 0.3):
            order = np.random.default_rng(1).permutation(CLIENTS).tolist()
            survivors = set(order[round(share * CLIENTS) :])
            try:
                masked, plain = round_.total(survivors)
                began = time.perf_counter()
                found, secrets = round_.unmask(masked, survivors)
            except ValueError as error:
                print(f"| {k} | {share:.0%} | no result: {error} | | |")
                continue
            masks = (time.perf_counter() - began - secrets) * scale
            assert np.array_equal(found, plain)
            print(f"| {k} | {share:.0%} | {secrets:.2f} | {masks:.2f} | {secrets + masks:.2f} |", flush=True)


def bytes_of(size: int, k: int, clients: int = CLIENTS) -> int:
    """Return what a client sends and gets in a round with so many numbers and neighbours."""
    share = len(split(bytes(32), 2, range(3))[0])
    letter = len(seal(bytes(32), bytes(2 * share), b""))
    keys, letters, answers = 64 * (1 + k), 2 * letter * k + 32, share * (k + 1)
    commitments = DIGEST * (2 * (k + 1) + k)  # sent to two shares of each holder, and got to one of each
    return 2 * 4 * size + keys + letters + commitments + answers + clients // 8


def print_bytes() -> None:
    """Print what a client sends and gets in a round beside a plain one, by its number of numbers."""
    print("\n| numbers | neighbours | float32 both ways | with secagg | ratio |")
    print("| --- | --- | --- | --- | --- |")
    for size, k in ((10_000, 20), (657_610, 20), (PARAMETERS, 20), (PARAMETERS, default_k(CLIENTS))):
        plain, whole = 2 * 4 * size, bytes_of(size, k)
        print(f"| {size:,} | {k} | {plain:,} | {whole:,} | {whole / plain:.4f} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--numbers", type=int, default=PARAMETERS // 10, help="of a vector at the server")
    parser.add_argument("--only", choices=("clients", "sizes", "server", "bytes", "rounds", "sites"))
    parser.add_argument("--backend", default="inline", help="of rounds: inline or ray")
    parser.add_argument("--modes", default="off,plain", help="of rounds: of off, plain and on, off first")
    parser.add_argument("--sites", type=int, default=3, help="SuperNodes of --only sites")
    parser.add_argument("--found", type=Path, metavar="FILE", help="keeps what --only sites has measured")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill ends what was started, too
    torch.set_num_threads(1)
    tables: dict[str, Callable[[], None]] = {
        "clients": lambda: print_clients(options.repetitions),
        "sizes": print_sizes,
        "server": lambda: print_server(options.numbers),
        "bytes": print_bytes,
        "rounds": lambda: print_rounds(options.backend, options.repetitions, options.modes.split(",")),
    }
    if options.only == "sites":
        print_sites(options.sites, 5, options.repetitions, options.found)
    for name, table in tables.items():
        if options.only in (None, name):
            table()


if __name__ == "__main__":
    main()
