"""Some steps of local training before a model is evaluated."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from .training import LocalRun

SEED = 3  # beside the round in the seed of the batches


@dataclass(frozen=True, eq=False, kw_only=True)
class FineTuning(LocalRun):
    """A run of so many steps, whatever else it says, over as many epochs as they take."""

    steps: int

    @classmethod
    def like(cls, run: LocalRun, steps: int) -> "FineTuning":
        """So many steps of another run, with batches of their own."""
        return cls(**vars(run) | {"seed": (*run.seed, SEED), "steps": steps})

    def epochs(self, rng: np.random.Generator) -> Iterator[list[NDArray[np.int64]]]:
        """The batches of all steps as one epoch."""
        size = self.training.batch_size
        batches = chain.from_iterable(self.examples.batches(size, rng) for _ in range(self.steps))
        yield list(islice(batches, self.steps))
