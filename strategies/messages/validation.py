"""Checks of a client's answer before it is used, and the ranges of numbers that a site may send."""

import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedbn_flower.core.ground.wire import METRICS

from .gate import NPY_HEADER_BYTES, ReplyRefused
from .npy import decoded

LARGEST = 3.4028235e38  # the greatest float32: losses are computed in float32


@dataclass(frozen=True)
class Range:
    """Allowed values: a number in [low, high], a list of ``length`` such numbers, or an array of them.

    Infinity is allowed only if it is a bound; NaN never.
    """

    low: float = -LARGEST
    high: float = LARGEST
    whole: bool = False
    length: int | None = None

    def holds(self, value: object) -> bool:
        """Return whether a value is in the range."""
        if self.length is None:
            return self._holds(value)
        return isinstance(value, list) and len(value) == self.length and all(map(self._holds, value))

    def _holds(self, value: object) -> bool:
        if not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        return not self.whole or value % 1 == 0

    def spans(self, array: NDArray) -> bool:
        """Return whether every number of an array is in the range; ignores ``whole`` and ``length``."""
        return not array.size or bool(self.low <= array.min() and array.max() <= self.high)

    def __str__(self) -> str:
        noun = "whole number" if self.whole else "number"
        bounds = f"in [{self.low:.8g}, {self.high:.8g}]"
        return f"a {noun} {bounds}" if self.length is None else f"{self.length} {noun}s {bounds}"


OF_STATISTICS = {"running_var": Range(0.0), "num_batches_tracked": Range(0.0)}
"""Of BatchNorm's buffers, by the last part of their names: clients take the root of a variance, and divide by
a count. Not where what was sent is beyond the range: then it is something else."""


# A child of Flower's logger: printed by every Flower runtime, and silenced along with it.
LOGGER = logging.getLogger("flwr.strategies")

Kind = TypeVar("Kind", ArrayRecord, MetricRecord)
Ranges = Mapping[str, Range]

MAX_WEIGHT = 2.0**53
MAX_LENGTH = 1e18  # L2 norm of an entry; its square still fits float32, with room for a weighted sum


@dataclass(frozen=True)
class Answer:
    """A client's answer to a train message, checked.

    Parameters
    ----------
    arrays : Mapping[str, NDArray]
        The model's entries by name, read-only.
    weight : float
        Weight of the answer in the mean.
    metrics : MetricRecord
        The MetricRecord that has the weight.
    content : RecordDict
        The whole answer.
    """

    arrays: Mapping[str, NDArray]
    weight: float
    metrics: MetricRecord
    content: RecordDict


def records_of(content: RecordDict, kind: type[Kind]) -> dict[str, Kind]:
    """Return the records of one kind by name.

    Flower's ``array_records`` and the like create a reference cycle, so a model would stay in memory until
    the garbage collector runs.
    """
    return {name: record for name, record in content.items() if isinstance(record, kind)}


def positive_number(
    metrics: MetricRecord, key: str, *, whole: bool = False, cap: float = MAX_WEIGHT
) -> float:
    """Return the number in (0, cap] that an answer reports under ``key``. 8.0 counts as a whole number.

    Raises
    ------
    ReplyRefused
        When it is missing, or not such a number.
    """
    value = metrics.get(key)
    if value is None:
        raise ReplyRefused(f"{key!r} is missing from the metrics", f"no {key}")
    if isinstance(value, list):
        raise ReplyRefused(f"{key!r} is a list, not a positive number", f"list of {key}")
    if not value > 0 or (whole and value % 1 != 0):  # NaN fails too; inf % 1 is NaN
        noun = "whole number" if whole else "number"
        raise ReplyRefused(f"{key!r} is {value}, not a positive {noun}", f"not a positive {key}")
    if value > cap:
        raise ReplyRefused(f"{key!r} is {value}, above the cap of {cap:.16g}", f"capped {key}")
    return float(value)


