"""Read a caller's torch Datasets, one per client, into arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.modules.lazy_torch import torch

from ..core.errors import UserError
from ..core.notes import Note
from ..core.text import number_of
from ..data.dataset import Groups
from ..data.numeric import finite, refuse_words
from ..data.readers.arrays import PARTS, as_an_array, as_array, is_dataset, is_stream, numbered_groups
from ..data.splits import Rows, Units, held_out_fifth, held_out_groups
from ..data.splits.origins import Origins, of_items

Part = tuple[NDArray, NDArray]
"""Inputs and targets."""


EVERYBODY = "all"
NOBODY = ("", EVERYBODY)
"""Names of the owner of examples that have none."""

FIRST, AGAIN = 4, 8
"""So many Datasets, and items of each, are read twice; a random mirroring changes one of 8 with probability
0.996."""
DRAWN = "items are others when they are read again, as after a random transform: one draw of each is kept"


class Pooled(NamedTuple):
    """The examples of all clients' Datasets, with the clients' names, as `keep_arrays` takes them."""

    arrays: dict[str, NDArray]
    groups: Groups | None
    notes: tuple[Note, ...]
    places: tuple[Origins, Origins]
    """``data[CLIENT][ITEM]``."""
    units: Units | None = None


def pooled(
    data: Sequence[Any] | Mapping[Any, Any],
    test: Any = None,
    units: Any = None,
    called: tuple[str, str] = ("data", "test"),
) -> Pooled:
    """Read every item of every Dataset once, and some again.

    Parameters
    ----------
    data : sequence or mapping of Datasets
        One per client. An item is a pair of an input (tensor, array or image) and a target (class number, or
        one or more floats). All items have the same shapes and dtypes. A pair of arrays or tensors, of all
        inputs and all targets, may stand for a Dataset.
    test : Dataset, or such a sequence or mapping, optional
        One for all clients, or one per client. Without it a fixed fifth of each client's items is held out.
    units : sequence or mapping of arrays, optional
        The group of each item, for each client, without ``test``: whole groups are held out.
    called : tuple[str, str]
        What ``data`` and ``test`` are called where a case comes from them.

    Raises
    ------
    UserError
        When an argument is anything else, or reading an item raises.
    """
    named = _named("data", data)
    train = {name: _read(f"data of client {name!r}", dataset) for name, dataset in named.items()}
    _check(train)
    (x, y), ids = _joined(train)
    places = _places(called[0], train)
    is_drawn = any(_is_drawn(named[name], train[name]) for name in list(named)[:FIRST])
    drawn = (Note("inputs", f"{DRAWN}; of pictures, augment draws anew in every epoch"),) if is_drawn else ()
    if test is None:
        kept, fifth, note, of_rows = _held_out(
            y, ids, units, {name: len(one) for name, (_, one) in train.items()}
        )
        arrays = x[kept], y[kept], x[fifth], y[fifth]
        both = (places[kept], places[fifth])
        of_each = dict(zip(PARTS, arrays, strict=True)), (ids[kept], ids[fifth]), (note, *drawn), both
        return Pooled(*of_each, of_rows)
    if units is not None:
        raise UserError("groups: given with test; expected no test, of which whole groups are held out")
    if isinstance(test, Mapping | list | tuple) and not _are_arrays(test):
        tests = _named("test", test)
        if tests.keys() != named.keys():
            raise UserError(f"test: is for the clients {', '.join(tests)}; expected {', '.join(named)}")
        held_out = {name: _read(f"test of client {name!r}", dataset) for name, dataset in tests.items()}
    else:
        held_out = {"": _read("test", test)}
    (x_test, y_test), test_ids = _joined(held_out)
    together = dict(zip(PARTS, (x, y, x_test, y_test), strict=True))
    of_tests = _places(called[1], held_out)
    return Pooled(together, (ids, test_ids), drawn, (places, of_tests))


def _held_out(
    y: NDArray, ids: NDArray[np.str_], groups: Any, sizes: Mapping[str, int]
) -> tuple[Rows, Rows, Note, Units | None]:
    """Return the rows of a fixed four fifths and of the fifth, of each client's or of the groups.

    A note says which, and if there are groups the last are those of these rows in turn.

    Raises
    ------
    UserError
        When there are too few examples, or the groups are not those of the items.
    """
    said = "no test is given: a fixed fifth of"
    if groups is None:
        kept, fifth = held_out_fifth(y.reshape(len(y), -1)[:, 0], np.unique(ids, return_inverse=True)[1])
        if not len(fifth):
            raise UserError(f"data: {number_of(len(y), 'example')}; expected at least 5 if no test is given")
        return kept, fifth, Note("examples", f"{said} each client's examples is held out"), None
    form = "an array for each client, or a mapping of the clients' names to these"
    units = numbered_groups(groups, sizes, form)
    kept, fifth = held_out_groups(y, units.numbers, ids)
    in_turn = units._replace(numbers=units.numbers[np.concatenate([kept, fifth])])
    return kept, fifth, Note("examples", f"{said} the groups is held out"), in_turn


def _places(called: str, parts: Mapping[str, Part]) -> Origins:
    """Return where the examples of clients come from, or of one that is nobody or everybody."""
    named = {called if name in NOBODY else f"{called}[{name}]": len(y) for name, (_, y) in parts.items()}
    return np.concatenate([of_items(name, count) for name, count in named.items()])


def _check(parts: Mapping[str, Part]) -> None:
    """Refuse numbers that are not finite, and words, while rows are those that the caller gave.

    Raises
    ------
    UserError
        Names the client and the first row.
    """
    words = {word for _, y in parts.values() if y.dtype.kind in "UO" for word in y.flat}
    for name, (x, y) in parts.items():
        where = f"data of client {name!r}"
        if x.dtype.kind == "f":
            finite(f"{where}: x", x)
        refuse_words(f"{where}: y", y, words)
        if y.dtype.kind == "f":
            finite(f"{where}: y", y)


def _named(key: str, data: Sequence[Any] | Mapping[Any, Any]) -> dict[str, Any]:
    """Return the Datasets by client name; in a sequence, the name is the number."""
    pairs = list(data.items()) if isinstance(data, Mapping) else list(enumerate(data))
    named = {str(name): dataset for name, dataset in pairs}
    if len(named) < len(pairs) or "" in named or not pairs:
        names = [str(name) for name, _ in pairs]
        raise UserError(f"{key}: the clients' names are {names}; expected a different one per client")
    return named


def _are_arrays(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(part, np.ndarray | torch.Tensor) for part in value)


def _is_like_an_array(value: object) -> bool:
    """Return whether a value is an array, or is easily made one."""
    return isinstance(value, np.ndarray | torch.Tensor | list) or hasattr(value, "to_numpy")


def _read(where: str, dataset: Any) -> Part:
    """Return the inputs and targets of all items."""
    if _are_arrays(dataset):
        return _pair(where, dataset)
    if isinstance(dataset, tuple) and len(dataset) == 2 and all(map(_is_like_an_array, dataset)):
        kinds = " and ".join(type(part).__name__ for part in dataset)
        hint = next(filter(None, map(as_an_array, "xy", dataset)))
        raise UserError(f"{where} is a pair of {kinds}; expected a pair of arrays{hint}")
    if not is_dataset(dataset):
        kind = type(dataset).__name__
        wanted = "a Dataset with __len__ and __getitem__, or a pair of arrays"
        listed = "; list(...) makes one of what ends" if is_stream(dataset) else as_an_array("x", dataset)
        raise UserError(f"{where} is a {kind}; expected {wanted}{listed}")
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
                found, first = f"{value.dtype} {value.shape}", f"{column.dtype} {column.shape[1:]}"
                raise UserError(f"item {i} of {where} has {found}, item 0 has {first}; expected the same")
            column[i] = value
    return columns[0], columns[1]


def _is_drawn(dataset: Any, found: Part) -> bool:
    """Return whether some of a Dataset's first items are others than were found; no, if unreadable now."""
    if _are_arrays(dataset):
        return False
    with suppress(UserError):
        return any(
            not np.array_equal(value, column[i])
            for i in range(min(AGAIN, len(found[0])))
            for value, column in zip(_item(f"item {i}", dataset, i), found, strict=True)
        )
    return False


