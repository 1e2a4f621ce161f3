"""The test set of data that come without one."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def held_out_fifth(*strata: NDArray) -> tuple[Rows, Rows]:
    """The rows to train on and a fifth to test on, always the same ones, both in order.

    Every fifth of the shuffled rows in the order of the strata, the first before the second: each class, or
    each part of the range of numbers, has a fifth of its own held out, up to one row.

    Parameters
    ----------
    *strata : NDArray
        Of one length N, such as the ids of clients, then the targets.
    """
    shuffled = np.random.default_rng(0).permutation(len(strata[0]))
    order = np.lexsort((shuffled, *reversed(strata)))
    test = np.sort(order[4::5])
    return np.setdiff1d(order, test), test
