"""What every side is told to do: the same data, model, clients and steps."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedbn_flower.job.initial_model import build_model
from fedbn_flower.models import InputSpec

CLASSES = 10
CHUNK = 2**15  # images written at once
EVALUATED = 512  # images in a batch of an evaluation


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
    shape : tuple[int, int, int]
        Channels, height and width of an image.
    workers : int
        Processes that train.
    evaluating : float
        The share of the clients that evaluate the new model on the whole test set, where the side can.
    central : bool
        Whether each round's model is evaluated on the whole test set, once.
    backend : str
        The configuration key of that name, where the side has it.
    lockstep : str
        The configuration key of that name, where the side has it; empty leaves it out.
    device : str
        Where clients train: ``cpu``, or ``cuda``, on one card.
    """

    data: str
    shape: tuple[int, int, int]
    model: str
    clients: int
    images: int
    per_round: int
    rounds: int
    batch: int
    lr: float
    workers: int
    seed: int
    evaluating: float = 0.0
    central: bool = False
    backend: str = "ray"
    lockstep: str = ""
    device: str = "cpu"

    @classmethod
    def parse(cls, text: str) -> "Job":
        """The job that `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "shape": tuple(values["shape"])})

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
        return build_model(self.model, InputSpec(self.shape, CLASSES), False, self.seed)

    def train_arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All training images, memory-mapped, uint8 (N, *shape), and their labels (N,)."""
        return self._arrays("train")

    def test_tensors(self) -> tuple[Tensor, Tensor]:
        """All test images, float32 (N, *shape) in [0, 1], and their labels (N,)."""
        images, labels = (torch.from_numpy(np.array(array)) for array in self._arrays("test"))
        return images.float().div_(255), labels

    def _arrays(self, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        images = np.load(Path(self.data, f"{split}-images.npy"), mmap_mode="r")
        return images, np.load(Path(self.data, f"{split}-labels.npy"), mmap_mode="r")

    def rows(self, client: int) -> slice:
        return slice(client * self.images, (client + 1) * self.images)


def mean_loss(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the network's mean cross-entropy on the images, in evaluation mode."""
    network.eval()
    with torch.no_grad():
        batches = zip(images.split(EVALUATED), labels.split(EVALUATED), strict=True)
        losses = (functional.cross_entropy(network(x), y, reduction="sum") for x, y in batches)
        return float(sum(map(float, losses)) / len(labels))


def count_correct(network: nn.Module, images: Tensor, labels: Tensor) -> int:
    """Return how many images the network classifies correctly, in evaluation mode."""
    network.eval()
    with torch.no_grad():
        batches = zip(images.split(EVALUATED), labels.split(EVALUATED), strict=True)
        return sum(int((network(x).argmax(1) == y).sum()) for x, y in batches)


def write_data(folder: Path, shape: tuple[int, int, int], num_train: int, num_test: int) -> None:
    """Images that can be learnt, a pattern for each class under noise; written once."""
    complete = folder / "test-labels.npy"
    if complete.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 128, (CLASSES, *shape), np.uint8)
    for split, count in (("train", num_train), ("test", num_test)):
        labels = rng.integers(0, CLASSES, count)
        path = folder / f"{split}-images.npy"
        images = np.lib.format.open_memmap(path, "w+", np.uint8, (count, *shape))
        for start in range(0, count, CHUNK):
            part = labels[start : start + CHUNK]
            noise = rng.integers(0, 128, (len(part), *shape), np.uint8)
            images[start : start + CHUNK] = patterns[part] + noise
        images.flush()
        np.save(folder / f"{split}-labels.npy", labels)
