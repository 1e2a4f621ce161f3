"""What a GPU does for a simulation: a client update on it and on the CPU, one by one and in lockstep.

One process, random images, 32 clients of 256 images 3x32x32, batch 32, one epoch; after a warm-up round the
sides take turns, and the median of the rounds stands in the table, with the largest difference of the final
model's entries from the first side's, relative to the largest entry.

    python benchmarks/on_a_gpu.py
"""

import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord

from fedbn_flower.config import RunConfig
from fedbn_flower.federation import Federation, RoundResult
from fedbn_flower.runtime import InlineGrid
from fedbn_flower.task import cohort_size

CLIENTS, IMAGES, ROUNDS = 32, 256, 4
MODELS = ("mlp-bn", "cnn", "resnet20")
SIDES = {
    f"{device}, {name}": {"device": device, "fast": fast}
    for device in ("cpu", "cuda")
    for name, fast in (("one by one", "off"), ("fast", "auto"))
}


def write_images(folder: Path) -> None:
    """Ten classes of noise around ten patterns."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (10, 3, 32, 32))
    for split, count in (("train", CLIENTS * IMAGES), ("test", 500)):
        labels = rng.integers(0, 10, count)
        images = patterns[labels] * 0.5 + rng.integers(0, 128, (count, 3, 32, 32))
        np.save(folder / f"{split}-images.npy", images.astype(np.uint8))
        np.save(folder / f"{split}-labels.npy", labels)


class Seconds:
    """Notes what each round took."""

    def __init__(self) -> None:
        self.rounds: list[float] = []

    def on_round(self, result: RoundResult) -> None:
        """Called after every round."""
        if result.failures:
            raise RuntimeError(str(result.train.failures))
        self.rounds.append(result.seconds)


def run(folder: Path, model: str, keys: dict[str, str]) -> tuple[float, ArrayRecord]:
    """Milliseconds a client update, the median over the rounds after the first; the final model."""
    given = {
        "dataset": str(folder), "cache-dir": str(folder / "cache"), "partition": "iid", "model": model,
        "num-clients": CLIENTS, "client": "fedbn", "local-epochs": 1, "rounds": ROUNDS, "backend": "inline",
        "fraction-evaluate": 0, "client-lr": 0.01, **keys,
    }  # fmt: skip
    config = RunConfig.of(given)
    seconds = Seconds()
    grid = InlineGrid(CLIENTS, config.to_user_config(), cohort_size(config))
    arrays = Federation(config).run(grid, [seconds])
    return 1000 * statistics.median(seconds.rounds[1:]) / CLIENTS, arrays


def apart(arrays: ArrayRecord, first: ArrayRecord) -> float:
    """The largest difference of any entry, relative to the largest entry of its array."""
    pairs = [(arrays[name].numpy(), first[name].numpy()) for name in first]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs if b.dtype.kind == "f")


def main() -> None:
    """Print the table."""
    print(f"| model | side | ms a client update | from {next(iter(SIDES))} |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        write_images(Path(scratch))
        for model in MODELS:
            first: ArrayRecord | None = None
            for name, keys in SIDES.items():
                if keys["device"] == "cuda" and not torch.cuda.is_available():
                    continue
                taken, arrays = run(Path(scratch), model, keys)
                first = first or arrays
                print(f"| {model} | {name} | {taken:.2f} | {apart(arrays, first):.0e} |", flush=True)


if __name__ == "__main__":
    main()
