"""What the keys ``image-size``, ``spacing`` and ``window`` say, and where the values of an image lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed

KEEP = 0
AUTO = "auto"
SIZES = r"[1-9]\d{0,5}(x[1-9]\d{0,5}){2}"
LENGTH = r"\d+(\.\d+)?"
SPACINGS = f"{LENGTH}(x{LENGTH}){{2}}"
WINDOW = r"auto|-?\d+(\.\d+)?\.\.-?\d+(\.\d+)?"
SIZE_FORMS = "a whole number >= 0, or DEPTHxHEIGHTxWIDTH for volumes"
SPACING_FORMS = "a number of millimetres >= 0, or DEPTHxHEIGHTxWIDTH"
WINDOW_FORMS = "auto, or LOW..HIGH in the file's units, as -1000..400"
FAR = 0.01
"""Millimetres, or parts of a direction, from which on a mask lies elsewhere than its image."""


class Grid(NamedTuple):
    """Where the values of a scan lie.

    Parameters
    ----------
    shape : tuple[int, ...]
        (depth, height, width), or (height, width) of a picture.
    spacing : tuple[float, ...], optional
        Millimetres between the values along these axes, if the file says so.
    affine : NDArray, optional
        4x4, from (width, height, depth) numbers to millimetres to the right, front and top, if it says so.
    """

    shape: tuple[int, ...]
    spacing: tuple[float, ...] | None = None
    affine: NDArray[np.float64] | None = None

    def lies_at(self, other: Grid) -> bool:
        """Return whether another grid is not known to lie elsewhere."""
        if self.affine is None or other.affine is None:
            return True
        return bool(np.allclose(self.affine, other.affine, atol=FAR))


@dataclass(frozen=True)
class Sampling:
    """What the keys ``image-size``, ``spacing`` and ``window`` say.

    Parameters
    ----------
    size : int | str
        Of the result, of each axis or of all. 0 keeps it. Without ``spacing`` a scan is resampled to that
        size, with it cut or padded around its centre.
    spacing : float | str
        Millimetres between values, of each axis or of all. 0 keeps what the file has.
    window : str
        Intensities that become black and white, or ``auto``: the percentiles 0.5 and 99.5 of each scan.

    Raises
    ------
    UserError
        For a window whose ends are not in order.
    """

    size: int | str = KEEP
    spacing: float | str = KEEP
    window: str = AUTO

    def __post_init__(self) -> None:
        if self.window != AUTO:
            low, high = map(float, self.window.split("..", 1))
            if not low < high < math.inf:
                raise not_allowed("window", self.window, f"{WINDOW_FORMS}, LOW less than HIGH")

    @property
    def is_plain(self) -> bool:
        """Whether nothing is said that only a file of a scanner has."""
        return not self.is_resampled and self.window == AUTO

    @property
    def is_resampled(self) -> bool:
        """Whether a spacing is asked for."""
        return bool(_numbers(self.spacing))

    def millimetres(self, axes: int) -> tuple[float, ...]:
        """Return the spacing along each of so many axes; none if the files' are kept."""
        wanted = _numbers(self.spacing)
        return wanted * axes if len(wanted) == 1 else wanted[-axes:]

    def unused(self, why: str) -> UserError:
        """Return the error for data of which a key cannot be used."""
        if self.is_resampled:
            return not_allowed("spacing", self.spacing, f"0: {why}")
        return not_allowed("window", self.window, f"{AUTO!r}: {why}")

    def sizes(self, axes: int) -> tuple[int, ...]:
        """Return the size along each axis; empty to keep it.

        Raises
        ------
        UserError
            For three sizes of a picture.
        """
        sizes = tuple(map(int, _numbers(self.size)))
        if len(sizes) > 1 and axes != len(sizes):
            raise not_allowed(
                "image-size", self.size, "one number of pixels: there are images without a depth"
            )
        return sizes * axes if len(sizes) == 1 else sizes


def _numbers(given: float | str) -> tuple[float, ...]:
    """Return the numbers of ``AxBxC``, or the one; none for 0."""
    found = tuple(float(word) for word in str(given).split("x"))
    return found if any(found) else ()
