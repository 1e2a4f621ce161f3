"""The test set of data that come without one."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


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
