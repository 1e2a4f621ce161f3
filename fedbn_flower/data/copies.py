"""Find test examples that are training examples, too: what is measured on them is no measure of new ones."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from fedbn_flower.clients import Columns

from .dataset import Dataset
from .images.kind import Images
from .numeric import Numeric

BYTES = 2**30
"""Data of more bytes are not looked at."""
CHANCE = 1e-2
"""The probability of as many copies among rows that are drawn alike."""


def of_copies(dataset: Dataset) -> Iterator[str]:
    """Yield a warning if test examples are training examples, inputs and target alike.

    As many are expected as there are copies among the training examples: a table of few categories has most
    of its rows many times, whoever drew the test set, and a fifth that is held out has its share of what
    stands twice. So they are named if they are more than twice as many as expected, and if chance would
    hardly draw so many. Looked at are tables, arrays and pictures of at most `BYTES`.
    """
    train, test = dataset.train.columns, dataset.test.columns
    size = sum(column.nbytes for columns in (train, test) for column in columns.values())
    if not isinstance(dataset.kind, Numeric | Images) or size > BYTES or not len(dataset.test):
        return
    trained = Counter(_hashes(train))
    copies = sum(key in trained for key in _hashes(test))
    again = sum(count for count in trained.values() if count > 1)
    rows, tests = len(dataset.train), len(dataset.test)
    share = (again + 0.5) / (rows + 1)
    if copies > 2 * share * tests and _is_chance_below(copies, tests, share):
        few = "is a training example, too" if copies == 1 else "are training examples, too"
        yield (
            f"dataset: {copies} of {tests} test examples {few}, inputs and target alike: what is measured on "
            "them is no measure of new examples; leave them out of one of the two"
        )


def _hashes(columns: Columns) -> Iterator[int]:
    """Yield a hash of each example's bytes."""
    parts = [np.ascontiguousarray(column).reshape(len(column), -1) for _, column in sorted(columns.items())]
    for row in zip(*parts, strict=True):
        yield hash(b"".join(part.tobytes() for part in row))


def _is_chance_below(copies: int, tests: int, share: float) -> bool:
    """Return whether at least so many copies among the tests, each with probability share < 1, are rare."""
    from scipy.stats import binom

    return bool(binom.sf(copies - 1, tests, share) < CHANCE)
