"""Which examples are for training and which for testing."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError
from .images.decoding import alike

Rows = NDArray[np.int64]
Arrays = tuple[NDArray, ...]
TEST_NAMES = ("test", "validation", "valid", "val")
"""What a held-out split may be called, the most wanted first."""


def test_split(names: Sequence[str]) -> tuple[str | None, list[str]]:
    """Which of these splits is the test set, and a line on it where it has another name."""
    found = next((name for name in TEST_NAMES if name in names), None)
    told = found not in (None, TEST_NAMES[0])
    return found, [f"dataset: the split {found!r} is the test set"] if told else []


def both_splits(parts: Sequence[Arrays]) -> tuple[Arrays, Arrays, list[str]]:
    """Training and test set of images, labels and whatever else stands beside them; of one part, a fifth of
    each class is held out, which a line tells.

    Raises
    ------
    UserError
        With fewer than five examples.
    """
    images = alike(part[0] for part in parts)
    whole = [(x, *part[1:]) for x, part in zip(images, parts, strict=True)]
    if len(whole) == 2:
        return whole[0], whole[1], []
    labels = whole[0][1]
    train, test = held_out_fifth(labels)
    if len(labels) < 5:
        raise UserError(f"dataset: {len(labels)} examples without a test split; expected at least 5")
    told = f"dataset: no test split; {len(test)} of {len(labels)} examples, a fifth of each class, are it"
    return tuple(a[train] for a in whole[0]), tuple(a[test] for a in whole[0]), [told]


def held_out_fifth(targets: NDArray, owners: NDArray | None = None) -> tuple[Rows, Rows]:
    """The rows to train on and a fifth to test on, always the same ones, both in order.

    Every fifth of the shuffled rows in the order of owners, then targets: each class, or each part of the
    range of numbers, has a fifth of its own held out, up to one row. An owner of one row trains on it.

    Parameters
    ----------
    targets : NDArray
        Of the N rows: shape (N,).
    owners : NDArray, optional
        Whose each row is, shape (N,).
    """
    shuffled = np.random.default_rng(0).permutation(len(targets))
    order = np.lexsort((shuffled, targets) if owners is None else (shuffled, targets, owners))
    test = np.sort(order[4::5])
    if owners is not None:
        test = test[np.isin(owners[test], np.delete(owners, test))]
    return np.setdiff1d(order, test), test
