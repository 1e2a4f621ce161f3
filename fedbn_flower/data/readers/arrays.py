"""Use a caller's arrays as a dataset. They are decoded once and cached under a name with their hash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.modules.lazy_torch import torch

from ...core.errors import UserError
from ...core.files import sha256_of
from ...core.notes import Note
from ..cache import decode_once
from ..dataset import Decoded, Groups, Request, Split
from ..float32 import Columns, columns_of
from ..images.kind import channels_first, images_decoded
from ..labels import Classes, gaps
from ..masks import as_masks, numbered, with_channels
from ..numeric import as_numbers, as_targets, floats_as_classes, lost_targets, refuse_words
from ..sources import ARRAYS, OF_CLIENTS, OF_MASKS, Source
from ..splits import Units, origins, units_of
from ..splits.subgroups import BySplit

PARTS = ("x", "y", "x_test", "y_test")
FORMS = f"the four arrays ({', '.join(PARTS)}), or a Dataset or a pair (x, y) for each client"
INPUTS = "uint8 images (N, height, width) or with 1 to 4 channels, or an array of numbers (N, ...)"
MAX_SHOWN = 8
HINTS = {
    "O": ": numbers only; a table, CSV or Parquet, may hold text",
    "M": ": as seconds, array.astype('datetime64[s]').astype(np.int64)",
    "m": ": as seconds, array / np.timedelta64(1, 's')",
    "c": ": real and imaginary part side by side, or the absolute value",
    "V": ": numpy.lib.recfunctions.structured_to_unstructured(array)",
}
"""How to make numbers of an array, by the kind of its dtype."""


def arrays_by_name(data: Sequence[Any]) -> dict[str, NDArray]:
    """Return the four arrays ``(x, y, x_test, y_test)``, NumPy arrays or tensors, by name.

    Raises
    ------
    UserError
        When ``data`` is anything else.
    """
    if isinstance(data, str | Path):
        name = str(data)
        raise UserError(f"data: {name!r} is not allowed; expected {FORMS}, or simulate(dataset={name!r})")
    if not isinstance(data, tuple | list) or len(data) != len(PARTS):
        raise UserError(f"data: {_described(data)} is not allowed; expected {FORMS}{_how_to(data)}")
    arrays = {}
    for name, array in zip(PARTS, data, strict=True):
        if not isinstance(array, np.ndarray | torch.Tensor):
            kind, hint = type(array).__name__, as_an_array(name, array)
            raise UserError(f"data: {name} is of type {kind}; expected a NumPy array{hint}")
        arrays[name] = as_array(f"data: {name}", array)
    return arrays


def _described(data: Any) -> str:
    """Return what ``data`` is, in place of four arrays: of a few parts their types."""
    if not isinstance(data, tuple | list) or len(data) > MAX_SHOWN:
        return f"an object of type {type(data).__name__}"
    return f"({', '.join(type(part).__name__ for part in data)})"


def _how_to(data: Any) -> str:
    """Return how to make arrays of what is given in place of them, or a test set."""
    parts = data if isinstance(data, tuple | list) else [data]
    others = (part for part in parts[:MAX_SHOWN] if not isinstance(part, np.ndarray | torch.Tensor))
    if hint := next(filter(None, (as_an_array("x", part) for part in others)), ""):
        return hint
    is_pair = len(parts) == 2 and all(isinstance(part, np.ndarray | torch.Tensor) for part in parts)
    return "; without a test set, data=[(x, y)] with partition='iid' holds a fifth out" if is_pair else ""


def numbered_groups(groups: object, sizes: Mapping[str, int], form: str) -> Units:
    """Return the group of each example of several sets, one after the other, whose sizes are given by name.

    Raises
    ------
    UserError
        When groups are not an array of words or whole numbers for each set, with one for each example;
        ``form`` says so.
    """
    parts = dict(enumerate(groups)) if isinstance(groups, list | tuple) else groups
    if not isinstance(parts, Mapping) or len(parts) != len(sizes):
        raise UserError(f"groups: an object of type {type(groups).__name__} is not allowed; expected {form}")
    if isinstance(groups, Mapping):
        by_name = {str(name): value for name, value in parts.items()}
    else:
        by_name = dict(zip(sizes, parts.values(), strict=True))
    found = []
    for name, size in sizes.items():
        array = as_array(f"groups: of {name!r}", by_name.get(name, np.empty(0)))
        if array.shape != (size,) or array.dtype.kind not in "biuSUO":
            odd = f"of {name!r} they are {array.dtype} {array.shape}"
            raise UserError(f"groups: {odd}; expected {size} words or whole numbers, one for each example")
        found.append(array.astype(np.str_))
    return units_of(np.concatenate(found))


def as_an_array(name: str, value: object) -> str:
    """Return how to make an array of a value, where that is known."""
    methods = [method for method in ("to_numpy", "toarray") if hasattr(value, method)]
    if methods:
        return f", such as {name}.{methods[0]}()"
    return f", such as np.asarray({name})" if isinstance(value, list | tuple) else ""


def as_array(where: str, value: NDArray | torch.Tensor) -> NDArray:
    """Return an array or a tensor as an array, of numbers if they are numbers as objects.

    Raises
    ------
    UserError
        When values are masked, or a tensor is sparse; ``where`` begins the message.
    """
    if isinstance(value, torch.Tensor):
        return _of_tensor(where, value)
    if np.ma.is_masked(value):
        raise UserError(f"{where} has masked values: fill them in, or leave these examples out")
    array = np.asarray(value)
    if array.dtype.kind == "O" and all(isinstance(item, Number | np.bool_) for item in array.flat):
        plain = np.asarray(array.tolist())  # whole numbers stay whole
        with suppress(TypeError):  # complex numbers
            return plain.astype(np.float64) if plain.dtype.kind == "O" else plain
    return array


def _of_tensor(where: str, tensor: torch.Tensor) -> NDArray:
    """Return a tensor as an array; bfloat16, which NumPy lacks, becomes float32."""
    try:
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(force=True)
    except (TypeError, RuntimeError) as error:  # a sparse or quantised one
        raise UserError(
            f"{where} cannot be converted to an array ({' '.join(str(error).split())})"
        ) from error


def keep_arrays(
    cache: Path,
    arrays: Mapping[str, NDArray],
    groups: Groups | None = None,
    notes: Sequence[Note] = (),
    places: tuple[origins.Origins, origins.Origins] | None = None,
    units: Units | None = None,
    predict: str = "auto",
    of_site: bool = False,
    subgroups: BySplit | None = None,
) -> str:
    """Put arrays into the cache and return the name by which `load_dataset` finds them.

    Parameters
    ----------
    cache : Path
        The run's `cache_folder`.
    arrays : Mapping[str, NDArray]
        ``x`` and ``x_test``: uint8 images (N, height, width), (N, channels, height, width) or (N, height,
        width, channels), or any other numbers (N, ...), which become float32. ``y`` and ``y_test``: class
        numbers (N,), numbers as floats (N,) or (N, values), which may be classes too (`floats_as_classes`),
        or labels of 0 and 1 (N, labels) of any dtype;
        or masks of class numbers, (N, height, width) or (N, depth, height, width), of inputs with these
        pixels, with or without channels.
    groups, notes
        As in `Decoded`; the column of natural clients is ``client``.
    places : tuple[Origins, Origins], optional
        Where the examples of both splits come from; by default they are those of ``x`` and ``x_test``.
    units : Units, optional
        The group of each example, first of ``x``, then of ``x_test``; the column is `sources.GROUP`.
    predict, of_site
        As in `Request`.
    subgroups : BySplit, optional
        As in `Decoded`.

    Raises
    ------
    UserError
        When an array has another shape, dtype or value.
    """
    classes, names = 0, tuple[str, ...]()
    if arrays["y"].ndim > 2:
        x, y, x_test, y_test, classes, read = _segmented(arrays, groups)
    else:
        for name in ("y", "y_test"):
            refuse_words(f"data: {name}", arrays[name], [*arrays["y"].flat, *arrays["y_test"].flat])
        (x, read), (x_test, _) = (_inputs(name, arrays[name]) for name in ("x", "x_test"))
        y, y_test = (
            as_targets(f"data: {n}", arrays[n], len(inputs)) for n, inputs in (("y", x), ("y_test", x_test))
        )
        if y.dtype == y_test.dtype:
            given = arrays["y"], arrays["y_test"]
            (y, y_test), names, of_floats = floats_as_classes((y, y_test), given, predict, of_site)
            read = [*read, *of_floats]
    is_image = x.dtype == np.uint8
    for name, one, other in (("x", x, x_test), ("y", y, y_test)):
        if (_kept(name, one), one.shape[1:]) != (_kept(name, other), other.shape[1:]):
            here, there = (f"{_kept(name, a)} {a.shape[1:]}" for a in (one, other))
            raise UserError(
                f"data: an example of {name} is {here}, of {name}_test {there}; expected the same"
            )
    notes = (*notes, *read)
    train, test, facts = Columns({"x": x}, {"x": x_test}, {}) if is_image else columns_of(x, x_test)
    rests = (split["rest"] for split in (train, test) if "rest" in split)
    words = [array for both in (subgroups or {}).values() for array in both]
    of_units = (*np.split(units.numbers, [len(x)]), units.names) if units else ()
    of_rows = *(groups or ()), *rests, *of_units, *words
    digest = _digest((train["x"], y, test["x"], y_test, *of_rows), [*notes, *(subgroups or ())])
    given = places or (origins.of_items("x", len(x)), origins.of_items("x_test", len(x_test)))
    first, second = (
        Split(
            columns,
            groups and groups[i],
            of_units[i] if of_units else None,
            units.names if units else None,
            given[i],
            {name: both[i] for name, both in (subgroups or {}).items()},
        )
        for i, columns in enumerate(({**train, "y": y}, {**test, "y": y_test}))
    )
    request = Request(f"{ARRAYS}{OF_CLIENTS if groups else ''}{digest}{OF_MASKS if classes else ''}")

    def decode() -> Decoded:
        all_notes = (*notes, *_notes_on_targets(arrays, y, y_test))
        if is_image:
            return images_decoded(first, second, Classes(classes or len(names), names), all_notes)
        outputs, predicts = (y.shape[1], "numbers") if y.ndim == 2 else (classes, "masks")
        if y.ndim == 1:
            outputs, predicts = 1 + int(max(y.max(), y_test.max())), "classes"
        of_all = {**facts, "predicts": predicts, "outputs": outputs}
        return Decoded("numeric", first, second, of_all, names, all_notes)

    decode_once(Source(request.name, decode), request, cache)
    return request.name


def _segmented(
    arrays: Mapping[str, NDArray], groups: Groups | None
) -> tuple[NDArray, NDArray, NDArray, NDArray, int, list[Note]]:
    """Return inputs and masks of both splits in the order of `PARTS`, the number of classes, and notes."""
    masks, inputs, notes = [], [], []
    for name_x, name_y in (("x", "y"), ("x_test", "y_test")):
        x, y = arrays[name_x], as_masks(arrays[name_y], f"data: {name_y}")
        if x.ndim == y.ndim > 3 and y.shape[1] == 1 and x.shape[2:] == y.shape[2:]:
            y = y[:, 0]  # masks with a channel, as torchvision's
        x, of_channels = with_channels(x, y, f"data: {name_x}")
        if x.dtype != np.uint8:
            x = as_numbers(f"data: {name_x}", x)
        inputs.append(np.ascontiguousarray(x))
        masks.append(y)
        notes.append(of_channels)
    (y, y_test), classes, of_values = numbered(masks, "data", groups)
    return inputs[0], y, inputs[1], y_test, classes, [*notes[0], *of_values]


def _inputs(name: str, array: NDArray) -> tuple[NDArray, list[Note]]:
    """Return images, uint8 (N, channels, height, width), or `as_numbers`, (N, ...), with notes."""
    found = f"data: {name} is {array.dtype} {array.shape}"
    if array.ndim and not len(array):
        raise UserError(f"data: {name} has no examples")
    if array.ndim < 2 or not array.size or array.dtype.kind not in "biuf":
        raise UserError(f"{found}; expected {INPUTS}{HINTS.get(array.dtype.kind, '')}")
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        return channels_first(array, name)
    if array.ndim > 2 and array.dtype.kind in "iu":
        raise UserError(f"{found}; expected {INPUTS}: integers are images only as uint8")
    return as_numbers(f"data: {name}", array), []


def _kept(name: str, array: NDArray) -> np.dtype:
    """Return the dtype in which an array is kept: inputs but images as float32, with or without a rest."""
    return np.dtype(np.float32) if name == "x" and array.dtype != np.uint8 else array.dtype


def _notes_on_targets(arrays: Mapping[str, NDArray], y: NDArray, y_test: NDArray) -> Sequence[Note]:
    if y.ndim == 1:
        return gaps(np.concatenate([y, y_test]))
    if y.ndim > 2:
        return ()
    columns = np.concatenate([arrays[name].reshape(len(arrays[name]), -1) for name in ("y", "y_test")]).T
    return lost_targets(
        (f"y[:, {i}]" if len(columns) > 1 else "y", values) for i, values in enumerate(columns)
    )


def _digest(arrays: Sequence[NDArray], notes: Sequence[Note]) -> str:
    return sha256_of(((f"{array.dtype} {array.shape}", array) for array in arrays), repr(notes))[:24]


def is_dataset(value: object) -> bool:
    """Return whether a value has items by number, as a Dataset, and is no array, tensor or table."""
    has_methods = all(hasattr(value, method) for method in ("__getitem__", "__len__"))
    is_table = hasattr(value, "to_numpy")
    return has_methods and not is_table and not isinstance(value, np.ndarray | torch.Tensor | str | Mapping)


def is_stream(value: object) -> bool:
    """Return whether a value gives items one after the other: meant as a Dataset, though it has no length."""
    is_other = isinstance(value, np.ndarray | torch.Tensor | str | Mapping) or hasattr(value, "to_numpy")
    return hasattr(value, "__iter__") and not is_other


def are_datasets(data: object) -> bool:
    """Return whether ``data`` is a mapping, or a sequence of Datasets instead of arrays."""
    if isinstance(data, Mapping):
        return True
    if isinstance(data, tuple) and _are_lists_of_columns(data):
        return False
    return isinstance(data, list | tuple) and bool(data) and all(is_dataset(x) or is_stream(x) for x in data)


def _are_lists_of_columns(data: tuple[Any, ...]) -> bool:
    """Return whether a tuple is one of inputs and targets as lists, in place of arrays.

    A list of pairs is a Dataset, but not where another list holds no pairs, as one of targets does.
    """
    if len(data) not in (2, len(PARTS)) or not all(isinstance(part, list) and part for part in data):
        return False
    return not all(isinstance(part[0], tuple | list) and len(part[0]) == 2 for part in data)
