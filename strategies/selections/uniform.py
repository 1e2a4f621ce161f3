"""Every client with the same probability."""

import numpy as np

from .base import Candidates, Positions, Selection


class Uniform(Selection):
    """Draw clients uniformly, without replacement."""

    helps = ("baseline",)

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        return rng.choice(len(candidates), size=count, replace=False)
