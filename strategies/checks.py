"""What is checked before it touches the model: arguments, and the replies of clients."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from .npy import decoded

# A child of Flower's logger: printed by every Flower runtime, and silenced along with it.
LOGGER = logging.getLogger("flwr.strategies")

NUM_EXAMPLES = "num-examples"
MAX_WEIGHT = 2.0**53
MAX_LENGTH = 1e18  # L2 norm of an entry; its square still fits float32, with room for a weighted sum

NPY_HEADER_BYTES = 4096


def require(holds: bool, name: str, value: object, allowed: str) -> None:
    """Raise a ``ValueError`` that names the argument, its value and what is allowed, unless it holds.

    A non-finite number is refused whatever ``holds`` says: ``inf > 0`` is true.
    """
    if not holds or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{name}={value!r} is not allowed: expected {allowed}")


class ReplyRefused(Exception):
    """A client's answer cannot be used; the message says why."""


@dataclass(frozen=True)
class TrainReply:
    """A client's answer to a train message, checked."""

    arrays: dict[str, NDArray]
    weight: float
    metrics: MetricRecord


def positive_number(metrics: MetricRecord, key: str, *, whole: bool, cap: float = MAX_WEIGHT) -> float:
    """The number in (0, cap] that an answer reports under ``key``.

    Raises
    ------
    ReplyRefused
        When it is missing, or not such a number; ``whole`` asks for an integer.
    """
    value = metrics.get(key)
    if value is None:
        raise ReplyRefused(f"{key!r} is missing from the metrics")
    if isinstance(value, list) or (whole and type(value) is not int) or not value > 0:  # NaN fails too
        shown = "a list" if isinstance(value, list) else value
        raise ReplyRefused(f"{key!r} is {shown}, not a positive {'whole ' if whole else ''}number")
    if value > cap:
        raise ReplyRefused(f"{key!r} is {value}, above the cap of {cap:.16g}")
    return float(value)


def check_metrics(
    content: RecordDict, weighted_by_key: str | None, max_weight: float = MAX_WEIGHT
) -> tuple[float, MetricRecord]:
    """The weight and the metrics of an answer.

    Raises
    ------
    ReplyRefused
        When there is not exactly one MetricRecord, an integer in it has more than 64 bits, or the weight is
        not a number in (0, max_weight], and a whole one where it counts examples.
    """
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise ReplyRefused(f"expected one MetricRecord, got {len(records)}")
    metrics = records[0]
    for key, value in metrics.items():
        if isinstance(value, int) and value.bit_length() > 63:  # a mean could not be taken in floats
            raise ReplyRefused(f"{key!r} has more than 64 bits")
    if weighted_by_key is None:
        return 1.0, metrics
    whole = weighted_by_key == NUM_EXAMPLES
    return positive_number(metrics, weighted_by_key, whole=whole, cap=max_weight), metrics


@np.errstate(over="ignore", invalid="ignore")
def check_arrays(record: ArrayRecord, expected: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """The entries of an answered model, each of the expected shape and dtype; read-only.

    A floating entry may come in another floating dtype (differential-privacy mods widen) and is cast back.

    Raises
    ------
    ReplyRefused
        When names, shapes or dtypes differ from ``expected``, or an entry cannot be decoded, is not finite,
        or is longer than `MAX_LENGTH`.
    """
    if record.keys() != expected.keys():
        missing, extra = expected.keys() - record.keys(), record.keys() - expected.keys()
        raise ReplyRefused(f"wrong names: missing {sorted(missing)}, unexpected {sorted(extra)}")
    arrays = {}
    for name, reference in expected.items():
        if len(record[name].data) > 8 * reference.size + NPY_HEADER_BYTES:
            raise ReplyRefused(f"{name}: {len(record[name].data)} bytes for shape {reference.shape}")
        try:
            array = decoded(record[name], reference)
        except Exception as error:  # whatever a client may have sent
            raise ReplyRefused(f"{name}: cannot be decoded ({error})") from error
        if not isinstance(array, np.ndarray):  # the bytes of an .npz archive
            raise ReplyRefused(f"{name}: not an array")
        if array.shape != reference.shape:
            raise ReplyRefused(f"{name}: shape {array.shape}, expected {reference.shape}")
        floating = array.dtype.kind == "f" and reference.dtype.kind == "f"
        if array.dtype != reference.dtype and not floating:
            raise ReplyRefused(f"{name}: dtype {array.dtype}, expected {reference.dtype}")
        array = array.astype(reference.dtype, copy=False)
        length = _length(array)
        if not length <= MAX_LENGTH:  # finite and small only if every value is: one pass for both
            found = f"absurdly long (L2 norm {length:.0e})" if np.isfinite(array).all() else "not finite"
            raise ReplyRefused(f"{name}: {found}")
        arrays[name] = array
    return arrays


def _length(array: NDArray) -> float:
    """The L2 norm, computed in the array's own dtype if that is float32 or wider."""
    flat = array.reshape(-1)
    if flat.dtype not in (np.float32, np.float64):
        flat = flat.astype(np.float64)
    return math.sqrt(np.dot(flat, flat))


def check_train_reply(
    content: RecordDict,
    expected: Mapping[str, NDArray],
    arrayrecord_key: str,
    weighted_by_key: str | None,
    max_weight: float = MAX_WEIGHT,
) -> TrainReply:
    """A train answer's model, weight and metrics; the model may stand under any key if it is the only one.

    Raises
    ------
    ReplyRefused
        When any of them cannot be used.
    """
    records = content.array_records
    if arrayrecord_key not in records and len(records) != 1:
        raise ReplyRefused(f"expected an ArrayRecord {arrayrecord_key!r}, got {sorted(records)}")
    record = records[arrayrecord_key] if arrayrecord_key in records else next(iter(records.values()))
    weight, metrics = check_metrics(content, weighted_by_key, max_weight)
    return TrainReply(check_arrays(record, expected), weight, metrics)


def weighted_metrics(records: list[RecordDict], weighting_metric_name: str | None) -> MetricRecord:
    """The weighted mean of every scalar metric over the clients that report it.

    The weight itself (``num-examples``) is left out, as in Flower; lists are too.
    """
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for content in records:
        weight, metrics = check_metrics(content, weighting_metric_name)
        for key, value in metrics.items():
            if key != weighting_metric_name and not isinstance(value, list):
                sums[key] = sums.get(key, 0.0) + weight * value
                weights[key] = weights.get(key, 0.0) + weight
    return MetricRecord({key: total / weights[key] for key, total in sums.items()})
