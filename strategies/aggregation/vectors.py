"""The model as flat vectors: a server rule is then arithmetic on one array."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from ..messages.npy import encoded

Vector = NDArray[np.floating]

BLOCK = 2**16  # entries; a few float32 blocks fit in a core's cache
SMALL = 6e4  # below the maximum of every floating dtype: float16 ends at 65504

BATCH_NORM_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def squared_norm(vector: Vector) -> float:
    """Return the sum of squares in the vector's own dtype.

    It is not finite if an element is not, or on overflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.dot(vector, vector))


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
            {name: encoded(entry) for name, entry in self._entries(self.parameters, parameters)}
        )

    def unflatten(
        self, parameters: Vector, statistics: Vector, sent: Mapping[str, NDArray] | None = None
    ) -> ArrayRecord:
        """Return the model with every entry in its original order, shape and dtype; integers are rounded.

        An integer entry that equals ``sent`` in float64 is copied from ``sent``: it may be a constant above
        2^53.
        """
        entries = {
            **dict(self._entries(self.parameters, parameters)),
            **dict(self._entries(self.statistics, statistics)),
        }
        for name, (_, dtype) in self.shapes.items():
            if sent and dtype.kind != "f" and np.array_equal(entries[name].astype(float), sent[name]):
                entries[name] = sent[name]
        return ArrayRecord({name: encoded(entries[name]) for name in self.shapes})

    def not_finite(self, parameters: Vector, ignored: NDArray[np.bool_] | None = None) -> str:
        """Return the name of the first stepped entry with a NaN or an infinity in its dtype; "" if none.

        Elements for which the mask ``ignored`` is true are skipped.
        """
        if squared_norm(parameters) < SMALL**2:
            return ""
        mask = np.zeros(parameters.shape, bool) if ignored is None else ignored
        masks = self._slices(self.parameters, mask)
        for (name, values), (_, ignore) in zip(
            self._entries(self.parameters, parameters), masks, strict=True
        ):
            if not (np.isfinite(values) | ignore).all():
                return name
        return ""

    def _slices(self, names: list[str], vector: NDArray) -> Iterator[tuple[str, NDArray]]:
        """Yield each entry's part of a flat vector, in the entry's shape."""
        start = 0
        for name in names:
            shape, _ = self.shapes[name]
            size = int(np.prod(shape))
            yield name, vector[start : start + size].reshape(shape)
            start += size

    def _entries(self, names: list[str], vector: Vector) -> Iterator[tuple[str, NDArray]]:
        for name, values in self._slices(names, vector):
            _, dtype = self.shapes[name]
            yield name, np.asarray(values if dtype.kind == "f" else np.rint(values), dtype)


def _flat(arrays: Mapping[str, NDArray], names: list[str], dtype: np.dtype) -> Vector:
    parts = [arrays[name].ravel() for name in names]
    return np.concatenate(parts, dtype=dtype) if parts else np.empty(0, dtype)


def blocks(size: int) -> Iterator[slice]:
    """Yield slices of a vector for elementwise work. Their intermediate results fit in the cache."""
    for start in range(0, size, BLOCK):
        yield slice(start, min(start + BLOCK, size))
