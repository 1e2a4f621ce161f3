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
        self._before: dict[str, np.ndarray] = {}
        self._norm = math.nan

    def after_round(self, result: RoundResult) -> None:
        model = {name: viewed(array).astype(np.float64) for name, array in result.arrays.items()}
        changes = [model[name] - self._before[name] for name in model.keys() & self._before.keys()]
        self._norm = math.sqrt(sum(float(np.sum(change**2)) for change in changes)) if changes else math.nan
        self._before = model

    def columns(self) -> Mapping[str, float]:
        return {} if math.isnan(self._norm) else {"update-norm": self._norm}
