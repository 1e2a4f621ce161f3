"""Masks: the class of each pixel of an image, or of each voxel of a volume."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.problems.segmentation import VOID

from ..core.errors import UserError
from .dataset import Decoded, Groups
from .images.kind import Part, images_decoded
from .labels import Classes
from .notes import Note
from .rounding import columns_of

Masks = NDArray[np.uint8]
"""uint8 (N, height, width) or (N, depth, height, width); 255 is void, see `Segmentation`."""
MOST = 200
"""Classes; higher numbers are taken for grey values."""
LEAST_SHARE = 1 / 8
"""Of the class numbers up to the largest, those that occur; if fewer do, they are taken for grey values."""
EXPECTED = f"class numbers 0, 1, 2, ..., with {VOID} for pixels that do not count, or 0 and {VOID}"


def numbered(masks: Sequence[Masks], where: str) -> tuple[list[Masks], int, list[Note]]:
    """Return the masks of every split with class numbers, the number of classes, and notes.

    Masks of 0 and 255 alone, or of 255 alone, are of two classes: 255 becomes 1.

    Raises
    ------
    UserError
        When the values are not class numbers; ``where`` begins the message.
    """
    found = np.flatnonzero(sum(np.bincount(part.ravel(), minlength=256) for part in masks))
    if VOID in found and set(found.tolist()) <= {0, VOID}:
        note = Note("target", f"masks of 0 and {VOID} have two classes: {VOID} is class 1")
        return [(part == VOID).astype(np.uint8) for part in masks], 2, [note]
    numbers = found[found != VOID]
    classes = int(numbers.max(initial=0)) + 1
    if classes > MOST or len(numbers) < LEAST_SHARE * classes:
        some = ", ".join(map(str, found[:5].tolist())) + (", ..." if len(found) > 5 else "")
        values = f"the masks hold {len(found)} different values ({some})"
        raise UserError(f"{where}: {values}; expected {EXPECTED}")
    notes = [Note("left out", f"pixels of value {VOID} in the masks do not count")] if VOID in found else []
    if len(numbers) < classes:
        occur = f"only {len(numbers)} of the class numbers 0-{classes - 1} occur"
        notes.append(Note("target", f"{occur} in the masks; the model has {classes} outputs"))
    return list(masks), classes, notes


def as_masks(array: NDArray, where: str) -> Masks:
    """Return an array of whole numbers from 0 to 255, of any number type, as uint8.

    Raises
    ------
    UserError
        When it holds anything else; ``where`` begins the message.
    """
    masks = array.astype(np.uint8) if array.dtype.kind in "biuf" else None
    if masks is None or not array.size or (masks != array).any():
        raise UserError(f"{where} is {array.dtype} {array.shape}; expected masks of {EXPECTED}")
    return masks


def with_channels(inputs: NDArray, masks: Masks, where: str) -> NDArray:
    """Return inputs with channels first, (N, channels, ...), for masks (N, ...).

    Inputs without channels get one; those with channels last are transposed.

    Raises
    ------
    UserError
        When the inputs' pixels are not those of the masks; ``where`` begins the message.
    """
    pixels = masks.shape[1:]
    if len(inputs) == len(masks):
        if inputs.shape[1:] == pixels:
            return inputs[:, None]
        if inputs.ndim == masks.ndim + 1:
            if inputs.shape[2:] == pixels:
                return inputs
            if inputs.shape[1:-1] == pixels:
                return np.moveaxis(inputs, -1, 1)
    raise UserError(
        f"{where} is {inputs.shape}, with masks {masks.shape}; expected as many inputs, each with the mask's "
        "pixels, with or without channels"
    )


def decoded(
    train: Part, test: Part, classes: Classes, groups: Groups | None = None, notes: Sequence[Note] = ()
) -> Decoded:
    """Return inputs (N, channels, ...) and `numbered` masks as a dataset: of images if uint8."""
    if train[0].dtype == np.uint8:
        return images_decoded(train, test, classes, groups, notes)
    first, second, facts = columns_of(train[0], test[0])
    facts |= {"predicts": "masks", "outputs": classes.declared}
    return Decoded(
        "numeric",
        {**first, "y": train[1]},
        {**second, "y": test[1]},
        facts,
        groups,
        tuple(classes.names),
        tuple(notes),
    )


def pixel_counts(masks: Masks, rows: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Return the number of pixels of each class in some rows, int64 (classes,); void ones are left out."""
    counts = np.zeros(256, np.int64)
    for row in rows:
        counts += np.bincount(masks[row].ravel(), minlength=256)
    return counts[:classes]
