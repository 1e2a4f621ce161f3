"""A dataset: its columns, and the problem to learn from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import PROBLEMS, Columns, Prepare, Problem
from fedbn_flower.clients.examples import Augment, as_they_are
from fedbn_flower.clients.modules.lazy_torch import torch

from ..core.errors import Conflict, UserError, not_allowed
from ..core.input_spec import InputSpec
from ..core.notes import Note
from ..core.text import visible
from .images.moments import Scale
from .images.shift_spec import PLAIN
from .splits import split_at_random
from .splits.groups import BY_NAME, crossed, strata_of
from .splits.origins import Origins
from .splits.split_by import SplitBy

Facts = Mapping[str, Any]
Rows = NDArray[np.int64]
Groups = tuple[NDArray[np.str_], NDArray[np.str_]]
PROBLEM_OF = {
    "classes": "classification",
    "numbers": "regression",
    "characters": "characters",
    "masks": "segmentation",
}
"""The name of the problem by what a model predicts, see `InputSpec`."""


GROUP_KEY = "group-column"
OF_TEXTS = ("encoding", "decimal", "thousands", "header_row", "date_format")
"""Fields of a `Request` that say how tables are written."""
COLUMNS = ("image_column", "label_column", "missing_values", *OF_TEXTS, "group_column")
"""Those that are of columns."""
KEYS_OF_TEXTS = tuple(name.replace("_", "-") for name in OF_TEXTS)


@dataclass(frozen=True)
class Request:
    """The keys of a run that decide what is read and how it is decoded.

    ``group_column`` is the column of a natural partition, ``unit_column`` that by whose values rows stay
    together, or a pattern (see `groups`), and ``unit_key`` the key that says so. With ``joined`` there is no
    test set, but one set of all examples. ``clients`` and ``seed`` are for generated data.
    ``of_site`` marks the data of one site among others that are not visible here: what all sites must agree
    on, such as class numbers, is not inferred from such data. Nor is it from ``private`` ones, under
    differential privacy: what decides the shape of a model would tell of single rows. ``predict_by`` is the
    key, with its value, that says what to predict, if it is another one; it stands in messages only, and in
    no name of the cache.
    """

    name: str
    image_column: str = "auto"
    label_column: str = "auto"
    image_size: int | str = 0
    group_column: str = ""
    clients: int = 0
    seed: int = 0
    feature_shift: str = PLAIN
    predict: str = "auto"
    columns: str = "auto"
    missing_values: str = "auto"
    of_site: bool = False
    unit_column: str = ""
    unit_key: str = "dp-unit"
    split_by: str = ""
    joined: bool = False
    private: bool = field(default=False, repr=False)
    """Not in the name of what is cached: it counts for a table only, see its `Source`."""
    predict_by: tuple[str, str] | None = field(default=None, repr=False, compare=False)
    spacing: float | str = 0.0
    window: str = "auto"
    subgroups: str = ""
    encoding: str = "auto"
    decimal: str = "auto"
    thousands: str = "auto"
    header_row: int = 0
    date_format: str = "auto"

    @property
    def sampling(self) -> tuple[int | str, float | str, str]:
        """The keys of `Sampling`."""
        return self.image_size, self.spacing, self.window

    @property
    def unit_pattern(self) -> str:
        """The pattern of paths by which rows stay together; empty where it is a column, or nothing."""
        return self.unit_column if self.unit_column.startswith(BY_NAME) else ""

    @property
    def no_inputs(self) -> dict[str, str]:
        """The columns of a table that ``columns`` must not name, each with the key that names it."""
        by = {SplitBy.parse(self.split_by).column: "column of split-by"} if self.split_by else {}
        unit = {self.unit_column: self.unit_key} if self.unit_column and not self.unit_pattern else {}
        return by | unit

    @property
    def columns_of_rows(self) -> list[str]:
        """The columns of a table that say of a row whose it is, or what it is for."""
        return [*filter(None, [self.group_column]), *self.no_inputs]

    @property
    def keeps_groups(self) -> bool:
        """Whether rows of a group stay together in every split, at one client, and evenly by outcome."""
        return bool(self.unit_column) and self.unit_key == GROUP_KEY

    def given(self, reason: str, *fields: str) -> Iterator[Conflict]:
        """Yield those of these fields that are given, and must not be, for a reason.

        Those of columns are passed over for a site, as they may be for another one.
        """
        for name in fields:
            value, default = getattr(self, name), getattr(Request, name)
            if value == default or (self.of_site and name in COLUMNS):
                continue
            if name == "group_column":
                yield Conflict("partition", f"natural:{value}", f"another partition: {reason}")
            else:
                yield Conflict(name.replace("_", "-"), value, f"{default!r}: {reason}")

    def misread(self, other: str, why: str) -> UserError:
        """Return the error for targets that cannot be predicted as it was asked, but only as ``other``."""
        if self.predict_by:
            return not_allowed(*self.predict_by, f"one that predicts {other}{why}")
        return not_allowed("predict", self.predict, f"{other!r}{why}")


@dataclass(frozen=True, eq=False)
class Split:
    """Examples, a row each: their columns, and what else is known of each row.

    Parameters
    ----------
    columns : Columns
        Of equal length, any dtype: ``x``, the inputs, and ``y``, the targets (int64 for classes, uint8 for
        masks).
    groups : NDArray[np.str_], optional
        The natural clients' ids, if a group column was requested.
    units : NDArray[np.int64], optional
        The unit of each row, if a unit column was requested.
    unit_names : NDArray[np.str_], optional
        What the units are called in the data, by number.
    origins : Origins, optional
        Where each row comes from; see `origins`.
    subgroups : Mapping[str, NDArray[np.str_]]
        The subgroup of each row, by attribute, if they were requested; see `splits.subgroups`. They are no
        part of what is learnt, nor of its digest.
    """

    columns: Columns
    groups: NDArray[np.str_] | None = None
    units: Rows | None = None
    unit_names: NDArray[np.str_] | None = None
    origins: Origins | None = None
    subgroups: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)

    def at(self, rows: Rows | slice) -> Split:
        """Return some of the rows."""
        return self._each(lambda values: values[rows])

    def and_then(self, other: Split) -> Split:
        """Return these rows and those of another split with the same columns."""
        return self._each(lambda *both: np.concatenate(both), other)

    def _each(self, change: Callable[..., NDArray], *others: Split) -> Split:
        """Return what a function makes of each array with a value for each row, of this split and others."""

        def of(name: str) -> NDArray | None:
            arrays = [getattr(split, name) for split in (self, *others)]
            return None if any(array is None for array in arrays) else change(*arrays)

        def by_name(name: str) -> dict[str, NDArray]:
            several = [getattr(split, name) for split in (self, *others)]
            return {key: change(*(arrays[key] for arrays in several)) for key in several[0]}

        columns, subgroups = map(by_name, ("columns", "subgroups"))
        return Split(columns, of("groups"), of("units"), self.unit_names, of("origins"), subgroups)

    def __len__(self) -> int:
        return len(self.columns["y"])

    def held_out(self, rng: np.random.Generator, rows: Rows, share: float, evenly: bool) -> tuple[Rows, Rows]:
        """Return a random share of these rows, and the others; both in random order.

        Rows of a unit stay together. ``evenly`` divides the units of each outcome and natural client alike.
        """
        strata = None
        if evenly:
            outcomes = strata_of(self.columns["y"][rows])
            strata = outcomes if self.groups is None else crossed(outcomes, self.groups[rows])
        units = None if self.units is None else self.units[rows]
        held_out, rest = split_at_random(rng, len(rows), share, units, strata)
        return rows[held_out], rows[rest]


@dataclass(frozen=True, eq=False)
class Decoded:
    """A decoded source, as it is written to the cache.

    Parameters
    ----------
    kind : str
        The name in `sources.KINDS`.
    train, test : Split
        The examples.
    facts : Mapping
        Further values that the kind needs, of JSON types.
    class_names : tuple[str, ...]
        The names of the classes, or of the labels or numbers, in their order; empty if they have none.
    notes : tuple[Note, ...]
        What to show whenever the data are used, beside what follows from the columns themselves.
    """

    kind: str
    train: Split
    test: Split
    facts: Facts
    class_names: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Integers:
    """Convert the inputs that ``prepare`` gives to int64.

    Raises
    ------
    ValueError
        When they are not whole numbers.
    """

    prepare: Prepare

    def __call__(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = self.prepare(columns)
        whole = inputs.long()
        if not torch.equal(whole.to(inputs.dtype), inputs):
            raise ValueError("the model takes whole numbers, and some inputs are others")
        return whole, targets


class Kind:
    """A kind of data: the meaning of its columns.

    Parameters
    ----------
    facts : Mapping
        `Decoded.facts`.
    train : Mapping[str, NDArray]
        The training set's columns.
    """

    trains_on_all: ClassVar[bool] = False
    """Whether all rows must be trained on, so that none can be held out for validation."""
    prepares_by_client: ClassVar[bool] = False
    """Whether `prepare` depends on the client's rows."""
    keys: ClassVar[frozenset[str]] = frozenset()
    """The run's keys that only this kind uses.

    A subclass with a `prepare` of its own that heeds ``normalize`` says so again.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "prepare" in vars(cls) and "keys" not in vars(cls):
            cls.keys = cls.keys - {"normalize"}
        for method in ("not_integers", "prepare_integers"):
            if "prepare" in vars(cls) and method not in vars(cls):
                setattr(cls, method, getattr(Kind, method))

    def __init__(self, facts: Facts, train: Columns) -> None:
        self.facts = facts
        self.train = train

    def spec(self) -> InputSpec:
        """Return the specification of the model's input and output."""
        raise NotImplementedError

    def problem(self, rows: Rows | None = None) -> Problem:
        """Return the problem to learn from these training rows, by default from all."""
        return PROBLEMS[PROBLEM_OF[self.spec().predicts]]()

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        """Return the function by which a client with these training rows turns a batch into tensors."""
        return as_they_are

    def not_integers(self, train: Columns, test: Columns) -> str:
        """Return why the inputs of these columns cannot go to a model as whole numbers; empty if they can."""
        return ""

    def prepare_integers(self, rows: Rows) -> Prepare:
        """Return what `prepare` does for a model that takes whole numbers, int64."""
        return Integers(self.prepare(rows, False))

    def notes(self, normalize: bool) -> tuple[Note, ...]:
        """Return what is to be said of the inputs as `prepare` makes them, beside `Dataset.notes`."""
        return ()

    @property
    def scale(self) -> Scale | None:
        """The mean and deviation by which all are standardised alike; None where nothing can be."""
        return None

    def moments(self) -> dict[str, NDArray]:
        """Return what a site tells of its training rows for the mean and deviation of all sites.

        Empty where nothing can be standardised.
        """
        return {}

    def of_rows(self, rows: Rows) -> Kind:
        """Return these data with a part of the training rows."""
        return type(self)(self.facts, {name: column[rows] for name, column in self.train.items()})

    def scaled_by(self, scale: Scale) -> Kind:
        """Return these data, to be standardised by another mean and deviation than this training set's."""
        return type(self)({**self.facts, **scale._asdict()}, self.train)

    def augmentation(self, name: str) -> Augment | None:
        """Return the augmentation of that name for training batches; None for no augmentation."""
        return None


