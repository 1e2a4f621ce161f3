"""Bring pictures and volumes of scanners to one spacing and one size, and their intensities to 16 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError, not_allowed

KEEP = 0
AUTO = "auto"
SIZES = r"[1-9]\d{0,5}(x[1-9]\d{0,5}){2}"
LENGTH = r"\d+(\.\d+)?"
SPACINGS = f"{LENGTH}(x{LENGTH}){{2}}"
WINDOW = r"auto|-?\d+(\.\d+)?\.\.-?\d+(\.\d+)?"
SIZE_FORMS = "a whole number >= 0, or DEPTHxHEIGHTxWIDTH for volumes"
SPACING_FORMS = "a number of millimetres >= 0, or DEPTHxHEIGHTxWIDTH"
WINDOW_FORMS = "auto, or LOW..HIGH in the file's units, as -1000..400"
PERCENTILES = 0.5, 99.5
WHITE = 65535
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
        return not _numbers(self.spacing) and self.window == AUTO

    def millimetres(self, axes: int) -> tuple[float, ...]:
        """Return the spacing along each of so many axes; none if the files' are kept."""
        wanted = _numbers(self.spacing)
        return wanted * axes if len(wanted) == 1 else wanted[-axes:]

    def unused(self, why: str) -> UserError:
        """Return the error for data of which a key cannot be used."""
        if _numbers(self.spacing):
            return not_allowed("spacing", self.spacing, f"0: {why}")
        return not_allowed("window", self.window, f"{AUTO!r}: {why}")

    def notes(self, scans: int, spacings: Sequence[tuple[float, ...]]) -> list[tuple[str, str]]:
        """Return what is to be said of the intensities of so many scans, and of their spacings.

        Each with the key that decides it, where it was guessed.
        """
        if self.window == AUTO:
            low, high = PERCENTILES
            own = f"intensities of each of {scans} scans go from its own percentile {low:g} to {high:g}"
            notes = [(own, "window")]
        else:
            notes = [(f"intensities below and above {self.window} are cut off", "")]
        kinds = sorted({tuple(round(length, 2) for length in spacing) for spacing in spacings})
        shown = [f"{'x'.join(f'{length:g}' for length in spacing)} mm" for spacing in kinds]
        if len(kinds) == 1:
            notes.append((f"the scans have values every {shown[0]}", ""))
        elif kinds:
            every = f"from {shown[0]} to {shown[-1]}"
            guessed = "" if _numbers(self.spacing) else "spacing"
            notes.append((f"the scans have {len(kinds)} spacings, {every}", guessed))
        if _numbers(self.spacing):
            notes.append((f"they are resampled to {self.spacing} mm", ""))
        return notes

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

    def resampled_shape(self, grid: Grid, name: str) -> tuple[int, ...]:
        """Return the shape to which values on a grid are resampled, before they are cut or padded.

        Raises
        ------
        UserError
            When a spacing is asked for, and the file ``name`` does not say its own.
        """
        if not _numbers(self.spacing):
            return self.sizes(len(grid.shape)) or grid.shape
        if grid.spacing is None:
            raise not_allowed("spacing", self.spacing, f"0: {name} does not say its spacing")
        lengths = zip(grid.shape, grid.spacing, self.millimetres(len(grid.shape)), strict=True)
        return tuple(max(1, round(size * here / there)) for size, here, there in lengths)

    def final_shape(self, grid: Grid, name: str) -> tuple[int, ...]:
        """Return the shape that values on a grid come to.

        Raises
        ------
        UserError
            See `sizes` and `resampled_shape`.
        """
        return self.sizes(len(grid.shape)) or self.resampled_shape(grid, name)

    def image(self, values: NDArray, grid: Grid, name: str, inverted: bool) -> NDArray[np.uint16]:
        """Return the intensities of an image as 16 bits, resampled linearly, and cut or padded with black.

        Parameters
        ----------
        values : NDArray
            (channels, ...), in the units of the file.
        grid : Grid
            Of each channel.
        name : str
            The file's, for messages.
        inverted : bool
            Whether low values are white, as in MONOCHROME1.
        """
        scaled = np.stack([self._scaled(channel) for channel in values])
        if inverted:
            scaled = 1 - scaled
        shape = self.resampled_shape(grid, name)
        sampled = np.stack([_linear(channel, shape) for channel in scaled])
        whole = np.rint(np.clip(sampled, 0, 1) * WHITE).astype(np.uint16)
        return np.stack([_centred(channel, self.sizes(len(shape)) or shape) for channel in whole])

    def mask(self, values: NDArray[np.uint8], grid: Grid, name: str) -> NDArray[np.uint8]:
        """Return a mask, resampled as its image on this grid: the nearest values, padded with background."""
        shape = self.resampled_shape(grid, name)
        found = values
        for axis, (size, wanted) in enumerate(zip(values.shape, shape, strict=True)):
            nearest = (np.arange(wanted) + 0.5) * size / wanted
            found = np.take(found, nearest.astype(np.int64), axis)
        return _centred(found, self.sizes(len(shape)) or shape)

    def _scaled(self, values: NDArray) -> NDArray[np.float32]:
        """Return the intensities of a channel from 0 to 1."""
        if self.window != AUTO:
            low, high = map(float, self.window.split("..", 1))
        else:
            low, high = np.percentile(values, PERCENTILES).tolist()
            if not high > low:  # nearly all are alike
                low, high = float(values.min()), float(values.max())
        if not high > low:
            return np.zeros(values.shape, np.float32)
        scaled: NDArray[np.float32] = ((values.astype(np.float32) - low) / (high - low)).clip(0, 1)
        return scaled


def _numbers(given: float | str) -> tuple[float, ...]:
    """Return the numbers of ``AxBxC``, or the one; none for 0."""
    found = tuple(float(word) for word in str(given).split("x"))
    return found if any(found) else ()


def _linear(values: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return values at the centres of other voxels, smoothed before where these are larger.

    The width of the Gaussian is that of `skimage.transform.resize`.
    """
    from scipy.ndimage import gaussian_filter, zoom

    if values.shape == shape:
        return values
    factors = [size / wanted for size, wanted in zip(values.shape, shape, strict=True)]
    smooth = gaussian_filter(values, [max(0.0, (factor - 1) / 2) for factor in factors], mode="nearest")
    steps = [1 / factor for factor in factors]
    sampled: NDArray[np.float32] = zoom(smooth, steps, order=1, mode="nearest", grid_mode=True)
    return sampled


def _centred(values: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Return values cut or padded with 0 around their centre."""
    pads, cuts = [], []
    for size, wanted in zip(values.shape, shape, strict=True):
        before = max(0, wanted - size) // 2
        start = max(0, size - wanted) // 2
        pads.append((before, max(0, wanted - size) - before))
        cuts.append(slice(start, start + min(size, wanted)))
    return np.pad(values[tuple(cuts)], pads)
