"""Bring pictures and volumes of scanners to one spacing and one size, and their intensities to 16 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.errors import not_allowed
from ..data.images.sampling import AUTO, Grid, Sampling

PERCENTILES = 0.5, 99.5
WHITE = 65535


@dataclass(frozen=True)
class Resampling(Sampling):
    """What a run's keys say, done to scans."""

    def resampled_shape(self, grid: Grid, name: str) -> tuple[int, ...]:
        """Return the shape to which values on a grid are resampled, before they are cut or padded.

        Raises
        ------
        UserError
            When a spacing is asked for, and the file ``name`` does not say its own.
        """
        if not self.is_resampled:
            return self.sizes(len(grid.shape)) or grid.shape
        if grid.spacing is None:
            raise not_allowed("spacing", self.spacing, f"0: {name} does not say its spacing")
        lengths = zip(grid.shape, grid.spacing, self.millimetres(len(grid.shape)), strict=True)
        return tuple(max(1, round(size * here / there)) for size, here, there in lengths)

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
