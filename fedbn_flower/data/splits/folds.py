"""Cross-validation: parts of all examples, of which a run is tested on one."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...core.errors import not_allowed
from .groups import crossed, strata_of

if TYPE_CHECKING:
    from ..partition.shares import Shares

Rows = NDArray[np.int64]


def folds_of(strata: Rows, folds: int, seed: int, units: Rows | None, key: str, whose: str = "") -> Rows:
    """Return the fold of each row, from 0 on, int64 (N,).

    Each stratum is divided evenly, up to one row, by scikit-learn's StratifiedKFold. Where rows have units,
    all rows of one are in one fold, and the strata are as even as StratifiedGroupKFold makes them.

    Parameters
    ----------
    strata : Rows
        A number for each row, such as its class.
    folds, seed : int
        How many there are, and what decides which rows are in which.
    units : Rows, optional
        The number of each row's group, from 0 on.
    key, whose : str
        The key that a refusal names, and whose rows these are.

    Raises
    ------
    UserError
        When there are fewer rows, or groups, than folds.
    """
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, StratifiedKFold

    number = len(strata) if units is None else len(np.unique(units))
    if number < folds:
        what = "examples" if units is None else "groups"
        if key == "folds":
            raise not_allowed(key, folds, f"at most {number}, the number of {what}{whose}")
        raise not_allowed(key, f"{number} {what}", f"at least {folds}, of which a fifth is held out")
    if np.bincount(strata).max() < folds:
        strata = np.zeros_like(strata)  # no stratum could be in each fold
    found = np.empty(len(strata), np.int64)
    split = StratifiedKFold if units is None else StratifiedGroupKFold
    with warnings.catch_warnings(action="ignore"):  # of strata that are not in each fold
        parts = [
            rows for _, rows in split(folds, shuffle=True, random_state=seed).split(strata, strata, units)
        ]
    if not all(map(len, parts)):  # one group has more of a stratum than a fold
        parts = [rows for _, rows in GroupKFold(folds).split(strata, strata, units)]
    for fold, rows in enumerate(parts):
        found[rows] = fold
    return found


def folds_of_clients(targets: NDArray, by: Rows | None, shares: Shares, folds: int, seed: int) -> Rows:
    """Return the fold of each row of a dataset, -1 for those that no client has, int64 (N,).

    Each client's rows are divided by themselves, evenly by outcome. Where several clients have rows of one
    group, all clients' are divided together, evenly by client and outcome.

    Parameters
    ----------
    targets : NDArray
        Of all rows, (N, ...).
    by : Rows, optional
        The number of each row's group, (N,).
    shares : Shares
        The rows of each client.
    folds, seed : int
        How many there are, and what decides which rows are in which.

    Raises
    ------
    UserError
        When a client has fewer examples, or groups, than folds.
    """
    found = np.full(len(targets), -1, np.int64)
    strata = strata_of(targets)
    for client, rows in enumerate(shares):
        whose = f" of client {client}"
        units = None if by is None else np.unique(by[rows], return_inverse=True)[1]
        found[rows] = folds_of(strata[rows], folds, seed, units, "folds", whose)
    if by is None or not _are_shared(by, shares):
        return found
    rows = np.concatenate(list(shares))
    clients = np.repeat(np.arange(len(shares)), shares.sizes)
    units = np.unique(by[rows], return_inverse=True)[1]
    found[rows] = folds_of(crossed(clients, strata[rows]), folds, seed, units, "folds")
    return found


def _are_shared(units: Rows, shares: Shares) -> bool:
    """Return whether several clients have rows of one group."""
    return sum(len(np.unique(units[rows])) for rows in shares) > len(np.unique(units[shares.rows]))
