"""A caller's Datasets, one a client, as arrays."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..core.errors import UserError
from ..data.dataset import Groups
from ..data.splits import held_out_fifth
from .arrays import PARTS, as_array

Part = tuple[NDArray, NDArray]
"""Inputs and targets."""


class Pooled(NamedTuple):
    """What all clients' Datasets hold, with the names of their clients; as `keep_arrays` takes it."""

    arrays: dict[str, NDArray]
    groups: Groups
    notes: tuple[str, ...]


def are_datasets(data: object) -> bool:
    """Whether it is a mapping, or a sequence without arrays that is to be one of Datasets."""
    if isinstance(data, Mapping):
        return True
    return isinstance(data, list | tuple) and bool(data) and all(_is_dataset(one) for one in data)


def pooled(data: Sequence[Any] | Mapping[Any, Any], test: Any = None) -> Pooled:
    """Read every item of every Dataset once.

    Parameters
    ----------
    data : sequence or mapping of Datasets
        By client. An item is a pair of an input (tensor, array or image) and a target (class number, or one
        or more floats); all are alike.
    test : Dataset, or such a sequence or mapping, optional
        For all clients, or each client's own. Without it a fixed fifth of each client's items is held out.

    Raises
    ------
    UserError
        When they are something else, or reading one raises.
    """
    named = _named("data", data)
    train = {name: _read(f"data of client {name!r}", dataset) for name, dataset in named.items()}
    (x, y), ids = _joined(train)
    if test is None:
        places = np.unique(ids, return_inverse=True)[1]
        kept, held_out = held_out_fifth(y.reshape(len(y), -1)[:, 0], places)
        if not len(held_out):
            raise UserError(f"data: {len(y)} examples; expected at least 5 where no test is given")
        arrays = x[kept], y[kept], x[held_out], y[held_out]
        notes = ("data: no test is given: a fixed fifth of each client's examples is held out",)
        return Pooled(dict(zip(PARTS, arrays, strict=True)), (ids[kept], ids[held_out]), notes)
    if isinstance(test, Mapping | list | tuple):
        own = _named("test", test)
        if own.keys() != named.keys():
            raise UserError(f"test: is of the clients {', '.join(own)}; expected {', '.join(named)}")
        held = {name: _read(f"test of client {name!r}", dataset) for name, dataset in own.items()}
    else:
        held = {"": _read("test", test)}
    (x_test, y_test), test_ids = _joined(held)
    return Pooled(dict(zip(PARTS, (x, y, x_test, y_test), strict=True)), (ids, test_ids), ())


def _named(key: str, data: Sequence[Any] | Mapping[Any, Any]) -> dict[str, Any]:
    """Datasets by the names of their clients: their numbers, where they have none."""
    pairs = list(data.items()) if isinstance(data, Mapping) else list(enumerate(data))
    named = {str(name): dataset for name, dataset in pairs}
    if len(named) < len(pairs) or "" in named or not pairs:
        raise UserError(f"{key}: names {[str(name) for name, _ in pairs]}; expected one for each client")
    return named


def _is_dataset(value: object) -> bool:
    there = all(hasattr(value, method) for method in ("__getitem__", "__len__"))
    is_table = hasattr(value, "to_numpy")
    return there and not is_table and not isinstance(value, np.ndarray | Tensor | str | Mapping)


def _read(where: str, dataset: Any) -> Part:
    """Inputs and targets of all items."""
    if not _is_dataset(dataset):
        told = f"a {type(dataset).__name__}"
        raise UserError(f"{where} is {told}; expected a Dataset that has a length and items by number")
    try:
        count = len(dataset)
    except TypeError as error:
        raise UserError(f"{where} has no length ({error})") from error
    if not count:
        raise UserError(f"{where} has no examples")
    columns: list[NDArray] = []
    for i in range(count):
        values = _item(f"item {i} of {where}", dataset, i)
        if not columns:
            columns = [np.empty((count, *value.shape), value.dtype) for value in values]
        for column, value in zip(columns, values, strict=True):
            if (value.shape, value.dtype) != (column.shape[1:], column.dtype):
                told = f"{value.dtype} {value.shape}, item 0 has {column.dtype} {column.shape[1:]}"
                raise UserError(f"item {i} of {where} has {told}; expected all alike")
            column[i] = value
    return columns[0], columns[1]


def _item(where: str, dataset: Any, i: int) -> Part:
    try:
        item = dataset[i]
    except Exception as error:  # it is the caller's code
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{where} raised {told}") from error
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise UserError(f"{where} is a {type(item).__name__}; expected a pair of input and target")
    return _value(where, item[0]), _value(where, item[1])


def _value(where: str, value: Any) -> NDArray:
    """A tensor, an image, an array or a number as an array; of an image the channels first."""
    if isinstance(value, Tensor):
        return as_array(value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise UserError(f"{where} is no array ({error})") from error
    if array.dtype.kind not in "biuf":
        raise UserError(f"{where} holds a {type(value).__name__}; expected tensors, arrays or numbers")
    of_channels = hasattr(value, "getbands") and array.ndim == 3
    return array.transpose(2, 0, 1) if of_channels else array


def _joined(parts: Mapping[str, Part]) -> tuple[Part, NDArray[np.str_]]:
    """All clients' examples, one client after the other, and whose each is."""
    first = next(iter(parts.values()))
    for name, part in parts.items():
        for own, other in zip(part, first, strict=True):
            if (own.dtype, own.shape[1:]) != (other.dtype, other.shape[1:]):
                told = f"{own.dtype} {own.shape[1:]}, another's {other.dtype} {other.shape[1:]}"
                raise UserError(f"data: an example of client {name!r} is {told}; expected all alike")
    ids = np.repeat(np.array(list(parts)), [len(y) for _, y in parts.values()])
    x, y = (np.concatenate(arrays) for arrays in zip(*parts.values(), strict=True))
    return (x, y), ids
