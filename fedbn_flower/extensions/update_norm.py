"""The length of each round's step."""

import math
from collections.abc import Mapping

import numpy as np

from fedbn_flower.strategies.messages.npy import viewed

from ..records.events import RoundResult, RunInfo
from .base import Extension


class UpdateNorm(Extension):
    """Adds the column ``update-norm``: the L2 norm of the change of all that travels, by round."""

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self.norm = 0.0

    def after_round(self, result: RoundResult) -> None:
        pairs = ((viewed(result.before[name]), viewed(after)) for name, after in result.arrays.items())
        squares = (np.sum(np.subtract(after, before, dtype=np.float64) ** 2) for before, after in pairs)
        self.norm = math.sqrt(sum(map(float, squares)))

    def columns(self) -> Mapping[str, float]:
        return {"update-norm": self.norm}
