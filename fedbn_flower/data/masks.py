"""Masks: the class of each pixel of an image, or of each voxel of a volume."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.problems.segmentation import VOID

from ..core.errors import UserError
from ..core.notes import Note
from ..core.text import quoted
from .dataset import Decoded, Split
from .float32 import as_bytes, columns_of
from .images.kind import channels_first, images_decoded
from .labels import Classes

Masks = NDArray[np.uint8]
"""uint8 (N, height, width) or (N, depth, height, width); 255 is void, see `Segmentation`."""
MOST = 200
"""Classes; higher numbers are taken for grey values."""
LEAST_SHARE = 1 / 8
"""Of the class numbers up to the largest, those that occur; if fewer do, they are taken for grey values."""
MAX_SHOWN = 5
EXPECTED = f"class numbers 0, 1, 2, ..., with {VOID} for pixels that do not count, or 0 and {VOID}"


def numbered(
    masks: Sequence[Masks], where: str, owners: Sequence[NDArray[np.str_]] | None = None
) -> tuple[list[Masks], int, list[Note]]:
    """Return the masks of every split with class numbers, the number of classes, and notes.

    Masks of 0 and 255 alone, or of 255 alone, are of two classes: 255 becomes 1. That is decided for each
    owner by what it has, as it would be where each holds its data.

    Parameters
    ----------
    masks : Sequence[NDArray]
        Those of each split.
    where : str
        How a message begins.
    owners : Sequence[NDArray], optional
        Whose each mask is, (N,) of each split, such as its site.

    Raises
    ------
    UserError
        When the values are not class numbers.
    """
    if owners is None:
        owners = [np.full(len(part), "") for part in masks]
    names = np.unique(np.concatenate(list(owners))).tolist()
    found = {}
    for name in names:
        counts = [
            np.bincount(m[o == name].ravel(), minlength=256) for m, o in zip(masks, owners, strict=True)
        ]
        found[name] = np.flatnonzero(sum(counts))
    binary = [name for name in names if VOID in found[name] and set(found[name].tolist()) <= {0, VOID}]
    void = [name for name in names if VOID in found[name] and name not in binary]
    notes = []
    if binary:
        masks = [_as_two_classes(m, np.isin(o, binary)) for m, o in zip(masks, owners, strict=True)]
        of = f" of {quoted(binary, MAX_SHOWN)}" if len(binary) < len(names) else ""
        notes.append(Note("target", f"masks{of} of 0 and {VOID} have two classes: {VOID} is class 1"))
    others = [name for name in names if name not in binary]
    numbers = np.unique(np.concatenate([found[name] for name in others])) if others else np.array([0, 1])
    numbers = np.union1d(numbers, [0, 1] if binary else [])
    numbers = numbers[numbers != VOID].astype(np.int64)
    classes = int(numbers.max(initial=0)) + 1
    if classes > MOST or len(numbers) < LEAST_SHARE * classes:
        values = np.unique(np.concatenate(list(found.values())))
        some = ", ".join(map(str, values[:5].tolist())) + (", ..." if len(values) > 5 else "")
        hold = f"the masks hold {len(values)} different values ({some})"
        raise UserError(f"{where}: {hold}; expected {EXPECTED}")
    if void:
        of = f" of {quoted(void, MAX_SHOWN)}" if len(void) < len(names) else ""
        said = f"pixels of value {VOID} in the masks{of} do not count"
        each = (m[i] for m, o in zip(masks, owners, strict=True) for i in np.flatnonzero(np.isin(o, void)))
        having = [one for one in each if VOID in one]
        alone = sum(not ((one > 0) & (one < VOID)).any() for one in having)
        if 2 * alone >= max(4, len(having)):
            said += f"; masks? {alone} of {len(having)} that have it have no class but 0: is it one there?"
        notes.append(Note("left out", said))
    if len(numbers) < classes:
        occur = f"only {len(numbers)} of the class numbers 0-{classes - 1} occur"
        notes.append(Note("target", f"{occur} in the masks; the model has {classes} outputs"))
    return list(masks), classes, notes


def _as_two_classes(masks: Masks, rows: NDArray[np.bool_]) -> Masks:
    """Return the masks with 1 in place of 255 in these rows."""
    if rows.all():
        return np.equal(masks, VOID).astype(np.uint8)
    found = np.array(masks)
    found[rows] = found[rows] == VOID
    return found


def as_masks(array: NDArray, where: str) -> Masks:
    """Return an array of whole numbers from 0 to 255, of any number type, as uint8.

    Those next to a whole number, as in a file with a slope, are that one, see `as_bytes`.

    Raises
    ------
    UserError
        When it holds anything else; ``where`` begins the message.
    """
    masks = as_bytes(array) if array.dtype.kind in "biuf" and array.size else None
    if masks is None:
        raise UserError(f"{where} is {array.dtype} {array.shape}; expected masks of {EXPECTED}")
    return masks


def with_channels(inputs: NDArray, masks: Masks, where: str) -> tuple[NDArray, list[Note]]:
    """Return inputs with channels first, (N, channels, ...), for masks (N, ...), and notes.

    Inputs without channels get one; those with channels last are transposed, see `channels_first`.

    Raises
    ------
    UserError
        When the inputs' pixels are not those of the masks; ``where`` begins the message.
    """
    pixels = masks.shape[1:]
    sizes = (inputs.shape[1:], inputs.shape[2:], inputs.shape[1:-1])
    if len(inputs) == len(masks) and inputs.ndim <= masks.ndim + 1 and pixels in sizes:
        return channels_first(inputs, where.rpartition(": ")[2], pixels)
    raise UserError(
        f"{where} is {inputs.shape}, with masks {masks.shape}; expected as many inputs, each with the mask's "
        "pixels, with or without channels"
    )


def decoded(train: Split, test: Split, classes: Classes, notes: Sequence[Note] = ()) -> Decoded:
    """Return inputs (N, channels, ...) and `numbered` masks as a dataset: of images if uint8."""
    if train.columns["x"].dtype == np.uint8:
        return images_decoded(train, test, classes, notes)
    one, other, facts = columns_of(train.columns["x"], test.columns["x"])
    facts |= {"predicts": "masks", "outputs": classes.declared}
    train = replace(train, columns={**train.columns, **one})
    test = replace(test, columns={**test.columns, **other})
    return Decoded("numeric", train, test, facts, tuple(classes.names), tuple(notes))


def pixel_counts(masks: Masks, rows: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Return the number of pixels of each class in some rows, int64 (classes,); void ones are left out."""
    counts = np.zeros(256, np.int64)
    for row in rows:
        counts += np.bincount(masks[row].ravel(), minlength=256)
    return counts[:classes]
