"""The rows of a table, each client's standardised by itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedbn_flower.clients import Prepare

from ...dataset import Rows
from ...numeric import Numeric


class Table(Numeric):
    """``x`` float32 (N, F): numbers, NaN where one is missing, and categories one-hot; ``y`` class numbers or
    float32 (N, 1).

    Facts: ``predicts`` and ``outputs`` of the `InputSpec`, ``numbers``, those of the F columns that are
    numbers, and ``columns``, the text of that key that says how it was encoded.
    """

    prepares_by_client = True
    keys: ClassVar = frozenset({"columns", "label-column", "predict"})

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        """Standardise by these rows alone: their means and deviations stay with the client."""
        return Standardised.by(self.train["x"][rows], self.facts["numbers"])


@dataclass(frozen=True, eq=False)
class Standardised:
    """A row becomes ``(x - mean) * scale``, float32; 0 where a value is missing."""

    mean: Tensor
    scale: Tensor

    @classmethod
    def by(cls, x: NDArray[np.float32], numbers: list[int]) -> "Standardised":
        """By the mean and the standard deviation (of the population) of the rows ``x``, in float64.

        A number that does not vary is only centred, one of which no row has a value is 0 throughout;
        columns that are not ``numbers`` stay as they are.
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

    def __call__(self, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = columns["x"].double()
        mean, scale = self.mean.to(x.device), self.scale.to(x.device)
        return x.sub_(mean).mul_(scale).nan_to_num_(nan=0.0).float(), columns["y"]