def check_metrics(
    content: RecordDict, weighted_by_key: str | None, max_weight: float = MAX_WEIGHT
) -> tuple[float, MetricRecord]:
    """Return the weight and the metrics of an answer.

    Of several MetricRecords, the one with the weight is used; the metric function gets them all.

    Raises
    ------
    ReplyRefused
        When there is no such MetricRecord, or more than one, an integer in it has more than 64 bits, or the
        weight is not a number in (0, max_weight].
    """
    records = given = records_of(content, MetricRecord)
    if len(records) > 1:
        key = weighted_by_key
        records = {name: r for name, r in records.items() if (key in r if key else name == METRICS)}
    if len(records) != 1:
        found = f"{len(given)} MetricRecords, {len(records)} of which qualify"
        raise ReplyRefused(f"expected one MetricRecord with the weight, got {found}", "records")
    (metrics,) = records.values()
    for key, value in metrics.items():
        if isinstance(value, int) and value.bit_length() > 63:  # too large to convert to float for a mean
            raise ReplyRefused(f"{key!r} has more than 64 bits")
    if weighted_by_key is None:
        return 1.0, metrics
    return positive_number(metrics, weighted_by_key, cap=max_weight), metrics


def check_arrays(
    record: ArrayRecord, expected: Mapping[str, NDArray] | None, ranges: Ranges = MappingProxyType({})
) -> dict[str, NDArray]:
    """Decode a model and check each entry's shape and dtype. The entries are read-only.

    A floating entry may have another floating dtype, as from differential-privacy mods; it is cast back.
    Values that are not finite, or very large, are allowed if they equal the value sent: attention masks.
    With ``expected=None`` any names, shapes and numeric dtypes are allowed. ``ranges``, by name, are for
    entries of which a root, a logarithm or a quotient is taken; BatchNorm statistics have built-in ranges.

    Raises
    ------
    ReplyRefused
        When names, shapes or dtypes differ from ``expected``, or an entry cannot be decoded, is not finite,
        is longer than `MAX_LENGTH`, or beyond its range.
    """
    if expected is None:
        expected = _zeros_like(record)
    else:
        _check_names(record.keys(), expected)
    with np.errstate(over="ignore", invalid="ignore"):  # once: it takes as long as a short entry
        return {
            name: _check_entry(name, _decoded(name, record[name], reference), reference, ranges)
            for name, reference in expected.items()
        }


