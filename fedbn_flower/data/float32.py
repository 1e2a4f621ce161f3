"""What float32 rounds off numbers, kept where it matters.

A feature far from 0, such as Unix seconds, loses its distinct values in float32, whose spacing there is 128.
Standardising it first would have kept them. So ``x`` is stored as float32, and beside it, for such features
alone, the ``rest`` that was rounded off: their sum has 48 bits. Standardising computes with the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NEAR, FAR = 64, 4096
"""Deviations from 0 at which a mean is far from it: the first if values merge, the second always."""
WHOLE = 2**24
"""The number beyond which float32 lacks whole numbers."""
MOST_WHOLE = 2**53
"""The number beyond which float64 does."""
LEAST_LOSS = 0.01
"""The share of the distinct values that merge, from which on it is said."""
SPREAD = 2**19
"""Values that are still apart, from which on nothing is said: as many merge by chance, wherever they lie."""
NOTHING: Mapping[int, NDArray[np.float32]] = {}
NEXT_TO = 1e-4
"""How far a number may be from the whole one that it is meant as."""
MOST_OF_A_BYTE = 255


class Distinct(NamedTuple):
    """How many distinct values a feature has: as given, in float32, and standardised and then in float32."""

    given: int
    rounded: int
    standardised: int

    def loss(self, kept: int) -> str:
        """Return what is to be said if so many are kept; empty if that is as good as all."""
        return f"{kept} of {self.given}" if _is_loss(self.given, kept) else ""


class Feature(NamedTuple):
    """A feature's values, float32, with what was rounded off them if it matters, and what is lost."""

    values: NDArray[np.float32]
    rest: NDArray[np.float32] | None
    distinct: Distinct | None
    """None where float32 keeps as good as all of them."""


class Columns(NamedTuple):
    """The inputs of both splits as columns, ``x`` and perhaps ``rest``, and the facts that belong to them.

    Facts: ``fine``, the features that have a rest, in the order of its second axis; and ``distinct``, those
    that lose values, with their `Distinct`.
    """

    train: dict[str, NDArray]
    test: dict[str, NDArray]
    facts: dict[str, Any]