class Event(NamedTuple):
    """The event of two classes, or of one label.

    Parameters
    ----------
    name : str
        The class, or its number where classes have no names; 0 or 1 of a label.
    number : int
        Its number, 0 or 1, in the targets.
    guessed : bool
        Whether nobody has said so.
    label : str
        Whose event it is, of several labels.
    """

    name: str
    number: int
    guessed: bool
    label: str = ""


@dataclass(frozen=True, eq=False)
class Dataset:
    """The two splits of a dataset, and the problem to learn from them."""

    spec: InputSpec
    problem: Problem
    kind: Kind
    train: Split
    test: Split
    folder: Path
    class_names: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    digest: str = ""
    """The hash of the columns; a resumed run checks that its data are unchanged."""
    names_here: tuple[str, ...] = ()
    """The names of the classes at a site whose server knows them by number."""
    events: tuple[Event, ...] = ()
    """The event of two classes, or of each label; see `outcome.event`. Empty of other data."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", tuple(map(visible, self.class_names)))

    @classmethod
    def without_examples(cls, spec: InputSpec) -> Dataset:
        """Return a dataset with no rows, for a server whose nodes hold the data."""
        empty = Split({"x": np.empty((0, *spec.shape)), "y": np.empty(0, np.int64)})
        return cls(spec, PROBLEMS[PROBLEM_OF[spec.predicts]](), Kind({}, empty.columns), empty, empty, Path())

    def of_site(self, expected: InputSpec, data_path: str) -> Dataset:
        """Return a site's dataset as a run expects it: the server knows classes by number.

        Raises
        ------
        UserError
            When the site's examples are others, or its class numbers may be.
        """
        found = self.spec
        same = (found.shape, found.predicts) == (expected.shape, expected.predicts)
        if not same or found.outputs > expected.outputs:
            raise not_allowed("data-path", data_path, f"examples of {expected}, not of {found}")
        if found.outputs < expected.outputs and self.kind.facts.get("numbered-here"):
            names = f"class numbers, or all {expected.outputs} class names"
            here = f"{names}: the {found.outputs} here are numbered anew"
            raise not_allowed("data-path", data_path, here)
        return replace(self, spec=expected, class_names=(), names_here=self.class_names)

    @property
    def splits(self) -> tuple[Split, ...]:
        """The sets that there are: of training and of test examples, or one of all."""
        return (self.train,) if self.test is self.train else (self.train, self.test)

    @property
    def has_examples(self) -> bool:
        return len(self.train) > 0

    @property
    def has_classes(self) -> bool:
        """Whether ``y`` holds class numbers."""
        return self.spec.predicts == "classes"

    @property
    def output_names(self) -> list[str]:
        """The names of the classes, labels or numbers, or their numbers from 0 if unnamed."""
        names = self.class_names
        return [names[i] if i < len(names) else str(i) for i in range(self.spec.outputs)]

    @property
    def outcomes(self) -> list[str]:
        """The `output_names` in the order of metrics and of cases: of two classes the event is the second."""
        turned = self.has_classes and any(event.number == 0 for event in self.events)
        return self.output_names[::-1] if turned else self.output_names

    @property
    def named_here(self) -> Dataset:
        """These data with the names of classes that a site knows, for its own files."""
        return replace(self, class_names=self.names_here or self.class_names)

    @property
    def has_masks(self) -> bool:
        """Whether ``y`` holds masks, see `masks`."""
        return self.spec.predicts == "masks"
