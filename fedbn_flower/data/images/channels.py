"""Where the channels of an array of images are."""

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError
from ..notes import Note

MOST = 4
"""Channels of an array of images that has no masks to tell channels from pixels."""
USUAL = (1, 3)


def channels_first(images: NDArray, where: str, pixels: tuple[int, ...] = ()) -> tuple[NDArray, list[Note]]:
    """Return images as (N, channels, ...), and a note if another axis was the channels'.

    Parameters
    ----------
    images : NDArray
        (N, height, width), (N, channels, height, width) or (N, height, width, channels), any dtype; or
        volumes, which have a depth before the height, if ``pixels`` says so.
    where : str
        What they are, at the beginning of a message.
    pixels : tuple[int, ...]
        The sizes of an image without its channels, where masks tell them. Without them the channels are the
        first axis or the last of an image, whichever has 1 to `MOST`; if both have, then the one of 1 or 3,
        or else the first.

    Raises
    ------
    UserError
        When no axis can be the channels'.
    """
    sizes = images.shape[1:]
    if sizes == pixels or (not pixels and len(sizes) == 2):
        return images[:, None], []
    found = f"{where}, {images.dtype} {images.shape}"
    if pixels:
        first, last = sizes[1:] == pixels, sizes[:-1] == pixels
    else:
        first, last = (len(sizes) == 3 and 1 <= sizes[axis] <= MOST for axis in (0, -1))
        if first and last:
            first = sizes[0] in USUAL or sizes[-1] not in USUAL
            last = sizes[-1] in USUAL or sizes[0] not in USUAL
    if first:
        taken = f"the second axis of {found}, is taken for the channels, not the last"
        return images, [Note("inputs", taken)] if last and not pixels else []
    if not last:
        expected = f"1 to {MOST} channels before or after the pixels, or none"
        raise UserError(f"{found}, has no axis for the channels; expected {expected}")
    return np.moveaxis(images, -1, 1), [
        Note("inputs", f"the last axis of {found}, is taken for the channels")
    ]


def to_three_channels(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Repeat the channel of grey images three times; (N, channels, height, width)."""
    return images if images.shape[1] == 3 else np.repeat(images, 3, axis=1)
