"""Numeric inputs and tables, and how they are standardised."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Columns, Prepare
from fedbn_flower.clients.examples import as_they_are
from fedbn_flower.clients.modules.lazy_torch import torch

from ..core.errors import UserError
from ..core.input_spec import InputSpec
from ..core.notes import Note, Row
from ..core.text import listed
from .dataset import KEYS_OF_TEXTS, Kind, Rows
from .float32 import NOTHING, WHOLE, Distinct, as_float32, feature_of, is_far, with_rest
from .images.moments import Scale, check_arrays
from .labels import MAX_CLASSES, are_classes

PICTURES = 4
"""Axes of pictures, with that of the examples."""
LEAST_LEVEL, LEVELS = 100.0, 255.0
"""What the highest level of pictures of 8 bits is above, and the most that it is."""
LARGEST = float(np.finfo(np.float32).max)
MAX_SHOWN = 5


class Numeric(Kind):
    """Numeric data: ``x`` float32 (N, ...), ``y`` int64 class numbers (N,) or float32 (N, values), or
    uint8 masks (N, ...).

    Facts: ``predicts`` and ``outputs`` of the `InputSpec`; ``mean`` and ``std`` by feature, if they are not
    to be those of the training set; and those of `float32.Columns`, with its column ``rest``.
    """

    keys: ClassVar = frozenset({"normalize"})

    def spec(self) -> InputSpec:
        return InputSpec(self.train["x"].shape[1:], self.facts["outputs"], self.facts["predicts"])

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        return self.standardised_alike if normalize else as_they_are

    def not_integers(self, train: Columns, test: Columns) -> str:
        for x in (train["x"], test["x"]):
            odd = x[~(x == np.floor(x))]
            if len(odd):
                return "the inputs have missing values" if np.isnan(odd[0]) else f"the inputs hold {odd[0]:g}"
            if len(x) and (most := np.abs(x).max()) > WHOLE:
                return f"the inputs hold {most:.0f}, and float32 lacks whole numbers above {WHOLE}"
        return ""

    def prepare_integers(self, rows: Rows) -> Prepare:
        return as_integers

    def notes(self, normalize: bool) -> tuple[Note, ...]:
        """Return a note on the values that float32 merges, of inputs as `prepare` makes them."""
        found = ((f"x[:, {i}]", Distinct(*counts)) for i, *counts in self.facts.get("distinct", ()))
        return lost_values(found, as_they_are=not normalize)

    @property
    def fine(self) -> tuple[int, ...]:
        """The features whose values are those of ``x`` and its ``rest`` together."""
        return tuple(self.facts.get("fine", ()))

    def rest(self, rows: Rows | slice = slice(None)) -> Mapping[int, NDArray[np.float32]]:
        """Return by feature what float32 rounded off these training rows, where that is kept."""
        if not self.fine:
            return NOTHING
        return {feature: self.train["rest"][rows, i] for i, feature in enumerate(self.fine)}

    def moments(self) -> dict[str, NDArray]:
        return vars(self._moments)

    @property
    def numbers(self) -> Collection[int]:
        """The features that are standardised."""
        return range(self.train["x"].shape[1])

    @cached_property
    def _moments(self) -> FeatureMoments:
        return FeatureMoments.of(self.train["x"], self.numbers, self.rest())

    @cached_property
    def scale(self) -> Scale:
        facts = self.facts
        return Scale(facts["mean"], facts["std"]) if "mean" in facts else self._moments.scale()

    @cached_property
    def standardised_alike(self) -> Standardise:
        """The preparation of all clients with ``normalize``, one object: by all training rows."""
        return Standardise.by(self.scale, self.numbers, self.fine)


def as_integers(columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs as int64, and the targets."""
    return columns["x"].long(), columns["y"]


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
    def of(
        cls,
        x: NDArray[np.float32],
        features: Collection[int],
        rest: Mapping[int, NDArray[np.float32]] = NOTHING,
    ) -> FeatureMoments:
        """Return the moments of these features of x (N, features, ...), NaN where missing.

        ``rest`` is added to its features, see `float32`.
        """
        found = np.zeros((3, x.shape[1]))
        for feature, values in _present(x, features, rest):
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

        Rounded, they do not depend on the parts and their order, but for rare ties. A mean that is far from
        0 is rounded to a fraction of its deviation, 2**-24, since float32 is too coarse there. The deviation
        is 1 where all values are equal, whose mean is exact, and 0 where there is none.
        """
        std = np.sqrt(self.squares / np.maximum(self.counts, 1)).astype(np.float32)
        mean = self.means.astype(np.float32).astype(np.float64)
        for i in np.flatnonzero(self.means != mean).tolist():
            if is_far(self.means[i], float(std[i])):
                step = 2.0 ** (np.floor(np.log2(std[i])) - 24) if std[i] else 0
                mean[i] = np.rint(self.means[i] / step) * step if step else self.means[i]
        std[(std == 0) & (self.counts > 0)] = 1
        return Scale(tuple(mean.tolist()), tuple(std.tolist()))

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
        check_arrays(arrays, dict.fromkeys(names, (features,)), f"of {features} features")
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
    """Compute ``(x - mean) * scale`` by feature in float64, then round to float32; missing values become 0.

    The features ``fine`` of x are first added the column ``rest``, see `float32`.
    """

    mean: torch.Tensor
    scale: torch.Tensor
    fine: tuple[int, ...] = ()

    @classmethod
    def fit(
        cls,
        x: NDArray[np.float32],
        numbers: Collection[int],
        rest: Mapping[int, NDArray[np.float32]] = NOTHING,
    ) -> Standardise:
        """Fit mean and population standard deviation of the rows ``x``, with their ``rest``, in float64.

        A constant column is only centred. A column without any value becomes 0. Columns that are not in
        ``numbers`` are unchanged.
        """
        mean, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
        for column, values in _present(x, numbers, rest):
            if not len(values):
                scale[column] = 0.0
            elif values.min() == values.max():
                mean[column] = values[0]
            else:
                mean[column], scale[column] = values.mean(), 1 / values.std()
        return cls(torch.from_numpy(mean), torch.from_numpy(scale), tuple(rest))

    @classmethod
    def by(cls, given: Scale, numbers: Collection[int], fine: tuple[int, ...] = ()) -> Standardise:
        """Take mean and deviation of the features ``numbers`` as given; a deviation of 0 makes them 0."""
        mean, scale = np.zeros(len(given.mean)), np.ones(len(given.mean))
        for feature in numbers:
            std = given.std[feature]
            mean[feature], scale[feature] = given.mean[feature], 1 / std if std else 0.0
        return cls(torch.from_numpy(mean), torch.from_numpy(scale), fine)

    def __call__(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        x = columns["x"].double()
        if self.fine:
            x[:, self.fine] += columns["rest"]
        ones = [1] * (x.dim() - 2)
        mean, scale = (values.to(x.device).view(-1, *ones) for values in (self.mean, self.scale))
        return x.sub_(mean).mul_(scale).nan_to_num_(nan=0.0).float(), columns["y"]


def _present(
    x: NDArray[np.float32], features: Collection[int], rest: Mapping[int, NDArray[np.float32]]
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield the values of each of these features that are there, with their ``rest``."""
    for feature in features:
        values = with_rest(x, feature, rest)
        yield feature, values[~np.isnan(values)]


