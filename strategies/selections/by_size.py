"""Clients with many examples more often."""

import numpy as np

from .base import Candidates, Positions, Selection


class BySize(Selection):
    """Draw clients one after the other, each with probability proportional to its training examples."""

    helps = ("baseline",)

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        return drawn_by_size(candidates.sizes, count, rng)


def drawn_by_size(sizes: Positions, count: int, rng: np.random.Generator) -> Positions:
    """Draw ``count`` positions without replacement, with probabilities proportional to sizes; those of size
    0 come last."""
    some = np.flatnonzero(sizes)
    shares = sizes[some] / sizes.sum() if some.size else None
    chosen = rng.choice(some, min(count, some.size), replace=False, p=shares)
    none = rng.permutation(np.flatnonzero(sizes == 0))
    return np.concatenate([chosen, none])[:count].astype(np.int64)
