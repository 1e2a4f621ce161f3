"""Numeric inputs that need no preparation."""

import numpy as np
from numpy.typing import NDArray

from ..core.input_spec import InputSpec
from .dataset import Kind


class Numeric(Kind):
    """Numeric data: ``x`` float32 (N, ...), ``y`` int64 class numbers (N,) or float32 (N, values), or
    uint8 masks (N, ...).

    Facts: ``predicts`` and ``outputs`` of the `InputSpec`.
    """

    def spec(self) -> InputSpec:
        return InputSpec(self.train["x"].shape[1:], self.facts["outputs"], self.facts["predicts"])


def as_float32(values: NDArray) -> NDArray[np.float32]:
    """Round to float32; values that are too large become infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
