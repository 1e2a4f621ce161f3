"""Made-up datasets of which only the labels matter."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedbn_flower.data import Dataset
from fedbn_flower.data.dataset import Split
from fedbn_flower.models import InputSpec

CLASSES = 5


def made(folder, train, test, train_ids=None, test_ids=None):
    """A dataset with these labels, and ids for a natural partition."""

    def split(labels, ids):
        return Split({"y": np.array(labels, np.int64)}, None if ids is None else np.array(ids))

    dataset = Dataset.without_examples(InputSpec((1,), CLASSES))
    return replace(dataset, train=split(train, train_ids), test=split(test, test_ids), folder=Path(folder))


def divided(labels, rows):
    """How many of each class each client has, shape (clients, classes)."""
    return np.array([np.bincount(labels[r], minlength=CLASSES) for r in rows])
