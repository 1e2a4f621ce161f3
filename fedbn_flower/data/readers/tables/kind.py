"""Table rows as a kind of data, standardised by each client on its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Prepare
from fedbn_flower.clients.modules.lazy_torch import torch

from ...dataset import Rows
from ...numeric import Numeric


class Table(Numeric):
    """Table rows: ``x`` float32 (N, F), ``y`` int64 class numbers (N,) or float32 (N, 1).

    ``x`` holds numbers, NaN where missing, and one-hot categories. Facts: ``predicts`` and ``outputs`` of the
    `InputSpec`; ``numbers``, the indices of the numeric columns among the F; and ``columns``, the encoding in
    the syntax of that key.
    """

    prepares_by_client = True
    keys: ClassVar = frozenset({"columns", "label-column", "predict"})

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        """Standardise with the statistics of these rows only; the statistics stay with the client."""
        return Standardise.fit(self.train["x"][rows], self.facts["numbers"])


@dataclass(frozen=True, eq=False)
class Standardise:
    """Compute ``(x - mean) * scale``, float32; missing values become 0."""

    mean: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def fit(cls, x: NDArray[np.float32], numbers: list[int]) -> Standardise:
        """Fit mean and population standard deviation of the rows ``x``, in float64.

        A constant column is only centred. A column without any value becomes 0. Columns that are not in
        ``numbers`` are unchanged.
        """
        mean, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
        for column in numbers:
            values = x[:, column].astype(np.float64)
            values = values[~np.isnan(values)]
            if not len(values):
                scale[column] = 0.0
            elif values.min() == values.max():
                mean[column] = values[0]
            else:
                mean[column], scale[column] = values.mean(), 1 / values.std()
        return cls(torch.from_numpy(mean), torch.from_numpy(scale))

    def __call__(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        x = columns["x"].double()
        mean, scale = self.mean.to(x.device), self.scale.to(x.device)
        return x.sub_(mean).mul_(scale).nan_to_num_(nan=0.0).float(), columns["y"]
