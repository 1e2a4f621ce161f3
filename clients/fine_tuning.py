"""Fine-tuning: some steps of local training before a model is evaluated."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from .training import LocalRun

SEED = 3  # appended to the seed of the round


@dataclass(frozen=True, eq=False, kw_only=True)
class FineTuning(LocalRun):
    """A run of exactly ``steps`` steps, over as many epochs as needed; ``share`` and epochs are ignored."""

    steps: int

    @classmethod
    def like(cls, run: LocalRun, steps: int) -> "FineTuning":
        """Return a run like another one, with ``steps`` plain steps and other random batches."""
        given = {one.name: getattr(run, one.name) for one in fields(LocalRun)}
        changed = {"seed": (*run.seed, SEED), "mechanism": None, "units": None}
        return cls(**given | changed, steps=steps)

    def epochs(self, rng: np.random.Generator) -> Iterator[list[NDArray[np.int64]]]:
        """Yield the batches of all steps as one epoch."""
        size = self.training.batch_size
        batches = chain.from_iterable(self.examples.batches(size, rng) for _ in range(self.steps))
        yield list(islice(batches, self.steps))
