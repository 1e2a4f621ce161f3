"""Times of rounds and peak memory, which a side's process prints for the benchmark to read.

Memory is private memory (Private_* of smaps_rollup) of the process that drives the rounds, and the sum over
all processes below it: workers, and with Ray also its raylet and the like. Where the driver trains too, and
the others run beside it (pfl-research), "driver" is its own memory and "workers" that of the others below
their launcher, which is not counted. It is sampled every 20 ms by a
thread, in one extra round after the timed ones, so that sampling costs no timed round anything. What
processes share (the memory-mapped data set, Ray's object store, the bare loop's tensors) is not counted;
pages of a library are, in a process that alone has them mapped.

On a card ``nvidia-smi`` says ten times a second, to the end of the last timed round, how much of its memory
is used, by whomever, and for which share of the time it worked.
"""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean

from .job import Job

SECONDS_BETWEEN_SAMPLES = 0.02


def private_bytes(pid: int) -> int:
    """Memory that the process shares with no other; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private"))


def descendants(pid: int) -> Iterator[int]:
    """Every process below this one."""
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = thread.read_text().split()
        except OSError:  # ended meanwhile
            continue
        for child in map(int, children):
            yield child
            yield from descendants(child)


def watched_card() -> subprocess.Popen[str]:
    """A process that says ten times a second for how much of the time the card worked, and MiB used."""
    query = "--query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits -i 0 -lms 100"
    return subprocess.Popen(["nvidia-smi", *query.split()], stdout=subprocess.PIPE, text=True)


@dataclass
class Measurement:
    """One run of one side: seconds of its timed rounds; memory, and what came to the driver, in bytes."""

    seconds: list[float] = field(default_factory=list)
    driver_peak: int = 0
    workers_peak: int = 0
    process_seconds: float = 0.0
    """From the start of the side's process to its end, as whoever started it saw it."""
    received: int = 0
    """The data of the arrays in all answers of a round, the most of any; 0 where nobody counts them."""
    loss: float = float("nan")
    """Of the last model on the test images."""
    card_peak: int = 0
    card_share: float = 0.0
    """Memory of the card, in bytes, and the share of the time in which it worked."""


class Recorder:
    """Takes the duration of every round.

    Parameters
    ----------
    job : Job
        How many rounds are timed.
    above : int | None
        The process that has all others below it; by default this one.
    """

    def __init__(self, job: Job, above: int | None = None) -> None:
        self.job = job
        self.above = above or os.getpid()
        self.measured = Measurement()
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._card = watched_card() if job.device == "cuda" else None

    def add(self, seconds: float) -> None:
        """A round took so long; the one after the timed rounds is not timed, but sampled."""
        if len(self.measured.seconds) < self.job.rounds:
            self.measured.seconds.append(seconds)
            if len(self.measured.seconds) == self.job.rounds:
                self._read_card()
                self._sampler.start()
        else:
            self._done.set()
            self._sampler.join()

    def print(self) -> None:
        print(json.dumps(asdict(self.measured)), flush=True)

    def _read_card(self) -> None:
        if self._card:
            self._card.terminate()
            lines = [line.split(",") for line in self._card.communicate()[0].splitlines() if "," in line]
            if lines:
                self.measured.card_share = mean(float(share) for share, _ in lines) / 100
                self.measured.card_peak = max(int(used) << 20 for _, used in lines)

    def _sample(self) -> None:
        measured, own = self.measured, os.getpid()
        workers = [pid for pid in descendants(self.above) if pid != own]
        while True:
            measured.driver_peak = max(measured.driver_peak, private_bytes(own))
            measured.workers_peak = max(measured.workers_peak, sum(map(private_bytes, workers)))
            if self._done.wait(SECONDS_BETWEEN_SAMPLES):
                return
