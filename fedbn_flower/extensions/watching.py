"""Extensions that only watch a run: the length of each round's step."""

import math
from collections.abc import Mapping

import numpy as np

from ..records.events import RoundResult, RunInfo
from .base import Extension


class UpdateNorm(Extension):
    """Adds the column ``update-norm``: the L2 norm of the change of all that travels, by round."""

    published_only = True

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self.norm = 0.0

    def after_round(self, result: RoundResult) -> None:
        self.norm = math.sqrt(sum(float(np.sum(change**2)) for change in result.change().values()))

    def columns(self) -> Mapping[str, float]:
        return {"update-norm": self.norm}