def check_entries(arrays: Mapping[str, NDArray], expected: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Check entries that were never encoded, as `check_arrays` does.

    Raises
    ------
    ReplyRefused
        As `check_arrays`.
    """
    _check_names(arrays.keys(), expected)
    with np.errstate(over="ignore", invalid="ignore"):
        return {name: _check_entry(name, arrays[name], reference) for name, reference in expected.items()}


def _check_names(names: Set[str], expected: Mapping[str, NDArray]) -> None:
    if names != expected.keys():
        missing, extra = expected.keys() - names, names - expected.keys()
        raise ReplyRefused(f"wrong names: missing {sorted(missing)}, unexpected {sorted(extra)}", "names")


def _decoded(name: str, entry: Array, reference: NDArray) -> NDArray:
    if len(entry.data) > 8 * reference.size + NPY_HEADER_BYTES:
        raise ReplyRefused(f"{name}: {len(entry.data)} bytes for shape {reference.shape}")
    try:
        array = decoded(entry, reference)
    except Exception as error:  # a client may send anything
        raise ReplyRefused(f"{name}: cannot be decoded ({error})") from error
    if not isinstance(array, np.ndarray):  # the bytes of an .npz archive
        raise ReplyRefused(f"{name}: not an array")
    return array


def _check_entry(
    name: str, array: NDArray, reference: NDArray, ranges: Ranges = MappingProxyType({})
) -> NDArray:
    if array.shape != reference.shape:
        raise ReplyRefused(f"{name}: shape {array.shape}, expected {reference.shape}", "shape")
    floating = array.dtype.kind == "f" and reference.dtype.kind == "f"
    if array.dtype != reference.dtype and not floating:
        raise ReplyRefused(f"{name}: dtype {array.dtype}, expected {reference.dtype}", "dtype")
    if array.dtype != reference.dtype:
        array = array.astype(reference.dtype)
    if not _length(array) <= MAX_LENGTH:  # finite and small only if every value is: one pass for both
        as_sent = (array == reference) | (np.isnan(array) & np.isnan(reference))
        length = _length(np.where(as_sent, 0, array))
        if not length <= MAX_LENGTH:
            found = f"too large (L2 norm {length:.0e})" if np.isfinite(array).all() else "not finite"
            raise ReplyRefused(f"{name}: {found}")
    within = ranges.get(name) or OF_STATISTICS.get(re.split("[.:]", name)[-1])
    if within and not within.spans(array) and (name in ranges or within.spans(reference)):
        raise ReplyRefused(f"{name}: from {array.min():.6g} to {array.max():.6g}, not {within}")
    return array


def _zeros_like(record: ArrayRecord) -> dict[str, NDArray]:
    """Return zeros of the record's shapes and dtypes, checked by decoding it."""
    zeros = {}
    for name, array in record.items():
        try:
            value = array.numpy()
            if value.dtype.kind not in "fiub":
                raise TypeError(f"dtype {value.dtype}")
        except Exception as error:  # a client may send anything
            raise ReplyRefused(f"{name}: cannot be decoded ({error})") from error
        zeros[name] = np.zeros_like(value)
    return zeros


def _length(array: NDArray) -> float:
    """Return the L2 norm, computed in the array's dtype if that is float32 or float64, else in float64."""
    flat = array.reshape(-1)
    if flat.dtype not in (np.float32, np.float64):
        flat = flat.astype(np.float64)
    return math.sqrt(np.dot(flat, flat))


def check_train_reply(
    content: RecordDict,
    expected: Mapping[str, NDArray] | None,
    arrayrecord_key: str,
    weighted_by_key: str | None,
    max_weight: float,
    arrays: Mapping[str, NDArray] | None,
) -> Answer:
    """Check a train answer. The model may have any key if it is the only ArrayRecord.

    ``arrays`` replaces the model's record if the model was never encoded.

    Raises
    ------
    ReplyRefused
        When any part of it cannot be used.
    """
    if arrays is not None and expected is not None:
        weight, metrics = check_metrics(content, weighted_by_key, max_weight)
        return Answer(check_entries(arrays, expected), weight, metrics, content)
    records = records_of(content, ArrayRecord)
    if arrayrecord_key not in records and len(records) != 1:
        raise ReplyRefused(f"expected an ArrayRecord {arrayrecord_key!r}, got {sorted(records)}", "records")
    record = records[arrayrecord_key] if arrayrecord_key in records else next(iter(records.values()))
    weight, metrics = check_metrics(content, weighted_by_key, max_weight)
    return Answer(check_arrays(record, expected), weight, metrics, content)


def update_norm(
    model: Mapping[str, NDArray], reference: Mapping[str, NDArray], tensors: Iterable[Sequence[str]]
) -> float:
    """Return ``||x_i - x||``, the L2 norm over all these tensors together.

    Differences that are not finite count as 0: such values equal those sent. Of a tensor with several names,
    the largest difference counts: a malicious client may answer them differently.
    """
    squared = sum(max(_squared_distance(model[name], reference[name]) for name in names) for names in tensors)
    return math.sqrt(squared)


def clipping_factor(norm: float, bound: float) -> float:
    """Return ``min(1, bound / norm)``.

    McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models" (arXiv 1710.06963),
    FlatClip.
    """
    return 1.0 if norm <= bound else bound / norm


@np.errstate(invalid="ignore")
def _squared_distance(array: NDArray, reference: NDArray) -> float:
    difference = np.subtract(array, reference, dtype=np.float64).ravel()
    difference[~np.isfinite(difference)] = 0
    return float(difference @ difference)


@np.errstate(over="ignore", invalid="ignore")
def weighted_metrics(records: list[RecordDict], weighting_metric_name: str | None) -> MetricRecord:
    """Return the weighted mean of every metric over the clients that report it; lists entry by entry.

    The weight itself (``num-examples``) is left out, as in Flower. So are lists whose length differs between
    clients.
    """
    sums: dict[str, NDArray] = {}
    weights: dict[str, float] = {}
    uneven: set[str] = set()
    for content in records:
        weight, metrics = check_metrics(content, weighting_metric_name)
        for key, value in metrics.items():
            if key == weighting_metric_name:
                continue
            term = weight * np.asarray(value, dtype=np.float64)
            if key not in sums:
                sums[key], weights[key] = term, weight
            elif sums[key].shape == term.shape:
                sums[key], weights[key] = sums[key] + term, weights[key] + weight
            else:
                uneven.add(key)
    return MetricRecord({k: (s / weights[k]).tolist() for k, s in sums.items() if k not in uneven})
