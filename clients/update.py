"""What a client is given and what it gives: Flower's own, with further records beside the model."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from flwr.common import NDArrays, Scalar
from numpy.typing import NDArray

Records = Mapping[str, Mapping[str, NDArray]]
"""Arrays by name, by the record that they travel in."""


class NamedArrays(list[NDArray]):
    """A model's shared entries: a list, as Flower's NumPyClient has it, that knows its names.

    >>> arrays = NamedArrays({"weight": np.ones(2), "bias": np.zeros(1)})
    >>> arrays.by_name()["bias"] is arrays[1]
    True
    """

    def __init__(self, arrays: Mapping[str, NDArray]) -> None:
        super().__init__(arrays.values())
        self.names = tuple(arrays)

    def by_name(self) -> dict[str, NDArray]:
        """The arrays as they are now, by name.

        Raises
        ------
        ValueError
            When arrays were added or taken away.
        """
        return _zipped(self.names, self)


class Received(NamedArrays):
    """The shared entries as `fit` and `evaluate` take them, with the records that came beside them."""

    def __init__(self, arrays: Mapping[str, NDArray], records: Records | None = None) -> None:
        super().__init__(arrays)
        self.records = records or {}


def by_name(arrays: Mapping[str, NDArray] | Iterable[NDArray], names: Sequence[str]) -> dict[str, NDArray]:
    """Return a model's shared entries by name, in the order of ``names``.

    Arrays that have names go by these. A plain list, which is all that Flower's NumPyClient knows, is in the
    order of ``names``: nowhere else does a position count.

    Raises
    ------
    ValueError
        When the names, or how many arrays there are, differ.
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
    """What `fit` gives: the triple that Flower asks for, with what goes to the server beside the model.

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
