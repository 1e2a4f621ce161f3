"""Warn about unusual targets: labels as numbers, classes without training examples, one class per client."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ...core.listing import listed
from ..dataset import Dataset
from ..numeric import are_labels

MAX_SHOWN = 10


def of_targets(dataset: Dataset, shares: Sequence[NDArray[np.int64]], inferred: bool = True) -> Iterator[str]:
    """Yield notes on targets that are probably a mistake.

    These are one-hot rows and labels that would be learnt as numbers, if the problem is ``inferred`` from the
    data, classes that only the test set has, and clients with one class each. ``shares`` are the clients'
    training rows.
    """
    train, test = dataset.train.columns["y"], dataset.test.columns["y"]
    if dataset.spec.predicts == "numbers" and inferred and are_labels(train) and (train != train[0]).any():
        columns = train.shape[1]
        if _is_one_hot(train):
            yield (
                f"data: y looks one-hot (one 1 among {columns} numbers per row), but float targets are "
                "learnt by regression with squared error; for classes give y.argmax(1)"
            )
        else:
            yield (
                f"data: y has {columns} columns of 0 and 1, which are learnt as numbers by regression with "
                "squared error (problem=multi-label learns them as labels)"
            )
    if not dataset.has_classes:
        return
    if unseen := np.setdiff1d(test, train).tolist():
        names = listed([_name(dataset, number) for number in unseen], MAX_SHOWN)
        count = int(np.isin(test, unseen).sum())
        yield (
            f"labels: the training set has no examples of the class {names}, the test set "
            f"has {count}: no client can learn it"
        )
    if all(len(np.unique(train[rows])) == 1 for rows in shares):
        yield "partition: each client has examples of only one class: alone it cannot tell classes apart"


def _is_one_hot(labels: NDArray) -> bool:
    """Return whether each row is one 1 among zeros, and not always in the same column."""
    return bool((labels.sum(1) == 1).all()) and not labels.all(0).any()


def _name(dataset: Dataset, number: int) -> str:
    names = dataset.class_names
    return repr(names[number]) if number < len(names) else str(number)
