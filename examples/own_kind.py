"""A kind of data: laboratory values that each client centres by its median and scales by its quartiles.

Mean and deviation follow outliers, which laboratories have. What is computed of a client's rows stays there.

python run_sim.py --dataset examples/own_kind.py:Laboratory --partition natural:client --num-clients 3
flwr run . --run-config "dataset='examples/own_kind.py:Laboratory' partition='natural:client' num-clients=3"
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

from fedbn_flower.data import Numeric

Part = tuple[np.ndarray, np.ndarray]
UNITS = {"Lyon": 1.0, "Turin": 10.0, "Vienna": 0.1}


@dataclass(frozen=True)
class ByQuartiles:
    """Compute ``(x - median) / (upper - lower quartile)``, float32, by column."""

    median: torch.Tensor
    width: torch.Tensor

    def __call__(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        x = columns["x"]
        return (x - self.median.to(x.device)) / self.width.to(x.device), columns["y"]


class Laboratory(Numeric):
    """Values that each client scales by its own training rows."""

    prepares_by_client = True

    @staticmethod
    def read(split: str) -> dict[str, Part]:
        """Return each site's values, in its units, and classes; every fifth row is held out for ``test``."""
        x, y = load_breast_cancer(return_X_y=True)
        is_test = np.arange(len(x)) % 5 == 4
        found = {}
        for number, (name, unit) in enumerate(UNITS.items()):
            rows = (np.arange(len(x)) % 3 == number) & (is_test == (split == "test"))
            found[name] = x[rows] * unit, y[rows]
        return found

    def prepare(self, rows: np.ndarray, normalize: bool) -> ByQuartiles:
        lower, median, upper = np.quantile(self.train["x"][rows], (0.25, 0.5, 0.75), axis=0)
        width = np.where(upper > lower, upper - lower, 1.0)
        return ByQuartiles(*(torch.tensor(values, dtype=torch.float32) for values in (median, width)))
