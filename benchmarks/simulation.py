"""Speed and memory of a simulation: Flower's own, this project's, a bare PyTorch loop's, pfl-research's.

    python benchmarks/simulation.py                      # everything; about an hour on two cores
    python benchmarks/simulation.py --workload mlp,server
    python benchmarks/simulation.py --workload cnn --per-round 4 --repetitions 1
    python benchmarks/simulation.py --pfl-python path/to/venv/bin/python
    python benchmarks/simulation.py --device cuda --workload card-cnn,card-resnet,card-mlp,card-sites

All sides train the same network from the same weights on the same images, with FedAvg, one local epoch of
SGD, and as many local steps, in as many processes of one thread (``--workers``). They run one after the
other in every repetition, in turning order. ``simulation_peers/`` holds the sides; what each leaves out or
adds is said there.

- mlp, cnn: 100 clients of 480 images, 28x28. The CNN is McMahan et al.'s, of 1.66 million parameters.
- central: the mlp's rounds, after each of which all sides evaluate the new model on 10,000 images.
- logreg: a whole run of logistic regression, 1,000 clients of 60 images, 10 a round, batch 10, 100 rounds;
  this project also as it runs by default (``--backend auto``).
- resnet: ResNet-18 on 10 clients of 64 images, 3x32x32, this project and the bare loop.
- many: 10,000 clients of 120 images against 100 such clients, 100 a round.
- evaluate: the mlp's clients all evaluate the new model on 10,000 images, against none of them.
- memory: the driver's memory with 50 and with 500 answers of the CNN in a round.
- bytes: what 500 answers of the CNN bring to the driver.
- card-...: what is compared on one card, which all sides have for themselves: pfl-research's CIFAR-10
  benchmark (1,000 clients of 50 images, 3x32x32, 50 a round, batch 10) with its CNN, but without dropout, and
  with a ResNet-18 with GroupNorm; the mlp; four sites of 400 images with the CNN with BatchNorm. This project
  also with four processes on the card.
- server: FedYogi's step alone, this project's and Flower's, on ResNet-18 and 10 clients, and a copy's.

A round's time is the median over the rounds but the first two; a client update's is that over the round's
clients. A run's time is the sum of its rounds but the first two; a process's, of all that it does, from
its start to its end.
The loss at the end is that of the last model on the test images; each side draws clients and batches itself.
How memory is measured, and when, is said in ``simulation_peers/recorder.py``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from simulation_peers.job import Job, write_data
from simulation_peers.sides import (
    BENCHMARKS,
    DRIVER_PEAK,
    PROCESS,
    RECEIVED,
    ROUND,
    RUN,
    UPDATE,
    WARM_UP,
    Figure,
    Side,
    print_ratios,
    print_table,
    run_all,
    run_module,
    span,
)

from fedbn_flower.config.run_config import RunConfig

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
TEST_IMAGES = 1000  # few: the server evaluates between rounds
FLOWER, BARE, PFL = "Flower", "bare loop", "pfl-research"
OURS = {"off": "fedbn-flower", "auto": "fedbn-flower, lockstep"}
ON_CARD = {"off": "fedbn-flower one by one", "auto": "fedbn-flower"}


def lockstep_settings() -> list[str]:
    """The values of ``lockstep`` (now ``fast``) to try; before there was such a key, its absence."""
    return ["off", "auto"] if {"fast", "lockstep"} & RunConfig.model_fields.keys() else [""]


def our_sides(job: Job, suffix: str = "") -> list[Side]:
    """This project, without lockstep and with it."""
    names = OURS if job.device == "cpu" else ON_CARD
    return [
        Side(names[setting or "off"] + suffix, "fedbn_side", replace(job, lockstep=setting))
        for setting in lockstep_settings()
    ]


class Benchmark:
    """The workloads, with what the command line changes in them."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder

    def job(self, model: str, clients: int, images: int, per_round: int, rounds: int) -> Job:
        given = self.options
        clients, images = given.clients or clients, given.images or images
        per_round, rounds = min(given.per_round or per_round, clients), given.rounds or rounds
        steps = (given.batch_size, given.client_lr, given.workers, given.seed)
        backend = "ray" if given.device == "cpu" else "inline"
        how = {"backend": backend, "device": given.device}
        return Job(
            self.data(clients * images), MNIST, model, clients, images, per_round, rounds, *steps, **how
        )

    def data(self, train: int, test: int = TEST_IMAGES, shape: tuple[int, int, int] = MNIST) -> str:
        """The folder with so many training and test images, written if it is not there yet."""
        folder = self.folder / "-".join(map(str, (train, test, *shape)))
        write_data(folder, shape, train, test)
        return str(folder)

    def has_pfl(self) -> bool:
        command = [self.options.pfl_python, "-c", "import pfl.model.pytorch"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def against_peers(self, title: str, job: Job, *figures: Figure, more: Sequence[Side] = ()) -> None:
        """Flower, this project, the bare loop and pfl-research on one job."""
        sides = [Side(FLOWER, "flower_side", job), *our_sides(job), *more, Side(BARE, "bare_side", job)]
        if self.has_pfl():
            sides.append(Side(PFL, "pfl_side", job, self.options.pfl_python))
        else:
            print(f"{PFL} is left out: {self.options.pfl_python} cannot import it (pip install pfl)")
        chosen = self.options.sides and self.options.sides.split(",")
        sides = [side for side in sides if not chosen or side.name in chosen]
        results = run_all(sides, self.options.repetitions)
        ours = [side.name for side in sides if side.module == "fedbn_side"]
        ratios = [(FLOWER, o) for o in ours] + [(o, BARE) for o in ours] + [(PFL, o) for o in ours]
        for figure in figures or (UPDATE,):
            print_table(title, sides, results, figure)
            print_ratios(ratios, sides, results, figure)

    def mlp(self) -> None:
        self.against_peers("mlp: 784-128-BN-10", self.job("mlp-bn", 100, 480, 50, 12))

    def central(self) -> None:
        job = self.job("mlp-bn", 100, 480, 50, 12)
        job = replace(job, data=self.data(job.clients * job.images, 10_000), central=True)
        self.against_peers("central: 784-128-BN-10, evaluated on 10,000 images in each round", job, ROUND)

    def cnn(self) -> None:
        self.against_peers("cnn: 1.66 million parameters", self.job("cnn", 100, 480, 10, 5))

    def logreg(self) -> None:
        """FLUTE's published benchmark, on images that look like MNIST's."""
        job = replace(self.job("linear", 1000, 60, 10, 100 + WARM_UP), batch=10, lr=0.03)
        title = (
            f"logreg: 784-10, {job.clients:,} clients, {job.per_round} a round, {job.rounds - WARM_UP} rounds"
        )
        default = our_sides(replace(job, backend="auto"), ", by default")[-1:]
        self.against_peers(title, job, RUN, PROCESS, more=default)

    def resnet(self) -> None:
        job = self.job(f"{BENCHMARKS / 'simulation_peers' / 'networks.py'}:cifar_resnet18", 10, 64, 10, 4)
        job = replace(job, data=self.data(job.clients * job.images, shape=CIFAR), shape=CIFAR)
        sides = [*our_sides(job), Side(BARE, "bare_side", job)]
        results = run_all(sides, self.options.repetitions)
        print_table("resnet: ResNet-18, 3x32x32, 11.2 million parameters", sides, results)
        print_ratios([(o, BARE) for o in OURS.values()], sides, results)

    def evaluate(self) -> None:
        """All clients evaluate the aggregated model on one and the same test set, or none does."""
        none = self.job("mlp-bn", 100, 480, 50, 6)
        none = replace(none, data=self.data(none.clients * none.images, 10_000))
        told = {none: ", none evaluates", replace(none, evaluating=1.0): ", all evaluate"}
        sides = [side for job in told for side in our_sides(job, told[job])]
        results = run_all(sides, self.options.repetitions)
        print_table(f"evaluate: {none.clients} clients, 10,000 test images", sides, results, ROUND)
        without, everyone = told.values()
        print_ratios([(o + everyone, o + without) for o in OURS.values()], sides, results, ROUND)

    def many(self) -> None:
        """All clients of the few train in a round, as many as are sampled from the many."""
        many = self.job("mlp-bn", 10_000, 120, 100, 12)
        few = replace(many, clients=many.per_round, data=self.data(many.per_round * many.images))
        told = {job: f", {job.clients:,} clients" for job in (few, many)}
        # The bare loop's time does not depend on clients that do not train; it would hold 4 GB of the many.
        sides = [side for job in told for side in our_sides(job, told[job])]
        sides.append(Side(BARE + told[few], "bare_side", few))
        results = run_all(sides, self.options.repetitions)
        print_table(f"many: 784-128-BN-10, {many.per_round} clients a round", sides, results)
        ratios = [(o + told[many], o + told[few]) for o in OURS.values()]
        ratios += [(o + told[few], BARE + told[few]) for o in OURS.values()]
        print_ratios(ratios, sides, results)

    def answers(self) -> Job:
        """So little to train on that the answers are what there is."""
        return replace(self.job("cnn", 500, 2, 500, 3), batch=2)

    def memory(self) -> None:
        every = self.answers()
        tenth = replace(every, per_round=max(1, every.per_round // 10))
        told = {job: f", {job.per_round} answers" for job in (tenth, every)}
        sides = [side for job in told for side in our_sides(job, told[job])]
        results = run_all(sides, self.options.repetitions)
        print_table("memory: 1.66 million parameters an answer", sides, results)
        ratios = [(o + told[every], o + told[tenth]) for o in OURS.values()]
        print_ratios(ratios, sides, results, DRIVER_PEAK)

    def bytes(self) -> None:
        """Once: it does not vary."""
        job = self.answers()
        sides = our_sides(job)
        results = run_all(sides, 1)
        print_table(f"bytes: {job.per_round} answers of 1.66 million parameters", sides, results, RECEIVED)

    def on_card(self, title: str, job: Job) -> None:
        four = our_sides(replace(job, backend="ray", workers=4), " in 4 processes")[-1:]
        self.against_peers(f"card: {title}", job, ROUND, more=four)

    def on_cifar(self, title: str, model: str) -> None:
        """pfl-research's benchmark."""
        job = self.job(model, 1000, 50, 50, 10 + WARM_UP)
        job = replace(job, data=self.data(job.clients * job.images, shape=CIFAR), shape=CIFAR, batch=10)
        self.on_card(f"{title}, {job.clients:,} clients of {job.images} images", job)

    def card_cnn(self) -> None:
        self.on_cifar("pfl's CNN", "simple-cnn")

    def card_resnet(self) -> None:
        networks = BENCHMARKS / "simulation_peers" / "networks.py"
        self.on_cifar("ResNet-18 with GroupNorm", f"{networks}:cifar_resnet18_gn")

    def card_mlp(self) -> None:
        self.on_card("784-128-BN-10, 100 clients of 480 images", self.job("mlp-bn", 100, 480, 50, 12))

    def card_sites(self) -> None:
        self.on_card("four sites of 400 images, CNN with BatchNorm", self.job("cnn-bn", 4, 400, 4, 12))

    def server(self) -> None:
        seconds: dict[str, list[float]] = run_module("server_step", [])
        print("\n## server: FedYogi on ResNet-18, 10 answers\n")
        print("| side | ms a round | spread |\n| --- | --- | --- |")
        for side, times in seconds.items():
            print(f"| {side} | {1000 * median(times):.0f} | {span((1000 * t for t in times), 0)} |")
        print()
        for upper, lower in ((FLOWER, OURS["off"]), (OURS["off"], "copy")):
            ratios = [u / w for u, w in zip(seconds[upper], seconds[lower], strict=True)]
            print(f"- time, {upper} / {lower}: {median(ratios):.3f} ({span(ratios, 3)})")
        print(flush=True)


WORKLOADS = {
    "mlp": Benchmark.mlp,
    "central": Benchmark.central,
    "cnn": Benchmark.cnn,
    "logreg": Benchmark.logreg,
    "resnet": Benchmark.resnet,
    "many": Benchmark.many,
    "evaluate": Benchmark.evaluate,
    "memory": Benchmark.memory,
    "bytes": Benchmark.bytes,
    "card-cnn": Benchmark.card_cnn,
    "card-resnet": Benchmark.card_resnet,
    "card-mlp": Benchmark.card_mlp,
    "card-sites": Benchmark.card_sites,
    "server": Benchmark.server,
}


def parse_options() -> argparse.Namespace:
    """The command line; a size that is not given is the workload's own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    of_cpu = ",".join(name for name in WORKLOADS if not name.startswith("card"))
    parser.add_argument(
        "--workload", default=of_cpu, help="comma-separated; default: all but those of a card"
    )
    parser.add_argument("--sides", default="", help="their names, comma-separated; default: all")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rounds", type=int, help=f"timed rounds, of which {WARM_UP} are warm-up")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--images", type=int, help="training images of a client")
    parser.add_argument("--per-round", type=int, help="clients that train in a round")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--client-lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, help="default: one a core; with cuda one")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="with cuda name workloads")
    parser.add_argument("--data-dir", type=Path, help="keep the images here; default: a temporary folder")
    parser.add_argument("--pfl-python", default=sys.executable, help="a Python that can import pfl")
    options = parser.parse_args()
    options.workers = options.workers or (os.cpu_count() if options.device == "cpu" else 1)
    if unknown := set(options.workload.split(",")) - WORKLOADS.keys():
        parser.error(f"--workload: unknown {sorted(unknown)}; expected some of {', '.join(WORKLOADS)}")
    if options.rounds is not None and options.rounds <= WARM_UP:
        parser.error(f"--rounds: {options.rounds} is not allowed; expected more than {WARM_UP}")
    # The sides run in another directory; a virtual environment's link must not be resolved.
    options.pfl_python = os.path.abspath(shutil.which(options.pfl_python) or options.pfl_python)
    return options


def main() -> None:
    """Run the workloads and print their tables."""
    options = parse_options()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.data_dir or Path(temporary)).resolve()
        for workload in options.workload.split(","):
            WORKLOADS[workload](Benchmark(options, folder))


if __name__ == "__main__":
    main()
