"""The candidates whose loss is greatest."""

import numpy as np

from .base import Candidates, Positions, Selection
from .by_size import drawn_by_size


class PowerOfChoice(Selection):
    """Ask D candidates, drawn by size, for their loss; those with the greatest train (Cho et al. 2022).

    Algorithm 1 of arXiv 2010.01243, which calls it pow-d. With D at most the number of clients that train, it
    is `by-size`.
    """

    helps = ("few-rounds",)
    paper = "cho2022power"

    def __init__(self, argument: str = "") -> None:
        if not (argument.isdecimal() and int(argument) >= 1):
            raise ValueError("power-of-choice:D, with D >= 1 candidates")
        self.candidates = int(argument)

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        drawn = drawn_by_size(candidates.sizes, max(count, self.candidates), rng)
        if len(drawn) <= count:
            return drawn
        losses = np.nan_to_num(candidates.losses(drawn), nan=-np.inf, posinf=np.inf)
        return drawn[np.argsort(-losses, kind="stable")[:count]]
