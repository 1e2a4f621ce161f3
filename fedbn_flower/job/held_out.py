"""The held-out examples of a run as models are given them, whole or in halves for cross-fitting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Examples, Prepare

from ..core.errors import UserError, not_allowed
from ..core.ground.columns import HALVES, VALIDATION
from ..core.process_cache import process_cache
from ..data.images.shift_spec import seen_by
from ..data.partition.shares import Shares
from ..data.splits.folds import folds_of_clients
from .inputs import RunInputs

Rows = NDArray[np.int64]


def whole_split(inputs: RunInputs, split: str) -> Examples:
    """Return all held-out examples of a split for the server."""
    return prepared_split(inputs, split, inputs.servers_prepare, None)


@process_cache(maxsize=16)
def prepared_split(inputs: RunInputs, split: str, prepare: Prepare, domain: int | None) -> Examples:
    """All held-out examples of a split with one preparation and one domain.

    Equal arguments give the same object, by whose identity evaluations are cached.
    """
    held_out, rows = inputs.dataset.test, inputs.partitions.test_rows
    if split == VALIDATION:
        held_out, rows = inputs.dataset.train, inputs.partitions.val_rows
    if split in HALVES:
        rows = half_of(inputs, rows, split)
    columns = seen_by(held_out.columns, inputs.config.feature_shift, domain)
    return Examples(columns, rows, prepare, device=inputs.config.device)


def half_of(inputs: RunInputs, rows: Rows, half: str) -> Rows:
    """Return the given test rows, of a client or of all, that are in a half (see `HALVES`).

    Each client's rows are halved separately, stratified by outcome, keeping groups together. A group of
    several clients is in the same half at all of them.

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
    """Return the half of each test row, 0 or 1, and -1 for rows that no client has, int64 (N,)."""
    split, config = inputs.dataset.test, inputs.config
    shares = shares if shares.sizes.all() else Shares.of([rows for rows in shares if len(rows)])
    try:
        return folds_of_clients(split.columns["y"], split.units, shares, len(HALVES), config.seed)
    except UserError as error:
        which = str(error).rpartition("the number of ")[2]
        raise not_allowed("best", config.best, f"another one: 1 is the number of test {which}") from None
