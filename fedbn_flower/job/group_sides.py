"""Count a run's groups, and warn if one is on both sides of a split."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..core.notes import GROUPED, Note
from ..core.text import number_of
from ..data.splits.groups import BY_NAME, grouped_by
from .inputs import RunInputs

Rows = NDArray[np.int64]


def sides_of(inputs: RunInputs) -> list[Rows]:
    """Return the training, validation and test rows, whether or not a client has them."""
    shares, every = inputs.partitions, np.arange(len(inputs.dataset.train))
    others = [shares.val_rows, *([shares.test_rows] if inputs.config.folds else [])]
    return [np.delete(every, np.concatenate(others)), shares.val_rows, shares.test_rows]


def of_groups(inputs: RunInputs, sides: Sequence[Rows]) -> Iterator[Note]:
    """Yield a line on the number of groups in training, validation and test rows, and across clients."""
    config, units = inputs.config, inputs.dataset.train.units
    if config.folds:
        yield Note("examples", f"fold {config.fold} of {config.folds} is tested on")
    by = grouped_by(config.group_column, config.dp_unit, units)
    if not by or units is None:
        return
    found = _by_side(inputs, sides)
    count = len(set().union(*found))
    line = f"{GROUPED} {number_of(count, 'value')} of {by!r}"
    if by.startswith(BY_NAME):
        line = f"{GROUPED} {count} by {by!r}"
    several = _on_both(found)
    on_both = f"{len(several)} on both sides" if several else "none on both sides"
    yield Note("examples", f"{line}, {on_both}{_at_several_clients(inputs)}")


def warn_about_groups_on_both(inputs: RunInputs, sides: Sequence[Rows]) -> Iterator[str]:
    """Yield a warning if a group has training and test rows, as a given test set may."""
    config = inputs.config
    if not (by := grouped_by(config.group_column, config.dp_unit, inputs.dataset.train.units)):
        return
    found = _by_side(inputs, sides)
    if several := _on_both(found):
        key = "split-by" if config.split_by else "dataset" if config.left_out < 0 else "left-out"
        where = ""
        if (site := config.left_out) >= 0:
            where = (
                f"with {inputs.client_names[site] if inputs.client_names else f'client {site}'} left out, "
            )
        groups = f"{where}{len(several)} of {len(set().union(*found))} groups by {by!r}"
        yield (
            f"{key}: leaks? {groups} have examples to train on and to test on: what is measured on them is "
            "no measure of new ones; leave them out of one of the two"
        )


def _by_side(inputs: RunInputs, sides: Sequence[Rows]) -> list[set[int]]:
    """Return the groups of each side; a site that is left out is tested on all of its rows."""
    (train, test), (*trained, tested) = _units(inputs), sides
    new = _left_out(inputs)
    found = [set(train[np.setdiff1d(rows, new)].tolist()) for rows in trained]
    return [*found, {*test[tested].tolist(), *train[new].tolist()}]


def _units(inputs: RunInputs) -> tuple[Rows, Rows]:
    train, test = inputs.dataset.train.units, inputs.dataset.test.units
    assert train is not None
    assert test is not None
    return train, test


def _left_out(inputs: RunInputs) -> Rows:
    """Return the rows of the training set at the site that is left out."""
    if inputs.data_path or (site := inputs.config.left_out) < 0:
        return np.empty(0, np.int64)
    return np.concatenate([inputs.partitions.train[site], inputs.partitions.val[site]])


def _on_both(found: Sequence[set[int]]) -> set[int]:
    """Return the groups that are on more than one side."""
    train, validation, test = found
    return (train & validation) | (train & test) | (validation & test)


def _at_several_clients(inputs: RunInputs) -> str:
    if inputs.data_path or not inputs.partitions.names:  # all partitions except natural ones divide groups
        return ""
    (train, test), shares = _units(inputs), inputs.partitions
    of_clients = [
        np.unique(np.concatenate([train[kept], train[validated], test[tested]]))
        for kept, validated, tested in zip(shares.train, shares.val, shares.test, strict=True)
    ]
    several = int((np.unique(np.concatenate(of_clients), return_counts=True)[1] > 1).sum())
    return f"; {several} of them with rows at several clients" if several else ""
