"""What is surprising of what a dataset's examples are to predict."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .dataset import Dataset

SHOWN = 10


def of_targets(dataset: Dataset, shares: Sequence[NDArray[np.int64]]) -> Iterator[str]:
    """A line on one-hot rows that are learnt as numbers, on classes that only the test set has, and on
    clients that have one class each; ``shares`` are the clients' training rows."""
    train, test = dataset.train.columns["y"], dataset.test.columns["y"]
    if dataset.spec.predicts == "numbers" and _is_one_hot(train):
        yield (
            f"data: each y is one 1 among {train.shape[1]} numbers, as classes are one-hot, but floats are "
            "learnt as numbers, by their squared error; y.argmax(1) gives class numbers"
        )
    if not dataset.has_classes:
        return
    if unseen := np.setdiff1d(test, train).tolist():
        names = [_name(dataset, number) for number in unseen[:SHOWN]]
        more = f" and {len(unseen) - SHOWN} more" if len(unseen) > SHOWN else ""
        count = int(np.isin(test, unseen).sum())
        yield (
            f"labels: the training set has no example of the class {', '.join(names)}{more}, the test set "
            f"has {count}: no client learns it"
        )
    if all(len(np.unique(train[rows])) == 1 for rows in shares):
        yield "partition: each client has examples of one class only: alone it learns to tell nothing apart"


def _is_one_hot(y: NDArray) -> bool:
    """Whether each row is one 1 among zeros, and not always at the same place."""
    ones = y == 1
    one_each = y.shape[1] > 1 and bool((ones | (y == 0)).all() and (ones.sum(1) == 1).all())
    return one_each and not ones.all(0).any()


def _name(dataset: Dataset, number: int) -> str:
    names = dataset.class_names
    return repr(names[number]) if number < len(names) else str(number)
