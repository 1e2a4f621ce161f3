"""Numeric inputs, and how they are standardised."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Prepare
from fedbn_flower.clients.examples import as_they_are
from fedbn_flower.clients.modules.lazy_torch import torch

from ..core.errors import UserError
from ..core.input_spec import InputSpec
from .dataset import Kind, Rows
from .images.moments import Scale

LARGEST = float(np.finfo(np.float32).max)


class Numeric(Kind):
    """Numeric data: ``x`` float32 (N, ...), ``y`` int64 class numbers (N,) or float32 (N, values), or
    uint8 masks (N, ...).

    Facts: ``predicts`` and ``outputs`` of the `InputSpec`; ``mean`` and ``std`` by feature, if they are not
    to be those of the training set.
    """

    keys: ClassVar = frozenset({"normalize"})

    def spec(self) -> InputSpec:
        return InputSpec(self.train["x"].shape[1:], self.facts["outputs"], self.facts["predicts"])

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        return self.standardised_alike if normalize else as_they_are

    def moments(self) -> dict[str, NDArray]:
        return vars(self._moments)

    @property
    def numbers(self) -> Collection[int]:
        """The features that are standardised."""
        return range(self.train["x"].shape[1])

    @cached_property
    def _moments(self) -> FeatureMoments:
        return FeatureMoments.of(self.train["x"], self.numbers)

    @cached_property
    def standardised_alike(self) -> Standardise:
        """The preparation of all clients with ``normalize``, one object: by all training rows."""
        facts = self.facts
        scale = Scale(facts["mean"], facts["std"]) if "mean" in facts else self._moments.scale()
        return Standardise.by(scale, self.numbers)


@dataclass(frozen=True, eq=False)
class FeatureMoments:
    """Of each feature the number of values, their mean, and the sum of their squared distances from it.

    Features lie along the first axis of an example: a table's columns, channels. Missing values do not count.
    Those of parts add as in Chan, Golub and LeVeque 1979, equation 2.1, without the cancellation that sums of
    squares have.

    Parameters
    ----------
    counts, means, squares : NDArray
        (features,), float64; 0 where there is no value.
    """

    counts: NDArray[np.float64]
    means: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, x: NDArray[np.float32], features: Collection[int]) -> FeatureMoments:
        """Return the moments of these features of x (N, features, ...), NaN where missing."""
        found = np.zeros((3, x.shape[1]))
        for feature in features:
            values = x[:, feature].astype(np.float64).ravel()
            values = values[~np.isnan(values)]
            if len(values):
                mean = values[0] + (values - values[0]).mean()  # exact where all are equal
                found[:, feature] = len(values), mean, np.square(values - mean).sum()
        return cls(*found)

    def __add__(self, other: FeatureMoments) -> FeatureMoments:
        counts = self.counts + other.counts
        share, gap = other.counts / np.maximum(counts, 1), other.means - self.means
        squares = self.squares + other.squares + gap**2 * self.counts * share
        return FeatureMoments(counts, self.means + gap * share, squares)

    def scale(self) -> Scale:
        """Return mean and population standard deviation, rounded to float32.

        Rounded, they do not depend on the parts and their order, but for rare ties. The deviation is 1 where
        all values are equal, and 0 where there is none.
        """
        std = np.sqrt(self.squares / np.maximum(self.counts, 1)).astype(np.float32)
        std[(std == 0) & (self.counts > 0)] = 1
        return Scale(tuple(self.means.astype(np.float32).tolist()), tuple(std.tolist()))

    def by_feature(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return by feature the number of values, their mean and their deviation; 0 without a value."""
        return self.counts, self.means, np.sqrt(self.squares / np.maximum(self.counts, 1))

    @classmethod
    def received(cls, arrays: Mapping[str, NDArray], features: int, most: float = math.inf) -> FeatureMoments:
        """Return the moments that a site sent, of at most ``most`` values a feature.

        Raises
        ------
        ValueError
            When they are not those of numbers, float32, of so many features.
        """
        names = ("counts", "means", "squares")
        if {name: array.shape for name, array in arrays.items()} != dict.fromkeys(names, (features,)):
            raise ValueError(f"expected counts, means and squares of {features} features")
        if any(array.dtype != np.float64 or not np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("expected finite numbers of float64")
        counts, means, squares = (arrays[name] for name in names)
        if (counts > most).any() or (counts % 1 != 0).any():
            raise ValueError(f"{counts.max():.16g} values, not whole numbers in [0, {most:.16g}]")
        within = squares + counts * means**2 <= counts * LARGEST**2 * (1 + 1e-9)
        some = (counts >= 1) & (abs(means) <= LARGEST) & within & (squares >= 0)
        none = (counts == 0) & (means == 0) & (squares == 0)
        if not (some | none).all() or not some.any():
            raise ValueError("no numbers have such moments")
        return cls(counts, means, squares)


@dataclass(frozen=True, eq=False)
class Standardise:
    """Compute ``(x - mean) * scale`` by feature, float32; missing values become 0."""

    mean: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def fit(cls, x: NDArray[np.float32], numbers: Collection[int]) -> Standardise:
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

    @classmethod
    def by(cls, given: Scale, numbers: Collection[int]) -> Standardise:
        """Take mean and deviation of the features ``numbers`` as given; a deviation of 0 makes them 0."""
        mean, scale = np.zeros(len(given.mean)), np.ones(len(given.mean))
        for feature in numbers:
            std = given.std[feature]
            mean[feature], scale[feature] = given.mean[feature], 1 / std if std else 0.0
        return cls(torch.from_numpy(mean), torch.from_numpy(scale))

    def __call__(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        x = columns["x"].double()
        ones = [1] * (x.dim() - 2)
        mean, scale = (values.to(x.device).view(-1, *ones) for values in (self.mean, self.scale))
        return x.sub_(mean).mul_(scale).nan_to_num_(nan=0.0).float(), columns["y"]


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
