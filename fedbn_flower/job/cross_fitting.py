"""Halves of the held-out examples, for ``best cross-fitted``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError, not_allowed
from ..core.ground.columns import HALVES
from ..core.process_cache import process_cache
from ..data.partition.shares import Shares
from ..data.splits.folds import folds_of_clients

if TYPE_CHECKING:
    from .inputs import RunInputs

Rows = NDArray[np.int64]


def half_of(inputs: RunInputs, rows: Rows, half: str) -> Rows:
    """Return those of a client's test rows, or of all of them, that are in a half, of `HALVES`.

    Each client's are halved by themselves, evenly by outcome, with groups in one half. A group of several
    clients is in one half at all of them.

    Raises
    ------
    UserError
        For ``best``, when a client has fewer than two examples or groups.
    """
    numbers = _halved(inputs, Shares.of([rows])) if inputs.data_path else _halves(inputs)
    kept: Rows = rows[numbers[rows] == HALVES.index(half)]
    return kept


@process_cache(maxsize=4)
def _halves(inputs: RunInputs) -> Rows:
    shares = inputs.partitions
    return _halved(inputs, shares.test if inputs.evaluates_locally else Shares.of([shares.test_rows]))


def _halved(inputs: RunInputs, shares: Shares) -> Rows:
    """Return the half of each test row, 0 or 1, and -1 of rows that no client has, int64 (N,)."""
    split, config = inputs.dataset.test, inputs.config
    shares = shares if shares.sizes.all() else Shares.of([rows for rows in shares if len(rows)])
    try:
        return folds_of_clients(split.columns["y"], split.units, shares, len(HALVES), config.seed)
    except UserError as error:
        which = str(error).rpartition("the number of ")[2]
        raise not_allowed("best", config.best, f"another one: 1 is the number of test {which}") from None
