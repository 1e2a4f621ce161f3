"""Numeric inputs that need no preparation."""

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError
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


def finite(where: str, array: NDArray) -> NDArray[np.float32]:
    """Return finite numbers as float32.

    Raises
    ------
    UserError
        When one is not; ``where`` begins the message.
    """
    values = as_float32(array)
    if not np.isfinite(values).all():
        raise UserError(f"{where} holds values that are not finite")
    return values


def as_targets(where: str, array: NDArray, count: int) -> NDArray:
    """Return class numbers, int64 (N,), or numbers, float32 (N, values), of so many examples.

    Whole numbers (N,) are classes. Floats are numbers, and so are several columns of 0 and 1.

    Raises
    ------
    UserError
        For anything else; ``where`` begins the message.
    """
    if _are_labels(array):
        array = array.astype(np.float32)
    if array.shape == (count,) and array.dtype.kind in "biu" and array.min() >= 0:
        return array.astype(np.int64)
    if array.dtype.kind != "f" or array.ndim not in (1, 2) or len(array) != count or not array.size:
        expected = f"{count} class numbers >= 0, or as many rows of floats, or of labels of 0 and 1"
        raise UserError(f"{where} is {array.dtype} {array.shape}; expected {expected}")
    return finite(where, array.reshape(count, -1))


def _are_labels(array: NDArray) -> bool:
    """Return whether an array of truth values or whole numbers is 0 and 1 in several columns."""
    several = array.dtype.kind in "biu" and array.ndim == 2 and array.shape[1] > 1
    return several and bool(np.isin(array, (0, 1)).all())
