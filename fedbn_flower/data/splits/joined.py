"""Join the training and the test examples of a dataset, of which cross-validation makes others."""

import numpy as np
from numpy.typing import NDArray

from ..dataset import Dataset, Decoded
from ..kinds import KINDS
from ..notes import WITHOUT_TEST, Note

TOO = Note("examples", "those of the test set that is given are divided into folds, too")


def joined(dataset: Dataset) -> Decoded:
    """Return all examples of a dataset as its training set, and none as its test set."""
    train, test = dataset.train, dataset.test
    columns = {name: _together(column, test.columns[name]) for name, column in train.columns.items()}
    notes = [note for note in dataset.notes if not note.text.startswith(WITHOUT_TEST)]
    return Decoded(
        next(name for name, kind in KINDS.items() if type(dataset.kind) is kind),
        columns,
        {name: column[:0] for name, column in columns.items()},
        dataset.kind.facts,
        _both(train.groups, test.groups),
        dataset.class_names,
        tuple(notes) if len(notes) < len(dataset.notes) else (*notes, TOO),
        units=_both(train.units, test.units),
        unit_names=train.unit_names,
        origins=_both(train.origins, test.origins),
        subgroups={
            name: (_together(words, test.subgroups[name]), words[:0])
            for name, words in train.subgroups.items()
        },
    )


def _together(one: NDArray, other: NDArray) -> NDArray:
    return np.concatenate([one, other])


def _both(one: NDArray | None, other: NDArray | None) -> tuple[NDArray, NDArray] | None:
    return None if one is None or other is None else (_together(one, other), other[:0])
