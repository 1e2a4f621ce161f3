"""Use a caller's arrays as a dataset. They are decoded once and cached under a name with their hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.modules.lazy_torch import torch

from ...core.errors import UserError
from ..cache import decode_once
from ..dataset import Decoded, Groups, Request
from ..images.channels import channels_first
from ..images.kind import images_decoded
from ..labels import Classes, gaps
from ..masks import as_masks, decoded, numbered, with_channels
from ..notes import Note
from ..numeric import as_targets, finite
from ..sources import ARRAYS, OF_CLIENTS, OF_MASKS, Source

PARTS = ("x", "y", "x_test", "y_test")
INPUTS = "uint8 images (N, height, width) or with 1 to 4 channels, or an array of numbers (N, ...)"


def arrays_by_name(data: Sequence[Any]) -> dict[str, NDArray]:
    """Return the four arrays ``(x, y, x_test, y_test)``, NumPy arrays or tensors, by name.

    Raises
    ------
    UserError
        When ``data`` is anything else.
    """
    if not isinstance(data, tuple | list) or len(data) != len(PARTS):
        raise UserError(f"data: expected the four arrays ({', '.join(PARTS)}), or a list of Datasets")
    arrays = {}
    for name, array in zip(PARTS, data, strict=True):
        if not isinstance(array, np.ndarray | torch.Tensor):
            raise UserError(f"data: {name} is of type {type(array).__name__}; expected a NumPy array")
        arrays[name] = as_array(array) if isinstance(array, torch.Tensor) else array
    return arrays


def as_array(tensor: torch.Tensor) -> NDArray:
    """Return a tensor as a NumPy array; bfloat16, which NumPy lacks, becomes float32."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(force=True)


def keep_arrays(
    cache: Path, arrays: Mapping[str, NDArray], groups: Groups | None = None, notes: Sequence[Note] = ()
) -> str:
    """Put arrays into the cache and return the name by which `load_dataset` finds them.

    Parameters
    ----------
    cache : Path
        The run's `cache_folder`.
    arrays : Mapping[str, NDArray]
        ``x`` and ``x_test``: uint8 images (N, height, width), (N, channels, height, width) or (N, height,
        width, channels), or any other numbers (N, ...), which become float32. ``y`` and ``y_test``: class
        numbers (N,), numbers as floats (N,) or (N, values), or labels of 0 and 1 (N, labels) of any dtype;
        or masks of class numbers, (N, height, width) or (N, depth, height, width), of inputs with these
        pixels, with or without channels.
    groups, notes
        As in `Decoded`; the column of natural clients is ``client``.

    Raises
    ------
    UserError
        When an array has another shape, dtype or value.
    """
    classes = 0
    if arrays["y"].ndim > 2:
        x, y, x_test, y_test, classes, read = _segmented(arrays, groups)
    else:
        (x, read), (x_test, _) = (_inputs(name, arrays[name]) for name in ("x", "x_test"))
        y, y_test = (
            as_targets(f"data: {n}", arrays[n], len(inputs)) for n, inputs in (("y", x), ("y_test", x_test))
        )
    for name, one, other in (("x", x, x_test), ("y", y, y_test)):
        if (one.dtype, one.shape[1:]) != (other.dtype, other.shape[1:]):
            train, test = (f"{a.dtype} {a.shape[1:]}" for a in (one, other))
            raise UserError(
                f"data: an example of {name} is {train}, of {name}_test {test}; expected the same"
            )
    notes = (*notes, *read)
    digest = _digest((x, y, x_test, y_test, *(groups or ())), notes)
    request = Request(f"{ARRAYS}{OF_CLIENTS if groups else ''}{digest}{OF_MASKS if classes else ''}")

    def decode() -> Decoded:
        if classes:
            return decoded((x, y), (x_test, y_test), Classes(classes), groups, notes)
        all_notes = notes if y.ndim > 1 else (*notes, *gaps(np.concatenate([y, y_test])))
        if x.dtype == np.uint8:
            return images_decoded((x, y), (x_test, y_test), groups=groups, notes=all_notes)
        outputs = 1 + int(max(y.max(), y_test.max())) if y.ndim == 1 else y.shape[1]
        facts = {"predicts": "classes" if y.ndim == 1 else "numbers", "outputs": outputs}
        return Decoded(
            "numeric", {"x": x, "y": y}, {"x": x_test, "y": y_test}, facts, groups, notes=all_notes
        )

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
            x = finite(f"data: {name_x}", x)
        inputs.append(np.ascontiguousarray(x))
        masks.append(y)
        notes.append(of_channels)
    (y, y_test), classes, of_values = numbered(masks, "data", groups)
    return inputs[0], y, inputs[1], y_test, classes, [*notes[0], *of_values]


def _inputs(name: str, array: NDArray) -> tuple[NDArray, list[Note]]:
    """Return images, uint8 (N, channels, height, width), or numbers, float32 (N, ...), with notes."""
    found = f"data: {name} is {array.dtype} {array.shape}"
    if array.ndim < 2 or not array.size or array.dtype.kind not in "biuf":
        raise UserError(f"{found}; expected {INPUTS}")
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        return channels_first(array, name)
    if array.ndim > 2 and array.dtype.kind in "iu":
        raise UserError(f"{found}; expected {INPUTS}: integers are images only as uint8")
    return finite(f"data: {name}", array), []


def _digest(arrays: Sequence[NDArray], notes: Sequence[Note]) -> str:
    digest = hashlib.sha256(repr(notes).encode())
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:24]
