"""What a client is given and what it gives: Flower's own, with further records beside the model."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from flwr.common import NDArrays, Scalar
from numpy.typing import NDArray

Records = Mapping[str, Mapping[str, NDArray]]
"""Arrays by name, by the record that they travel in."""


class Received(list[NDArray]):
    """The shared entries of a model as `fit` and `evaluate` take them, with what came beside them."""

    def __init__(self, arrays: Iterable[NDArray], records: Records | None = None) -> None:
        super().__init__(arrays)
        self.records = records or {}


class _Triple(NamedTuple):
    arrays: NDArrays
    num_examples: int
    metrics: dict[str, Scalar]


class Update(_Triple):
    """What `fit` gives: the triple that Flower asks for, with what goes to the server beside the model.

    A `fit` of one's own adds to ``update.metrics`` and returns the update; a plain triple in its place sends
    the model alone.
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
