"""What every side is told to do: the same data, model, clients and steps."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedbn_flower.models import InputSpec
from fedbn_flower.models.build import build_model

CLASSES = 10
SIDE_LENGTH = 28
TEST_IMAGES = 1000
CHUNK = 2**15  # images written at once


@dataclass(frozen=True)
class Job:
    """FedAvg with plain SGD, one local epoch.

    Parameters
    ----------
    data : str
        A folder that `write_data` filled; client i holds rows ``i * images`` to ``(i + 1) * images``, or
        as many others where a side divides the data itself.
    images : int
        Training images of a client.
    per_round : int
        Clients that train in a round.
    rounds : int
        Rounds that are timed, the warm-up included; one more follows, in which memory is sampled.
    workers : int
        Processes that train.
    lockstep : str
        The configuration key of that name, where the side has it; empty leaves it out.
    """

    data: str
    model: str
    clients: int
    images: int
    per_round: int
    rounds: int
    batch: int
    lr: float
    workers: int
    seed: int
    lockstep: str = ""

    @classmethod
    def parse(cls, text: str) -> "Job":
        """The job that `to_json` wrote."""
        return cls(**json.loads(text))

    @classmethod
    def of_this_process(cls) -> "Job":
        """The job on the command line."""
        return cls.parse(sys.argv[1])

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def all_rounds(self) -> int:
        return self.rounds + 1

    def initial_model(self) -> nn.Module:
        """The network with the initial weights that all sides begin from."""
        return build_model(self.model, InputSpec((1, SIDE_LENGTH, SIDE_LENGTH), CLASSES), False, self.seed)

    def train_arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All training images, memory-mapped, uint8 (N, 28, 28), and their labels (N,)."""
        images = np.load(Path(self.data, "train-images.npy"), mmap_mode="r")
        return images, np.load(Path(self.data, "train-labels.npy"), mmap_mode="r")

    def rows(self, client: int) -> slice:
        return slice(client * self.images, (client + 1) * self.images)


def write_data(folder: Path, num_train: int) -> None:
    """Images that can be learnt, a pattern for each class under noise; written once."""
    complete = folder / "test-labels.npy"
    if complete.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 128, (CLASSES, SIDE_LENGTH, SIDE_LENGTH), np.uint8)
    for split, count in (("train", num_train), ("test", TEST_IMAGES)):
        labels = rng.integers(0, CLASSES, count)
        shape = (count, SIDE_LENGTH, SIDE_LENGTH)
        images = np.lib.format.open_memmap(folder / f"{split}-images.npy", "w+", np.uint8, shape)
        for start in range(0, count, CHUNK):
            part = labels[start : start + CHUNK]
            noise = rng.integers(0, 128, (len(part), SIDE_LENGTH, SIDE_LENGTH), np.uint8)
            images[start : start + CHUNK] = patterns[part] + noise
        images.flush()
        np.save(folder / f"{split}-labels.npy", labels)
