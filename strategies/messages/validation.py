"""What is checked of a client's answer before it touches the model."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from ..aggregation.vectors import squared_norm
from .npy import decoded
from .wire import METRICS

# A child of Flower's logger: printed by every Flower runtime, and silenced along with it.
LOGGER = logging.getLogger("flwr.strategies")

Kind = TypeVar("Kind", ArrayRecord, MetricRecord)

MAX_WEIGHT = 2.0**53
MAX_LENGTH = 1e18  # L2 norm of an entry; its square still fits float32, with room for a weighted sum

NPY_HEADER_BYTES = 4096


class ReplyRefused(Exception):
    """A client's answer cannot be used; the message says why.

    ``kind`` names the sort of disagreement (``names``, ``shape``, ``records``, ...) where it is one between
    the apps on the two sides, and is empty where it may be this one client's trouble (a value not finite).
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Answer:
    """A client's answer to a train message, checked.

    ``arrays`` are the model's entries by name, read-only; ``weight`` what weighs them; ``metrics`` the
    MetricRecord that holds the weight; ``content`` the whole answer.
    """

    arrays: Mapping[str, NDArray]
    weight: float
    metrics: MetricRecord
    content: RecordDict


def records_of(content: RecordDict, kind: type[Kind]) -> dict[str, Kind]:
    """The records of one kind by name.

    Flower's ``array_records`` and the like leave the content in a reference cycle: a model that was read
    would stay until the garbage collector comes.
    """
    return {name: record for name, record in content.items() if isinstance(record, kind)}


def positive_number(
    metrics: MetricRecord, key: str, *, whole: bool = False, cap: float = MAX_WEIGHT
) -> float:
    """The number in (0, cap] that an answer reports under ``key``; 8.0 is a whole number too.

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
    """The weight and the metrics of an answer.

    Of several MetricRecords the one that holds the weight counts; the others are the metric function's.

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
        found = f"{len(given)} MetricRecords, of which {len(records)} can be meant"
        raise ReplyRefused(f"expected one MetricRecord with the weight, got {found}", "records")
    (metrics,) = records.values()
    for key, value in metrics.items():
        if isinstance(value, int) and value.bit_length() > 63:  # a mean could not be taken in floats
            raise ReplyRefused(f"{key!r} has more than 64 bits")
    if weighted_by_key is None:
        return 1.0, metrics
    return positive_number(metrics, weighted_by_key, cap=max_weight), metrics


def check_arrays(record: ArrayRecord, expected: Mapping[str, NDArray] | None) -> dict[str, NDArray]:
    """The entries of an answered model, each of the expected shape and dtype; read-only.

    A floating entry may come in another floating dtype (differential-privacy mods widen) and is cast back.
    Values that are not finite, or huge, are fine where they are just what was sent: attention masks.
    Where nothing is ``expected`` any names, shapes, and numeric dtypes will do.

    Raises
    ------
    ReplyRefused
        When names, shapes or dtypes differ from ``expected``, or an entry cannot be decoded, is not finite,
        or is longer than `MAX_LENGTH`.
    """
    if expected is None:
        expected = _as_declared(record)
    else:
        _check_names(record.keys(), expected)
    return {
        name: _check_entry(name, _decoded(name, record[name], reference), reference)
        for name, reference in expected.items()
    }


def check_entries(arrays: Mapping[str, NDArray], expected: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """`check_arrays` of entries that were never encoded.

    Raises
    ------
    ReplyRefused
        As there.
    """
    _check_names(arrays.keys(), expected)
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
    except Exception as error:  # whatever a client may have sent
        raise ReplyRefused(f"{name}: cannot be decoded ({error})") from error
    if not isinstance(array, np.ndarray):  # the bytes of an .npz archive
        raise ReplyRefused(f"{name}: not an array")
    return array


@np.errstate(over="ignore", invalid="ignore")
def _check_entry(name: str, array: NDArray, reference: NDArray) -> NDArray:
    if array.shape != reference.shape:
        raise ReplyRefused(f"{name}: shape {array.shape}, expected {reference.shape}", "shape")
    floating = array.dtype.kind == "f" and reference.dtype.kind == "f"
    if array.dtype != reference.dtype and not floating:
        raise ReplyRefused(f"{name}: dtype {array.dtype}, expected {reference.dtype}", "dtype")
    array = array.astype(reference.dtype, copy=False)
    if not _length(array) <= MAX_LENGTH:  # finite and small only if every value is: one pass for both
        as_sent = (array == reference) | (np.isnan(array) & np.isnan(reference))
        length = _length(np.where(as_sent, 0, array))
        if not length <= MAX_LENGTH:
            found = f"absurdly long (L2 norm {length:.0e})" if np.isfinite(array).all() else "not finite"
            raise ReplyRefused(f"{name}: {found}")
    return array


def _as_declared(record: ArrayRecord) -> dict[str, NDArray]:
    """Zeros of the shapes and dtypes that the record itself gives, as far as its bytes bear them out."""
    zeros = {}
    for name, array in record.items():
        try:
            value = array.numpy()
            if value.dtype.kind not in "fiub":
                raise TypeError(f"dtype {value.dtype}")
        except Exception as error:  # whatever a client may have sent
            raise ReplyRefused(f"{name}: cannot be decoded ({error})") from error
        zeros[name] = np.zeros_like(value)
    return zeros


def _length(array: NDArray) -> float:
    """The L2 norm, computed in the array's own dtype if that is float32 or wider."""
    flat = array.reshape(-1)
    if flat.dtype not in (np.float32, np.float64):
        flat = flat.astype(np.float64)
    return math.sqrt(squared_norm(flat))


def check_train_reply(
    content: RecordDict,
    expected: Mapping[str, NDArray] | None,
    arrayrecord_key: str,
    weighted_by_key: str | None,
    max_weight: float = MAX_WEIGHT,
    arrays: Mapping[str, NDArray] | None = None,
) -> Answer:
    """A train answer; the model may stand under any key if it is the only ArrayRecord.

    ``arrays`` are the model in the place of its record, where it was never encoded.

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


def clipping_factor(
    model: Mapping[str, NDArray],
    reference: Mapping[str, NDArray],
    tensors: Iterable[Sequence[str]],
    bound: float,
) -> float:
    """``min(1, bound / ||x_i - x||)`` over the tensors of these names together.

    McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models" (arXiv 1710.06963),
    FlatClip. An entry that is not finite is as it was sent, and counts nothing. Of a tensor with several
    names, which a liar may answer differently, the longest difference counts.
    """
    squared = sum(max(_squared_distance(model[name], reference[name]) for name in names) for names in tensors)
    return 1.0 if squared <= bound**2 else bound / squared**0.5


@np.errstate(invalid="ignore")
def _squared_distance(array: NDArray, reference: NDArray) -> float:
    difference = np.subtract(array, reference, dtype=np.float64).ravel()
    difference[~np.isfinite(difference)] = 0
    return float(difference @ difference)


@np.errstate(over="ignore", invalid="ignore")
def weighted_metrics(records: list[RecordDict], weighting_metric_name: str | None) -> MetricRecord:
    """The weighted mean of every metric over the clients that report it; lists entry by entry.

    The weight itself (``num-examples``) is left out, as in Flower. A list that is not as long everywhere
    has no mean and is left out too.
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