def lost_values(features: Iterable[tuple[str, Distinct]], as_they_are: bool = False) -> tuple[Note, ...]:
    """Return a note on the features, by name, of which float32 merges distinct values.

    They are standardised before they become float32, unless a model gets them ``as_they_are``.
    """
    found = list(features)
    if not as_they_are:
        lost = _losses((name, counts, counts.standardised) for name, counts in found)
        return _note("inputs", "distinct values that float32 keeps apart once standardised", lost)
    lost = _losses((name, counts, counts.rounded) for name, counts in found)
    gains = any(counts.standardised > counts.rounded for _, counts in found)
    advice = "; normalize=true keeps more, since it subtracts the mean first" if gains else ""
    return _note("inputs", "distinct values that float32 keeps apart", lost, advice)


def lost_targets(targets: Iterable[tuple[str, NDArray]]) -> tuple[Note, ...]:
    """Return a note on the numbers to predict, by name, of which float32 merges distinct values."""
    counts = ((name, feature_of(values).distinct) for name, values in targets)
    lost = _losses((name, found, found.rounded) for name, found in counts if found)
    return _note("target", "distinct values that float32 keeps apart", lost, "; subtract a constant first")


def _losses(features: Iterable[tuple[str, Distinct, int]]) -> list[str]:
    return [f"{name} {loss}" for name, counts, kept in features if (loss := counts.loss(kept))]


def _note(row: Row, text: str, lost: Sequence[str], advice: str = "") -> tuple[Note, ...]:
    return (Note(row, f"{text}: {listed(lost, MAX_SHOWN)}{advice}"),) if lost else ()


def as_numbers(where: str, array: NDArray) -> NDArray:
    """Return finite numbers as float32; as they are if float32 does not have every value of their dtype.

    Raises
    ------
    UserError
        When one is not finite, or too large for float32; ``where`` begins the message.
    """
    values = finite(where, array)
    return values if np.can_cast(array.dtype, np.float32) else array


def finite(where: str, array: NDArray) -> NDArray[np.float32]:
    """Return finite numbers as float32.

    Raises
    ------
    UserError
        When one is not; ``where`` begins the message.
    """
    values = as_float32(array)
    if not (kept := np.isfinite(values)).all():
        odd = array[~kept]
        kinds = {"NaN": np.isnan(odd), "infinite": np.isinf(odd), "too large for float32": np.isfinite(odd)}
        counts = {kind: np.count_nonzero(some) for kind, some in kinds.items()}
        found = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        where_first = f"the first in row {np.flatnonzero(~kept)[0] // kept[0].size}"
        advice = "fill them in, or leave these examples out"
        raise UserError(f"{where} holds values that are not finite ({found}; {where_first}): {advice}")
    return values


