"""Encode a model's update as a record of codes, and decode the model from it."""

from collections.abc import Iterable, Mapping

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from ..aggregation.vectors import all_finite
from .codecs import Codec
from .npy import decoded, encoded, encoded_bytes, viewed

Arrays = Mapping[str, NDArray]


def compressed(
    codec: Codec, received: Arrays, trained: Arrays, residual: Arrays, rng: np.random.Generator
) -> tuple[ArrayRecord, dict[str, NDArray], dict[str, NDArray]]:
    """Return the codes of an update, the entries that they decode to, and the residual.

    Parameters
    ----------
    codec : Codec
        It encodes all entries as one vector.
    received, trained : Mapping[str, NDArray]
        The entries before and after training: of the same names, in the order of the message.
    residual : Mapping[str, NDArray]
        The residual e_i of earlier updates; 0 for missing entries.
    rng : np.random.Generator
        The codec's random numbers.
    """
    with np.errstate(invalid="ignore"):  # an entry may have been sent as inf, and have stayed so
        updates = {
            name: np.where(trained[name] == received[name], 0, trained[name] - received[name])
            + residual.get(name, 0)
            for name in trained
        }
    vector = _flat(updates.values())
    codec = codec.of_shapes(update.shape for update in updates.values())
    codes = codec.encode(vector, rng)
    sent = codec.decode(codes, vector.size)
    record = ArrayRecord({name: encoded(array) for name, array in codes.items()})
    return record, _added(received, sent, trained), _by_name(vector - sent, received, trained)


def decompressed(
    codec: Codec, received: Mapping[str, Array], answer: ArrayRecord, codes: ArrayRecord
) -> ArrayRecord:
    """Return the model of an answer in which some entries are encoded.

    Parameters
    ----------
    received : Mapping[str, Array]
        The model that was sent.
    answer : ArrayRecord
        The entries that were sent uncoded. The codes are for all others.
    codes : ArrayRecord
        The codes.

    Raises
    ------
    ValueError
        When the codes do not fit these entries, or decode to values that are not finite.
    """
    others = {name: viewed(array) for name, array in received.items() if name not in answer}
    if not all(array.dtype.kind == "f" for array in others.values()):
        raise ValueError("an entry is missing that is not of floating-point numbers")
    size = sum(array.size for array in others.values())
    codec = codec.of_shapes(array.shape for array in others.values())
    layout = codec.layout(size)
    if codes.keys() != layout.keys():
        raise ValueError(f"has {', '.join(codes) or 'nothing'}, expected {', '.join(layout)}")
    arrays = {}
    for name, (shape, dtype) in layout.items():
        like = np.empty(shape, dtype)
        if len(codes[name].data) != encoded_bytes(like):
            raise ValueError(f"{name}: {len(codes[name].data)} bytes, expected {encoded_bytes(like)}")
        arrays[name] = array = decoded(codes[name], like)
        if (array.shape, array.dtype) != (like.shape, like.dtype):
            raise ValueError(f"{name}: {array.dtype}{array.shape}, expected {like.dtype}{shape}")
        if not all_finite(array):
            raise ValueError(f"{name}: not finite")
    with np.errstate(over="ignore"):
        vector = codec.decode(arrays, size)
    if not np.isfinite(vector).all():
        raise ValueError("not finite")
    added = {name: encoded(array) for name, array in _added(others, vector, others).items()}
    return ArrayRecord({**answer, **added})


def _flat(arrays: Iterable[NDArray]) -> NDArray[np.float32]:
    flat = [np.asarray(array, np.float32).reshape(-1) for array in arrays]
    return np.concatenate(flat) if flat else np.zeros(0, np.float32)


def _by_name(vector: NDArray[np.float32], like: Arrays, names: Iterable[str]) -> dict[str, NDArray]:
    parts, start = {}, 0
    for name in names:
        stop = start + like[name].size
        parts[name] = vector[start:stop].reshape(like[name].shape)
        start = stop
    return parts


def _added(received: Arrays, update: NDArray[np.float32], names: Iterable[str]) -> dict[str, NDArray]:
    parts = _by_name(update, received, names)
    return {name: (received[name] + part).astype(received[name].dtype) for name, part in parts.items()}
