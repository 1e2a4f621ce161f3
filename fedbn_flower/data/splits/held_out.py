"""Split examples into a training set and a test set."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .folds import folds_of
from .groups import crossed, numbered, strata_of, usual

Rows = NDArray[np.int64]


def held_out_fifth(targets: NDArray, owners: NDArray | None = None) -> tuple[Rows, Rows]:
    """Return the training rows and the test rows, a fifth; both sorted, and the same on every call.

    The rows are shuffled, then sorted by owner and target, and every fifth is held out. So a fifth of each
    class, or of each part of the range of numbers, is held out, up to one row. An owner with a single row
    trains on it.

    Parameters
    ----------
    targets : NDArray
        The target of each row, shape (N,); or several, (N, targets), each combination of which is a class.
    owners : NDArray, optional
        The owner of each row, such as a client's id, shape (N,).
    """
    if targets.ndim > 1:
        targets = np.unique(targets, axis=0, return_inverse=True)[1].reshape(-1)
    shuffled = np.random.default_rng(0).permutation(len(targets))
    order = np.lexsort((shuffled, targets) if owners is None else (shuffled, targets, owners))
    test = np.sort(order[4::5])
    if owners is not None:
        test = test[np.isin(owners[test], np.delete(owners, test))]
    trains = np.ones(len(order), bool)
    trains[test] = False
    return np.flatnonzero(trains), test


class Units(NamedTuple):
    """Which rows belong together: the number of each row's unit, and the units' names by number."""

    numbers: Rows
    names: NDArray


def units_of(values: NDArray) -> Units:
    """Return the units of rows with such values, (N,), numbered as `numbered` does."""
    numbers = numbered(values)
    return Units(numbers, values[np.unique(numbers, return_index=True)[1]])


def held_out_units(targets: NDArray, units: NDArray, owners: NDArray | None = None) -> tuple[Rows, Rows]:
    """Return the training rows and the test rows, those of a fifth of the units, as `held_out_fifth`.

    A unit goes by the target and the owner of its first row.
    """
    units = numbered(units)
    first = np.unique(units, return_index=True)[1]
    _, test = held_out_fifth(targets[first], None if owners is None else owners[first])
    tested = np.isin(units, test)
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def held_out_groups(targets: NDArray, groups: NDArray, owners: NDArray | None = None) -> tuple[Rows, Rows]:
    """Return the training rows and the test rows: a fixed fifth of the groups, with all of their rows.

    Both have each target and owner in the same shares, as far as the groups allow: see `folds_of`.

    Raises
    ------
    UserError
        When there are fewer than five groups.
    """
    strata = strata_of(targets) if owners is None else crossed(strata_of(targets), owners)
    tested = folds_of(strata, 5, 0, numbered(groups), "group-column") == 0
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def split_at_random(
    rng: np.random.Generator,
    count: int,
    share: float,
    units: Rows | None = None,
    strata: Rows | None = None,
) -> tuple[Rows, Rows]:
    """Return a random share of so many rows, and the others; both in random order.

    Where rows have units, it is a share of these, each with all of its rows. With ``strata``, a number for
    each row, it is an even share of the units of each stratum, up to one; a unit goes by its most frequent
    one.
    """
    units = np.arange(count) if units is None else numbered(units)
    order = rng.permutation(1 + units.max(initial=-1))
    number = int(share * len(order))
    if strata is not None and number:
        sorted_units = order[np.argsort(usual(strata, units)[order], kind="stable")]
        taken = sorted_units[((np.arange(number) + 0.5) * len(order) / number).astype(np.int64)]
        order = np.concatenate([taken, order[~np.isin(order, taken)]])
    place = np.argsort(order)[units]
    rows: Rows = np.argsort(place, kind="stable")
    cut = np.count_nonzero(place < number)
    return rows[:cut], rows[cut:]