def as_float32(values: NDArray) -> NDArray[np.float32]:
    """Round to float32, without a copy if they are; values that are too large become infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32, copy=False)


def is_far(mean: float, std: float, deviations: float = FAR) -> bool:
    """Return whether a mean is so many deviations from 0 that float32 is too coarse for the values."""
    return abs(mean) > (deviations * std or WHOLE)


def columns_of(train: NDArray, test: NDArray) -> Columns:
    """Return the inputs (N, features, ...) of both splits, numbers of any type, NaN where missing."""
    columns = Columns({"x": as_float32(train)}, {"x": as_float32(test)}, {})
    if all(_has_all_values(part.dtype) for part in (train, test)):
        return columns
    rests: dict[int, NDArray[np.float32]] = {}
    distinct: dict[int, Distinct] = {}
    for i in range(train.shape[1]):
        found = feature_of(np.concatenate([train[:, i].ravel(), test[:, i].ravel()]))
        if found.distinct:
            distinct[i] = found.distinct
        if found.rest is not None:
            rests[i] = found.rest
    columns.facts.update(facts_of(list(rests), distinct))
    if rests:
        cut = train[:, 0].size
        columns.train["rest"] = np.stack([r[:cut].reshape(train[:, 0].shape) for r in rests.values()], 1)
        columns.test["rest"] = np.stack([r[cut:].reshape(test[:, 0].shape) for r in rests.values()], 1)
    return columns


def facts_of(fine: Sequence[int], distinct: Mapping[int, Distinct]) -> dict[str, Any]:
    """Return the facts of `Columns`, without those that are empty."""
    facts = {"fine": list(fine), "distinct": [[i, *counts] for i, counts in distinct.items()]}
    return {name: value for name, value in facts.items() if value}


def feature_of(values: NDArray) -> Feature:
    """Return the values (N,) of a feature, numbers of any type, NaN where missing."""
    rounded = as_float32(values)
    if _has_all_values(values.dtype) or not values.size:
        return Feature(rounded, None, None)
    wide = np.result_type(values, np.float64)
    if values.dtype.kind in "iu":
        most = max(abs(int(values.min())), abs(int(values.max())))
        if most <= WHOLE:
            return Feature(rounded, None, None)
        wide = np.dtype(np.float64 if most <= MOST_WHOLE else np.longdouble)
    exact = values.astype(wide, copy=False)
    with np.errstate(invalid="ignore"):
        rest = (exact - rounded).astype(np.float32)
    known = np.sort(exact)
    known = known[: np.searchsorted(known, np.inf, "right")]  # NaN is last
    is_inexact, spans = bool((np.abs(rest) > 0).any()), _spans(known)
    if not len(known) or not (is_inexact or spans):
        return Feature(rounded, None, None)
    given, kept = _distinct(known), _distinct(as_float32(known))
    shifted = (known - known[0]).astype(np.float64)
    std, mean = float(shifted.std()), float(known[0]) + float(shifted.mean())
    merges = kept < given
    fine = is_inexact and (is_far(mean, std, NEAR if merges else FAR) or _is_loss(given, kept))
    if not (fine or merges or spans):
        return Feature(rounded, None, None)
    rest = np.nan_to_num(rest, copy=False)
    held = np.sort(rounded.astype(np.float64) + (rest if fine else 0))[: len(known)]
    distinct = Distinct(given, kept, _distinct(as_float32((held - mean) / (std or 1))))
    is_lost = _is_loss(given, kept) or _is_loss(given, distinct.standardised)
    return Feature(rounded, rest if fine else None, distinct if is_lost else None)


def may_lose(columns: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for which features (features, N >= 1) `feature_of` may find anything, after a quick look."""
    known = np.sort(columns, 1)
    rounded = as_float32(known)
    differ = (np.count_nonzero(values[:, 1:] != values[:, :-1], 1) for values in (known, rounded))
    merges = np.greater(*differ)  # each NaN differs from the next in both
    sizes = np.abs(columns)
    most = np.fmax.reduce(sizes, 1, keepdims=True)
    spans = ((sizes > 0) & (sizes * WHOLE < most)).any(1)
    extent = np.fmax.reduce(columns, 1) - known[:, 0]  # at most twice the deviation times the root of N
    far = most[:, 0] * 2 * columns.shape[1] ** 0.5 > FAR * extent
    is_inexact = (np.abs(known - rounded) > 0).any(1)
    found: NDArray[np.bool_] = spans | (is_inexact & (merges | far))
    return found


def with_rest(x: NDArray[np.float32], feature: int, rest: Mapping[int, NDArray]) -> NDArray[np.float64]:
    """Return the values of a feature of x (N, features, ...), flat, with its rest if it has one."""
    values = x[:, feature].astype(np.float64).ravel()
    return values + rest[feature].ravel() if feature in rest else values


def _has_all_values(dtype: np.dtype) -> bool:
    """Return whether float32 has every value of a dtype."""
    return bool(np.can_cast(dtype, np.float32))


def _spans(ordered: NDArray) -> bool:
    """Return whether values span more than float32 can tell apart once standardised."""
    sizes = np.abs(ordered)
    return bool(sizes.max(initial=0) > WHOLE * sizes.min(initial=np.inf, where=sizes > 0))


def _is_loss(given: int, kept: int) -> bool:
    """Return whether more values merge than by chance."""
    return kept < min((1 - LEAST_LOSS) * given, SPREAD)


def _distinct(ordered: NDArray) -> int:
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1])) if len(ordered) else 0


def as_bytes(values: NDArray) -> NDArray[np.uint8] | None:
    """Return numbers, at least one, as the whole ones next to them, 0 to 255; None if any is farther off."""
    if values.dtype == bool:
        return values.astype(np.uint8)
    whole = np.rint(values) if values.dtype.kind == "f" else values
    if not (whole.min() >= 0 and whole.max() <= MOST_OF_A_BYTE):
        return None
    if whole is not values and np.abs(values - whole).max() > NEXT_TO:
        return None
    return whole.astype(np.uint8)
