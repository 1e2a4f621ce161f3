"""The model as flat vectors: a server rule is then arithmetic on one array."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.exception import AggregationError
from numpy.typing import NDArray

from ..messages.npy import encoded

Vector = NDArray[np.floating]

BLOCK = 2**17  # entries: large enough that calls cost little, small enough that blocks stay in the cache

BATCH_NORM_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def all_finite(array: NDArray) -> bool:
    """Return whether all elements are finite, in a single pass unless values are very large."""
    return bool(np.isfinite(squared_norm(array.reshape(-1))) or np.isfinite(array).all())


def finite(arrays: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Return the entries of a model, with 0 for values that are not finite."""
    return {
        name: array if all_finite(array) else np.where(np.isfinite(array), array, 0).astype(array.dtype)
        for name, array in arrays.items()
    }


def squared_norm(vector: Vector) -> float:
    """Return the sum of squares in the vector's own dtype.

    It is not finite if an element is not, or on overflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.dot(vector, vector))


def checked_step(step: object, like: Vector, rule: str) -> Vector:
    """Return a rule's step if it is an array of numbers with this shape.

    Raises
    ------
    AggregationError
        If it is not.
    """
    if not isinstance(step, np.ndarray) or step.dtype.kind not in "fiu":  # a bool would count as a number
        got = str(getattr(step, "dtype", type(step).__name__))
    elif step.shape != like.shape:  # a scalar would be broadcast
        got = f"shape {step.shape}"
    else:
        return step
    raise AggregationError(f"{rule}.server_step returned {got}, expected a NumPy array of {like.shape}")


def steppable(arrays: Mapping[str, NDArray]) -> list[str]:
    """Return the names of the entries that a server rule may step, by PyTorch's conventions.

    Integers are counters. An entry whose last name component is a BatchNorm buffer is a statistic. A gradient
    step improves neither, and can make a variance negative.
    """
    return [
        name
        for name, array in arrays.items()
        if np.issubdtype(array.dtype, np.floating) and name.rsplit(".", 1)[-1] not in BATCH_NORM_STATISTICS
    ]


class Layout:
    """The position of each named entry of a model in the flat vectors.

    Parameters
    ----------
    arrays : Mapping[str, NDArray]
        The model: any shapes; floating, integer or boolean dtypes.
    trainable : Collection[str], optional
        Names of the entries that the server rule steps; by default `steppable(arrays)`.
    tied : Collection[Collection[str]]
        Groups of names of the same tensor (tied weights) in the clients' models.

    Raises
    ------
    ValueError
        When a name in ``trainable`` is not an entry of the model, or a dtype is not supported.
    """

    def __init__(
        self,
        arrays: Mapping[str, NDArray],
        trainable: Collection[str] | None = None,
        tied: Collection[Collection[str]] = (),
    ) -> None:
        stepped = set(steppable(arrays) if trainable is None else trainable)
        if unknown := stepped - arrays.keys():
            raise ValueError(f"trainable names entries the model does not have: {sorted(unknown)}")
        for name, array in arrays.items():
            if array.dtype.kind not in "fiub":
                raise ValueError(f"entry {name!r} has the unsupported dtype {array.dtype}")
        self.shapes = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        # Sorted: a rule's stored vectors do not depend on the order of the entries.
        self.parameters = sorted(arrays.keys() & stepped)
        self.statistics = sorted(arrays.keys() - stepped)
        tensor = {name: tuple(sorted(stepped.intersection(names))) for names in tied for name in names}
        self.tensors = list(dict.fromkeys(tensor.get(name, (name,)) for name in self.parameters))
        """The names of each stepped tensor, tied ones together."""
        # Differences of float32 weights are exact enough in float32; a counter needs float64.
        wide = any(arrays[name].dtype.itemsize > 4 for name in self.parameters)
        self.dtypes = (np.dtype(np.float64 if wide else np.float32), np.dtype(np.float64))

    def flatten(self, arrays: Mapping[str, NDArray]) -> tuple[Vector, Vector]:
        """Return the entries of a model as (parameters, statistics), two new flat vectors."""
        return self.flatten_parameters(arrays), _flat(arrays, self.statistics, self.dtypes[1])

    def flatten_parameters(self, arrays: Mapping[str, NDArray]) -> Vector:
        """Return the stepped entries as one new flat vector."""
        return _flat(arrays, self.parameters, self.dtypes[0])

    def parameters_record(self, parameters: Vector) -> ArrayRecord:
        """Return a vector over the stepped parameters as named arrays of their shapes and dtypes."""
        return ArrayRecord(
            {
                name: encoded(self._in_own_dtype(name, entry))
                for name, entry in self.slices(self.parameters, parameters)
            }
        )

    def moved(
        self, names: list[str], reference: Mapping[str, NDArray], differences: Vector, dtype: np.dtype
    ) -> Iterator[tuple[str, NDArray]]:
        """Yield the entries of a model plus their parts of a flat vector, each in its own shape and dtype.

        They are added in ``dtype``; integers are rounded. An integer entry that is unchanged in float64 is
        taken from ``reference``, as it may be a constant above 2^53. Copy an entry to keep it: its buffer may
        be reused for the next one.
        """
        buffer = np.empty(max((reference[name].size for name in names), default=0), dtype)
        for name, part in self.slices(names, differences):
            total = buffer[: part.size].reshape(part.shape)
            np.copyto(total, reference[name])
            total += part
            entry = self._in_own_dtype(name, total)
            constant = entry.dtype.kind != "f" and np.array_equal(entry.astype(float), reference[name])
            yield name, reference[name] if constant else entry

    def _in_own_dtype(self, name: str, values: NDArray) -> NDArray:
        _, dtype = self.shapes[name]
        return np.asarray(values if dtype.kind == "f" else np.rint(values), dtype)

    def tie(self, parameters: Vector) -> None:
        """Give all names of a tensor the values of its first name, in place."""
        parts = dict(self.slices(self.parameters, parameters))
        for first, *others in self.tensors:
            for name in others:
                parts[name][...] = parts[first]

    def slices(self, names: list[str], vector: NDArray) -> Iterator[tuple[str, NDArray]]:
        """Yield the part of each entry of a flat vector, in the entry's shape."""
        start = 0
        for name in names:
            shape, _ = self.shapes[name]
            size = int(np.prod(shape))
            yield name, vector[start : start + size].reshape(shape)
            start += size


def _flat(arrays: Mapping[str, NDArray], names: list[str], dtype: np.dtype) -> Vector:
    parts = [arrays[name].ravel() for name in names]
    return np.concatenate(parts, dtype=dtype) if parts else np.empty(0, dtype)


def blocks(size: int, parts: int = 1) -> Iterator[slice]:
    """Yield slices of a vector for elementwise work, of `BLOCK` entries or a part of that.

    Their intermediate results fit in the cache.
    """
    length = max(1, BLOCK // parts)
    for start in range(0, size, length):
        yield slice(start, min(start + length, size))