def _pair(where: str, arrays: tuple[Any, ...]) -> Part:
    """Return inputs and targets that are given as two arrays."""
    shapes = " and ".join(str(tuple(array.shape)) for array in arrays)
    if len(arrays) != 2 or not all(array.ndim for array in arrays) or len(arrays[0]) != len(arrays[1]):
        raise UserError(f"{where} has arrays of shape {shapes}; expected a pair of inputs and targets")
    if not len(arrays[0]):
        raise UserError(f"{where} has no examples")
    x, y = (as_array(where, array) for array in arrays)
    return x, y


def _item(where: str, dataset: Any, i: int) -> Part:
    try:
        item = dataset[i]
    except Exception as error:  # it is the caller's code
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{where} raised {message}") from error
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise UserError(f"{where} is a {type(item).__name__}; expected a pair of input and target")
    return _value(where, item[0]), _value(where, item[1])


def _value(where: str, value: Any) -> NDArray:
    """Return a tensor, image, array or number as an array; an image has its channels first."""
    if isinstance(value, torch.Tensor):
        return as_array(where, value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise UserError(f"{where} cannot be converted to an array ({error})") from error
    if array.dtype.kind not in "biuf":
        raise UserError(f"{where} holds a {type(value).__name__}; expected tensors, arrays or numbers")
    has_channels = hasattr(value, "getbands") and array.ndim == 3
    return array.transpose(2, 0, 1) if has_channels else array


def _joined(parts: Mapping[str, Part]) -> tuple[Part, NDArray[np.str_]]:
    """Concatenate the clients' examples, and return the client's name of each example."""
    first = next(iter(parts.values()))
    for name, part in parts.items():
        for array, other in zip(part, first, strict=True):
            if (array.dtype, array.shape[1:]) != (other.dtype, other.shape[1:]):
                found = f"{array.dtype} {array.shape[1:]}, another's is {other.dtype} {other.shape[1:]}"
                raise UserError(f"data: an example of client {name!r} is {found}; expected the same")
    ids = np.repeat(np.array(list(parts)), [len(y) for _, y in parts.values()])
    x, y = (np.concatenate(arrays) for arrays in zip(*parts.values(), strict=True))
    return (x, y), ids