def as_targets(where: str, array: NDArray, count: int) -> NDArray:
    """Return class numbers, int64 (N,), or numbers, float32 (N, values), of so many examples.

    Whole numbers (N,) are classes. Floats are numbers, unless `floats_as_classes` says otherwise, and so are
    several columns of 0 and 1.

    Raises
    ------
    UserError
        For anything else; ``where`` begins the message.
    """
    if array.dtype.kind in "biu" and are_labels(array):
        array = array.astype(np.float32)
    if array.shape == (count,) and array.dtype.kind in "biu" and array.min() >= 0:
        return array.astype(np.int64)
    if array.dtype.kind != "f" or array.ndim not in (1, 2) or len(array) != count or not array.size:
        expected = f"{count} class numbers >= 0, or as many rows of floats, or of labels of 0 and 1"
        raise UserError(f"{where} is {array.dtype} {array.shape}; expected {expected}")
    return finite(where, array.reshape(count, -1))


def refuse_words(where: str, array: NDArray, words: Iterable[str]) -> None:
    """Refuse targets that are words, of those that occur in any array.

    Raises
    ------
    UserError
        Says how to number them; ``where`` begins the message.
    """
    if array.dtype.kind in "UO" and array.ndim == 1 and all(isinstance(one, str) for one in array):
        classes = sorted({str(word) for word in words})
        shown = repr(classes) if len(classes) <= MAX_SHOWN else "classes"
        said = "" if len(classes) <= MAX_SHOWN else ", with classes = sorted(set(y)) of all of them,"
        number = f"np.searchsorted({shown}, y){said} numbers the words"
        found = f"{where} is {array.dtype} {array.shape}"
        raise UserError(f"{found}; expected {len(array)} class numbers >= 0: {number}")


def floats_as_classes(
    targets: Sequence[NDArray], given: Sequence[NDArray], predict: str, of_site: bool = False
) -> tuple[list[NDArray], tuple[str, ...], list[Note]]:
    """Return the targets of all splits, the names of classes numbered here, and notes.

    Floats (N, 1) are classes where a table's would be: where ``predict`` says so, and with ``auto`` if
    `are_classes` does. They keep their numbers, as whole numbers do, if these are small; those of a site
    always. ``given`` are the targets before they were rounded to float32, which makes whole numbers of large
    fractions.

    Raises
    ------
    UserError
        When they are to be classes and are not whole, or those of a site negative.
    """
    found = list(targets)
    if predict == "numbers" or any(y.dtype.kind != "f" or y.shape[1:] != (1,) for y in found):
        return found, (), []
    every = np.concatenate([np.ravel(y) for y in given])
    present = np.unique(every)
    if (present != np.floor(present)).any() or (predict not in ("auto", "classes")):
        return found, (), []
    classes = predict == "classes" or are_classes(every)
    notes = []
    if predict == "auto":
        read, other = ("classes", "regression") if classes else ("numbers", "classification")
        text = f"the targets are {len(present)} distinct whole numbers as floats, read as {read}"
        notes.append(Note("target", text, f"problem {other}"))
    if not classes:
        return found, (), notes
    if present[0] >= 0 and (of_site or present[-1] < max(MAX_CLASSES, len(present))):
        return [y[:, 0].astype(np.int64) for y in found], (), notes
    if of_site:
        raise UserError(f"data-path: the class {present[0]:g} is negative; expected class numbers >= 0")
    names = tuple(str(int(value)) for value in present)
    notes.append(Note("target", f"the classes {', '.join(names)} are numbered from 0"))
    return [np.searchsorted(present, y[:, 0]).astype(np.int64) for y in found], names, notes


def are_labels(array: NDArray) -> bool:
    """Return whether an array has several columns, and only 0 and 1 in them."""
    return array.ndim == 2 and array.shape[1] > 1 and bool(((array == 0) | (array == 1)).all())


class Table(Numeric):
    """Table rows: ``x`` float32 (N, F), ``y`` int64 class numbers (N,) or float32 (N, 1).

    ``x`` holds numbers, NaN where missing, and one-hot categories. Facts: those of `Numeric`; ``numbers``,
    the indices of the numeric columns among the F; and ``columns``, in order the ``name`` of each column and
    its ``values``, of which a number has none.
    """

    prepares_by_client = True
    keys: ClassVar = frozenset(
        {"columns", "label-column", "missing-values", "predict", *KEYS_OF_TEXTS, *Numeric.keys}
    )

    @property
    def numbers(self) -> Collection[int]:
        numbers: list[int] = self.facts["numbers"]
        return numbers

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        """Standardise with the statistics of these rows only, which stay with the client.

        With ``normalize``, by all training rows.
        """
        if normalize:
            return self.standardised_alike
        return Standardise.fit(self.train["x"][rows], self.numbers, self.rest(rows))

    not_integers, prepare_integers = Numeric.not_integers, Numeric.prepare_integers
    """A model that takes whole numbers gets them as they are, not standardised."""

    def notes(self, normalize: bool) -> tuple[Note, ...]:
        """Return none: a table is always standardised, so that its reader knows what is lost."""
        return ()
