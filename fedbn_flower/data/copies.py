"""Find test examples that are training examples, too: what is measured on them is no measure of new ones."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Columns

from .dataset import Dataset
from .images.kind import Images
from .numeric import Numeric

BYTES = 2**30
"""Data of more bytes are not looked at."""
BLOCK = 2**22
"""Bytes that are hashed together."""
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
    trained, counts = np.unique(_hashes(train), return_counts=True)
    copies = int(np.isin(_hashes(test), trained).sum())
    again = int(counts[counts > 1].sum())
    rows, tests = len(dataset.train), len(dataset.test)
    share = (again + 0.5) / (rows + 1)
    if copies > 2 * share * tests and _is_chance_below(copies, tests, share):
        few = "is a training example, too" if copies == 1 else "are training examples, too"
        yield (
            f"dataset: {copies} of {tests} test examples {few}, inputs and target alike: what is measured on "
            "them is no measure of new examples; leave them out of one of the two"
        )


def _hashes(columns: Columns) -> NDArray[np.uint64]:
    """Return a hash of each example's bytes.

    It is made of the upper halves of two sums of random multiples of its words of 4 bytes, modulo 2^64:
    different examples hardly ever have equal ones, with a probability of about 2^-62 (Dietzfelbinger 1996).
    """
    found = np.zeros((len(next(iter(columns.values()))), 2), np.uint64)
    rng = np.random.default_rng(0)
    for _, column in sorted(columns.items()):
        content = np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint8)
        size = content.shape[1]
        words = -(-size // 4)
        factors = rng.integers(0, 2**64, (words, 2), np.uint64)
        rows = max(1, BLOCK // max(1, size))
        for start in range(0, len(content), rows):
            part = content[start : start + rows]
            padded = np.zeros((len(part), 4 * words), np.uint8)
            padded[:, :size] = part
            found[start : start + rows] += padded.view(np.uint32).astype(np.uint64) @ factors
    upper = found >> np.uint64(32)
    return upper[:, 0] << np.uint64(32) | upper[:, 1]


def _is_chance_below(copies: int, tests: int, share: float) -> bool:
    """Return whether at least so many copies among the tests, each with probability share < 1, are rare."""
    from scipy.special import bdtrc

    return bool(bdtrc(copies - 1, tests, share) < CHANCE)
