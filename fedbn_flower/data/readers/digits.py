"""The digits of scikit-learn: as they are, or as four scanners show them to four sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ...core.free_memory import check_fits
from ..dataset import Decoded, Request, Split
from ..images.kind import images_decoded
from ..images.sampling import Sampling
from ..splits import origins
from .made import check_group_column

DIGITS, SCANNERS = "digits", "scanners"
SITE = "site"
"""The column of the sites of `SCANNERS`, for a natural partition."""
TEST_SHARE = 0.2
COPIES = 3  # each image, all of them, and the two splits

Pixels = NDArray[np.uint8]
"""uint8 (N, height, width)."""
Seen = NDArray[np.float64]
"""The same as numbers, of which those below 0 and above 255 are cut off."""


def clear(scans: Seen, rng: Generator) -> Seen:
    """Show the scans as they are."""
    return scans


def faint(scans: Seen, rng: Generator) -> Seen:
    """Show a quarter of the contrast, on a bright ground."""
    return 160 + scans / 4


def noisy(scans: Seen, rng: Generator) -> Seen:
    """Add Gaussian noise with a standard deviation of a fifth of the range."""
    return scans + rng.normal(0, 255 / 5, scans.shape)


def coarse(scans: Seen, rng: Generator) -> Seen:
    """Show half the resolution: each square of four pixels is their mean."""
    count, height, width = scans.shape
    squares = scans.reshape(count, height // 2, 2, width // 2, 2).mean((2, 4))
    shown: Seen = squares.repeat(2, axis=1).repeat(2, axis=2)
    return shown


SITES: dict[str, Callable[[Seen, Generator], Seen]] = {
    "clear": clear,
    "faint": faint,
    "noisy": noisy,
    "coarse": coarse,
}
"""What the scanner of each site shows, by the site's name."""


def decode_digits(request: Request) -> Decoded:
    """Return the 1,797 digits of 8x8 pixels; a fixed, stratified fifth is the test set."""
    scans, labels = _digits()
    _check_size(len(scans), request.image_size)
    scans = _resized(scans, request.image_size)
    parts = _split(scans, labels, origins.of_items(DIGITS, len(scans)))
    return _decoded(parts)


def decode_scanners(request: Request) -> Decoded:
    """Return the same digits, divided evenly among four sites, each of which has another scanner.

    The division, stratified by digit, is fixed, and so is the fifth of each site's digits that is its test
    set. With another column than ``site`` asked for, nobody has them.

    Raises
    ------
    UserError
        For a natural partition by another column.
    """
    from sklearn.model_selection import StratifiedKFold

    check_group_column(request, SITE)
    scans, labels = _digits()
    _check_size(len(scans), request.image_size)
    folds = StratifiedKFold(len(SITES), shuffle=True, random_state=0).split(scans, labels)
    found = []
    for (site, show), (_, rows) in zip(SITES.items(), folds, strict=True):
        shown = show(scans[rows].astype(np.float64), np.random.default_rng([0, *site.encode()]))
        seen = np.rint(shown).clip(0, 255).astype(np.uint8)
        places = origins.of_items(DIGITS, rows)
        found.append(_split(_resized(seen, request.image_size), labels[rows], places))
    parts = list(map(np.concatenate, zip(*found, strict=True)))
    if not request.group_column:
        return _decoded(parts)
    return _decoded(parts, [np.repeat([*SITES], [len(part[split]) for part in found]) for split in (2, 3)])


def _decoded(parts: Sequence[NDArray], groups: Sequence[NDArray[np.str_] | None] = (None, None)) -> Decoded:
    """Return what `_split` does as a dataset."""
    train, test, train_labels, test_labels, *places = parts
    each = zip((train, test), (train_labels, test_labels), groups, places, strict=True)
    first, second = (Split({"x": x[:, None], "y": y}, ids, origins=rows) for x, y, ids, rows in each)
    return images_decoded(first, second)


def _digits() -> tuple[Pixels, NDArray[np.int64]]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target.astype(np.int64)


def _check_size(count: int, image_size: int | str) -> None:
    """Refuse images of a size of which there is not memory for all."""
    for size in Sampling(image_size).sizes(2)[:1]:
        check_fits("image-size", f"{count:,} digits of {size}x{size}", COPIES * count * size**2)


def _resized(scans: Pixels, image_size: int | str) -> Pixels:
    """Return the images in ``image_size`` pixels each way; 0 leaves them as they are."""
    from PIL import Image

    if not (sizes := Sampling(image_size).sizes(2)):
        return scans
    size = sizes[0]
    return np.stack([np.asarray(Image.fromarray(scan).resize((size, size))) for scan in scans])


def _split(scans: Pixels, labels: NDArray[np.int64], places: origins.Origins) -> list[NDArray]:
    """Return training and test images, then training and test labels, then where they come from."""
    from sklearn.model_selection import train_test_split

    parts: list[NDArray] = train_test_split(
        scans, labels, places, test_size=TEST_SHARE, random_state=0, stratify=labels
    )
    return parts
