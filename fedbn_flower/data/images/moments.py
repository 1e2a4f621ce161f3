"""Mean and deviation of images by channel, from sums that add over the parts of a dataset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CHUNK = 2**23  # values; a float64 copy of the whole training set would be eight times its size
MAX_INTENSITY = 255
TOPS = (255, 65535)
"""The intensity of white in images of 8 and of 16 bits."""


class Scale(NamedTuple):
    """Mean and standard deviation: of intensities in [0, 1] by channel, or of numbers by feature."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Moments:
    """Number of values a channel, and by channel their sum and the sum of their squares.

    Sums of whole numbers below 2**53 are exact in float64, so those of parts add up to the very bits of all.
    Those of 16 bits are so up to 2 million white pixels, or 500 million of 12 bits. So their mean and
    deviation are rounded to float32, after which they do not depend on the parts either, but for rare ties.

    Parameters
    ----------
    count : float
        Values a channel.
    sums, squares : NDArray
        (channels,), float64, of intensities from 0 to ``top``.
    top : int
        The intensity of white, one of `TOPS`.
    """

    count: float
    sums: NDArray[np.float64]
    squares: NDArray[np.float64]
    top: int = MAX_INTENSITY

    @classmethod
    def of(cls, images: NDArray) -> Moments:
        """Return the moments of images (N, channels, ...), uint8 or uint16."""
        axes = (0, *range(2, images.ndim))
        chunks = np.array_split(images, max(1, min(len(images), images.size // CHUNK)))
        sums = sum(chunk.sum(axes, dtype=np.float64) for chunk in chunks)
        squares = sum(np.square(chunk, dtype=np.float64).sum(axes) for chunk in chunks)
        return cls(float(images[:, 0].size), np.asarray(sums), np.asarray(squares), top_of(images))

    def __add__(self, other: Moments) -> Moments:
        top = max(self.top, other.top)
        one, two = self._up_to(top), other._up_to(top)
        return Moments(one.count + two.count, one.sums + two.sums, one.squares + two.squares, top)

    def _up_to(self, top: int) -> Moments:
        """Return the moments of the same images in intensities up to another top."""
        factor = top // self.top
        return Moments(self.count, factor * self.sums, factor**2 * self.squares, top)

    def scale(self) -> Scale:
        """Return mean and population standard deviation; 1 in the place of a deviation of 0."""
        mean, std = self._mean_and_deviation()
        std = np.where(std > 0, std, self.top)
        mean, std = mean / self.top, std / self.top
        if self.top > MAX_INTENSITY:
            mean, std = mean.astype(np.float32), std.astype(np.float32)
        return Scale(tuple(mean.tolist()), tuple(std.tolist()))

    def by_feature(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return by channel the number of values, and mean and deviation of intensities in [0, 1]."""
        mean, std = self._mean_and_deviation()
        return np.full(mean.shape, self.count), mean / self.top, std / self.top

    def _mean_and_deviation(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        mean = self.sums / self.count
        return mean, np.sqrt(np.maximum(self.squares / self.count - mean**2, 0))

    def arrays(self) -> dict[str, NDArray]:
        """Return what a site sends of its images."""
        deep = {"top": np.array([float(self.top)])} if self.top > MAX_INTENSITY else {}
        return {"count": np.array([self.count]), "sums": self.sums, "squares": self.squares, **deep}

    @classmethod
    def received(cls, arrays: Mapping[str, NDArray], channels: int, most: float = math.inf) -> Moments:
        """Return the moments that a site sent, of at most ``most`` values a channel.

        Raises
        ------
        ValueError
            When they are not those of at least one image with so many channels.
        """
        shapes = {"count": (1,), "sums": (channels,), "squares": (channels,)}
        shapes |= {"top": (1,)} if "top" in arrays else {}
        check_arrays(arrays, shapes, f"of {channels} channels")
        count, sums, squares = float(arrays["count"][0]), arrays["sums"], arrays["squares"]
        top = int(arrays["top"][0]) if "top" in arrays else MAX_INTENSITY
        if not 1 <= count <= most or count % 1:
            raise ValueError(f"{count:.16g} values, not a whole number in [1, {most:.16g}]")
        possible = (sums >= 0) & (squares >= sums) & (squares <= top * sums)
        if top not in TOPS or not (possible & (sums**2 <= count * squares * (1 + 1e-9))).all():
            raise ValueError("no images have such sums")
        return cls(count, sums, squares, top)


def check_arrays(arrays: Mapping[str, NDArray], shapes: Mapping[str, tuple[int, ...]], of: str) -> None:
    """Refuse arrays of a site that have other names or shapes, or are not finite numbers of float64.

    Raises
    ------
    ValueError
        When they do; ``of`` ends the message.
    """
    if {name: array.shape for name, array in arrays.items()} != shapes:
        raise ValueError(f"expected {', '.join(shapes)} {of}")
    if any(array.dtype != np.float64 or not np.isfinite(array).all() for array in arrays.values()):
        raise ValueError("expected finite numbers of float64")


def top_of(images: NDArray) -> int:
    """Return the intensity of white in images: 65535 in those of 16 bits, else 255."""
    return TOPS[images.dtype == np.uint16]
