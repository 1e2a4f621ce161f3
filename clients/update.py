"""The arguments and results of a client: Flower's types, with names and further records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from flwr.common import NDArrays, Scalar
from numpy.typing import NDArray

Records = Mapping[str, Mapping[str, NDArray]]
"""Arrays by name, by the name of their record."""


class NamedArrays(list[NDArray]):
    """A model's shared entries: a list, as in Flower's NumPyClient, with the entries' names.

    >>> arrays = NamedArrays({"weight": np.ones(2), "bias": np.zeros(1)})
    >>> arrays.by_name()["bias"] is arrays[1]
    True
    """

    def __init__(self, arrays: Mapping[str, NDArray]) -> None:
        super().__init__(arrays.values())
        self.names = tuple(arrays)

    def by_name(self) -> dict[str, NDArray]:
        """Return the current arrays by name.

        Raises
        ------
        ValueError
            When arrays were added or removed.
        """
        return _zipped(self.names, self)


class Received(NamedArrays):
    """The shared entries as arguments of `fit` and `evaluate`, with further records of the message."""

    def __init__(self, arrays: Mapping[str, NDArray], records: Records | None = None) -> None:
        super().__init__(arrays)
        self.records = records or {}


def by_name(arrays: Mapping[str, NDArray] | Iterable[NDArray], names: Sequence[str]) -> dict[str, NDArray]:
    """Return a model's shared entries by name, in the order of ``names``.

    `NamedArrays` and mappings are matched by name. Only a plain list, as in Flower's NumPyClient, is matched
    by position, in the order of ``names``.

    Raises
    ------
    ValueError
        When the names or the number of arrays differ.
    """
    if isinstance(arrays, NamedArrays):
        arrays = arrays.by_name()
    if not isinstance(arrays, Mapping):
        return _zipped(names, list(arrays))
    if differing := sorted(arrays.keys() ^ set(names)):
        raise ValueError(f"the model's shared entries differ in {', '.join(differing)}")
    return {name: arrays[name] for name in names}


def _zipped(names: Sequence[str], arrays: Sequence[NDArray]) -> dict[str, NDArray]:
    if len(arrays) != len(names):
        raise ValueError(f"{len(arrays)} arrays for {len(names)} shared entries of the model")
    return dict(zip(names, arrays, strict=True))


class _Triple(NamedTuple):
    arrays: NDArrays
    num_examples: int
    metrics: dict[str, Scalar]


class Update(_Triple):
    """The result of `fit`: Flower's triple, with further records for the server.

    ``arrays`` are `NamedArrays`; a plain list is in the order of the client's ``shared_names``. A subclass's
    `fit` adds to ``update.metrics`` and returns the update; a plain triple sends the model alone.
    """

    records: Records

    def __new__(
        cls,
        arrays: NDArrays,
        num_examples: int,
        metrics: dict[str, Scalar],
        records: Records | None = None,
    ) -> "Update":
        update = super().__new__(cls, arrays, num_examples, metrics)
        update.records = records or {}
        return update
