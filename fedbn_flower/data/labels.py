"""From the labels that data come with to class numbers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError

Labels = NDArray[np.int64]


class Classes(NamedTuple):
    """What is known of classes beside the labels.

    Parameters
    ----------
    declared : int
        At least so many there are.
    names : Sequence[str]
        By class number, where they have names.
    numbered_here : bool
        Whether the numbers come from the names that occur in these data: elsewhere they may be others.
    """

    declared: int = 0
    names: Sequence[str] = ()
    numbered_here: bool = False


def numbered(names: Sequence[Any], column: str) -> tuple[Labels, Classes]:
    """Class numbers of names: their places among the names, sorted as text.

    Raises
    ------
    UserError
        Where a name is missing.
    """
    if missing := sum(name is None for name in names):
        raise UserError(f"label-column: {column!r} is empty in {missing} rows")
    found, numbers = np.unique(np.asarray(names, dtype=np.str_), return_inverse=True)
    return numbers.astype(np.int64), Classes(len(found), found.tolist(), numbered_here=True)


def whole_numbers(values: Sequence[Any], column: str) -> Labels:
    """Class numbers as they are.

    Raises
    ------
    UserError
        Where they are no whole numbers >= 0.
    """
    try:
        given = np.asarray(values)
        labels = given.astype(np.int64)
        different = given.dtype.kind not in "biuf" or (given != labels).any()
    except (TypeError, ValueError):
        different = True
    if different:
        raise UserError(f"label-column: {column!r} holds no class numbers or names")
    if len(labels) and labels.min() < 0:
        raise UserError(f"label-column: {column!r} holds the negative class {labels.min()}")
    return labels


def gaps(labels: Labels) -> list[str]:
    """A line on class numbers that do not occur below the largest; none where all do.

    They are kept: another site, or another run, may have examples of them.
    """
    classes = np.unique(labels)
    if not len(classes) or classes[-1] + 1 == len(classes):
        return []
    occur = f"{len(classes)} of the class numbers 0-{classes[-1]} occur"
    return [f"labels: {occur}; the model has an output for each of the {classes[-1] + 1}"]
