"""Numbers, used as they are."""

import numpy as np
from numpy.typing import NDArray

from ..core.input_spec import InputSpec
from .dataset import Kind


class Numeric(Kind):
    """``x`` float32 (N, ...), ``y`` class numbers or float32 (N, values); facts: ``predicts`` and ``outputs``
    of the `InputSpec`."""

    def spec(self) -> InputSpec:
        return InputSpec(self.train["x"].shape[1:], self.facts["outputs"], self.facts["predicts"])


def as_float32(values: NDArray) -> NDArray[np.float32]:
    """The nearest float32 values, infinite where they are too large."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
