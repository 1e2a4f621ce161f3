"""A dataset as the rest of the house knows it: columns, and what is learnt from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import PROBLEMS, Columns, Prepare, Problem
from fedbn_flower.clients.examples import Augment, as_they_are

from ..core.input_spec import InputSpec
from .images.shift_spec import PLAIN

Facts = Mapping[str, Any]
Rows = NDArray[np.int64]
Groups = tuple[NDArray[np.str_], NDArray[np.str_]]
PROBLEM_OF = {"classes": "classification", "numbers": "regression", "characters": "characters"}
"""The name of the problem by what a model predicts, see `InputSpec`."""


@dataclass(frozen=True)
class Request:
    """What to read, and how: the keys of the run that decide what is decoded.

    ``group_column`` is that of a natural partition, ``clients`` and ``seed`` are for data that are made. Of
    data ``of_site`` a federation has others, which are not seen: what must be alike everywhere is not taken
    from them.
    """

    name: str
    image_column: str = "auto"
    label_column: str = "auto"
    image_size: int = 0
    group_column: str = ""
    clients: int = 0
    seed: int = 0
    feature_shift: str = PLAIN
    predict: str = "auto"
    columns: str = "auto"
    of_site: bool = False


@dataclass(frozen=True, eq=False)
class Decoded:
    """What a source gives, to be kept in the cache.

    Parameters
    ----------
    kind : str
        Of `kinds.KINDS`: what makes a problem of it.
    train, test : Mapping[str, NDArray]
        Columns of one length each, any dtype: ``x``, the inputs, and ``y``, the targets (int64 where they are
        classes).
    facts : Mapping
        What the kind needs to know beside the columns, as JSON holds it.
    groups : tuple[NDArray, NDArray], optional
        The natural clients' ids of both splits, as text.
    class_names : tuple[str, ...]
        By class number, where they have names.
    notes : tuple[str, ...]
        What a person is to be told whenever the data are used, a line each.
    """

    kind: str
    train: Columns
    test: Columns
    facts: Facts
    groups: Groups | None = None
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Kind:
    """A kind of data: what its columns mean.

    Parameters
    ----------
    facts : Mapping
        `Decoded.facts`.
    train : Mapping[str, NDArray]
        The training set's columns.
    """

    trains_on_all: ClassVar[bool] = False
    """Whether no row may be kept apart for validation."""
    prepares_by_client: ClassVar[bool] = False
    """Whether `prepare` goes by the client's own rows."""
    keys: ClassVar[frozenset[str]] = frozenset()
    """The keys of the run that are for this kind only."""

    def __init__(self, facts: Facts, train: Columns) -> None:
        self.facts = facts
        self.train = train

    def spec(self) -> InputSpec:
        """What a model is told."""
        raise NotImplementedError

    def problem(self, rows: Rows | None = None) -> Problem:
        """What is learnt from these training rows, by default from all."""
        return PROBLEMS[PROBLEM_OF[self.spec().predicts]]()

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        """How a client with these training rows turns rows into tensors."""
        return as_they_are

    def augmentation(self, name: str) -> Augment | None:
        """What changes the inputs of a training batch, by its name; None for nothing."""
        return None


@dataclass(frozen=True, eq=False)
class Split:
    """Columns, memory-mapped; ``groups`` holds the ids of natural clients where they were asked for."""

    columns: Columns
    groups: NDArray[np.str_] | None = None

    def __len__(self) -> int:
        return len(self.columns["y"])


@dataclass(frozen=True, eq=False)
class Dataset:
    """The two splits of a dataset, and what is learnt from them."""

    spec: InputSpec
    problem: Problem
    kind: Kind
    train: Split
    test: Split
    folder: Path
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    digest: str = ""
    """Of the columns' content: a run that is resumed finds the data that it was made with."""

    @classmethod
    def without_examples(cls, spec: InputSpec) -> "Dataset":
        """What a server knows of data that it does not have."""
        empty = Split({"x": np.empty((0, *spec.shape)), "y": np.empty(0, np.int64)})
        return cls(spec, PROBLEMS[PROBLEM_OF[spec.predicts]](), Kind({}, empty.columns), empty, empty, Path())

    @property
    def has_examples(self) -> bool:
        return len(self.train) > 0

    @property
    def has_classes(self) -> bool:
        """Whether ``y`` holds class numbers."""
        return self.spec.predicts == "classes"
