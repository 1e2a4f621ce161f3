"""Agreement of two masks of a case: overlap, and the distances between their surfaces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NAN = float("nan")
CASE_DICE, SURFACE_DICE, HD95 = "case-dice", "surface-dice", "hd95"
PERCENTILE = 95
ROUNDING = 1e-9
"""Relative, of a distance that is the tolerance."""
OF_A_KIND = 3
"""How many of the best, of the median and of the worst cases are shown."""
MOST_PIXELS = 128
"""A side of a slice that is shown, above which it is thinned out."""


def agreement(
    prediction: NDArray[np.bool_],
    reference: NDArray[np.bool_],
    spacing: Sequence[float] = (),
    tolerance: float = 1.0,
) -> tuple[float, float, float]:
    """Return Dice, surface Dice and HD95 of a class in one case.

    The surface of a mask consists of its pixels that have a neighbour along an axis outside the mask or the
    image. Distances are between the centres of pixels.

    - Surface Dice: the share of both surfaces' pixels that lie within the tolerance of the other surface
      (Nikolov et al. 2021, doi:10.2196/26151, with pixels instead of surface elements).
    - HD95: the larger of the two directed 95th percentiles of the distances (Maier-Hein et al. 2024, Metrics
      Reloaded, doi:10.1038/s41592-023-02151-z); linear between two distances.

    Both masks empty: all three are NaN, since the class does not occur. One of them empty: Dice and surface
    Dice are 0, and HD95 is NaN, since there is no distance.

    Parameters
    ----------
    prediction, reference : NDArray[bool]
        The masks, (height, width) or (depth, height, width).
    spacing : Sequence[float]
        Millimetres between the pixels of each axis; without it distances are in pixels.
    tolerance : float
        In the same unit.
    """
    from scipy import ndimage

    both = prediction | reference
    pixels = int(prediction.sum()) + int(reference.sum())
    if not pixels:
        return NAN, NAN, NAN
    if not (prediction.any() and reference.any()):
        return 0.0, 0.0, NAN
    dice = 2 * int((prediction & reference).sum()) / pixels
    box = ndimage.find_objects(both.astype(np.uint8))[0]  # no surface, and so no distance, lies outside
    first, second = (mask & ~ndimage.binary_erosion(mask) for mask in (prediction[box], reference[box]))
    sampling = tuple(spacing) or None
    to_second, to_first = (
        ndimage.distance_transform_edt(~other, sampling)[own]
        for own, other in ((first, second), (second, first))
    )
    within = tolerance * (1 + ROUNDING)
    close = int((to_second <= within).sum()) + int((to_first <= within).sum())
    farthest = max(float(np.percentile(distances, PERCENTILE)) for distances in (to_second, to_first))
    return dice, close / (len(to_second) + len(to_first)), farthest


def agreement_by_class(
    prediction: NDArray[np.uint8],
    reference: NDArray[np.uint8],
    classes: int,
    spacing: Sequence[float] = (),
    tolerance: float = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the `agreement` of each class but 0, (classes - 1, 3), and its pixels, (classes - 1, 2).

    The pixels are those of the reference and of the prediction.
    """
    values, sizes = np.full((classes - 1, 3), NAN), np.zeros((classes - 1, 2), np.int64)
    for number in range(1, classes):
        said, true = prediction == number, reference == number
        sizes[number - 1] = true.sum(), said.sum()
        values[number - 1] = agreement(said, true, spacing, tolerance)
    return values, sizes


def mean_of_defined(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over the rows, (k,) of (n, k), of the values that are not NaN."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(defined, values, 0).sum(axis=0) / defined.sum(axis=0))


def fullest_slices(inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the index of the slice with the most pixels inside, (n,), for masks (n, depth, height, width).

    Among equal ones it is the one nearest to the middle.
    """
    depth = inside.shape[1]
    middle = -np.abs(np.arange(depth) - depth // 2)
    return np.asarray((inside.sum(axis=(2, 3)) * 2 * depth + middle).argmax(1), np.int64)


def thinned(images: NDArray) -> NDArray:
    """Return images (..., height, width) with every nth pixel, `MOST_PIXELS` a side at most."""
    step = max(1, -(-max(images.shape[-2:]) // MOST_PIXELS))
    return images[..., ::step, ::step]


def shown_cases(dice: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the numbers of the best, the median and the worst cases, best first; of few cases all.

    Cases whose Dice is NaN are left out. Among equal ones the first counts as the better.
    """
    order = np.argsort(-dice, kind="stable")[: int((~np.isnan(dice)).sum())]
    if len(order) <= 3 * OF_A_KIND:
        return order
    middle = (len(order) - OF_A_KIND) // 2
    kinds = (order[:OF_A_KIND], order[middle : middle + OF_A_KIND], order[-OF_A_KIND:])
    return np.concatenate(kinds)
