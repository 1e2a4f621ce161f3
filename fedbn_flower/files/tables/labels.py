"""Parse ``--label-column`` and ``--predict``: the targets of a table."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed, unknown_name
from ...core.notes import Note
from ...data.column_text import Feature, joined, split_words
from ...data.dataset import Request
from ...data.float32 import as_float32
from ...data.labels import MAX_CLASSES, are_classes, same_word
from .header import is_a_header, is_unnamed
from .words import (
    alike,
    as_text,
    category_numbers,
    check_categories,
    first_alone,
    is_number,
    listed,
    read_as,
    refuse_nested,
)

if TYPE_CHECKING:
    from pandas import DataFrame, Series

FEW_CLASSES = 10
"""Distinct whole numbers that are hardly meant as anything but classes."""
LABEL_NAMES = ("label", "labels", "target", "class", "outcome", "y")


@dataclass(frozen=True, eq=False)
class Targets:
    """The targets ``y``, int64 (N,) or float32 (N, outputs), and what they mean."""

    y: NDArray
    predicts: str
    outputs: int
    class_names: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


def find_labels(label_column: str, names: Sequence[str], where: str) -> list[Feature]:
    """Return the label columns: ``NAME``, ``NAME=CLASS|CLASS``, ``NAME,NAME``, or for ``auto`` one of
    `LABEL_NAMES`.

    Raises
    ------
    UserError
        When there is no such column, one is given twice, or ``auto`` finds several.
    """
    if len(names) == 1 and len(names[0].split()) > 1 and not where.lower().endswith(".xlsx"):
        separated = "expected names with commas, semicolons, tabs or bars between them, as R's write.csv has"
        raise UserError(f"label-column: {where!r} has one column, {names[0]!r}; {separated}")
    if label_column != "auto":
        words = split_words(label_column)
        if label_column in names:
            return [Feature(label_column)]
        if len(words) == 1:
            return [Feature.parse(words[0], names, "label-column")]
        words = [word if word in names else word.strip() for word in words]
        if "=" in label_column and words[0] not in names:
            return [Feature.parse(label_column, names, "label-column")]
        if unknown := [word for word in words if word not in names]:
            raise unknown_name("label-column", unknown[0], names)
        if len(set(words)) < len(words):
            raise not_allowed("label-column", label_column, "each column once")
        return [Feature(word) for word in words]
    usual = [name for name in names if name.lower() in LABEL_NAMES]
    if len(usual) == 1:
        return [Feature(usual[0])]
    found = (
        f"the columns {' and '.join(map(repr, usual))}" if usual else f"no column {', '.join(LABEL_NAMES)}"
    )
    found += is_a_header(names)
    raise UserError(f"label-column: {where!r} has {found}; expected one of {', '.join(names)}")


@dataclass(frozen=True)
class Asked:
    """What the keys say of a table's columns; a key that does not fit them is refused where it is used.

    Parameters
    ----------
    labels : Sequence[Feature]
        The label columns.
    inputs : Sequence[Feature]
        The columns that ``columns`` names, or all that have a name.
    owners : Sequence[str]
        The columns that say of a row whose it is, or what it is for.
    """

    labels: Sequence[Feature]
    inputs: Sequence[Feature]
    owners: Sequence[str]

    @classmethod
    def of(cls, request: Request, names: Sequence[str]) -> "Asked":
        """Return what the keys say of columns of such names."""
        labels, inputs = list[Feature](), [Feature(name) for name in names if not is_unnamed(name)]
        with suppress(UserError):
            labels = find_labels(request.label_column, names, request.name)
        if request.columns != "auto":
            known = dict.fromkeys(names)
            with suppress(UserError):
                inputs = [Feature.parse(word, known, "columns") for word in split_words(request.columns)]
        return cls(labels, inputs, request.columns_of_rows)

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """The values that the keys name, by column."""
        return {one.name: one.values for one in (*self.labels, *self.inputs) if one.values}

    @property
    def label_names(self) -> list[str]:
        return [label.name for label in self.labels]

    @property
    def texts(self) -> list[str]:
        """The inputs whose values nobody names, in order."""
        others = {*self.label_names, *self.owners}
        return [one.name for one in self.inputs if not one.values and one.name not in others]

    @property
    def unnamed(self) -> list[str]:
        """These, and the labels whose values nobody names."""
        labels = (one.name for one in self.labels if not one.values)
        return [*self.texts, *(name for name in labels if name not in self.owners)]


def encode_several(columns: "DataFrame", request: Request) -> Targets:
    """Encode several columns without missing values as numbers; truth values are 0 and 1.

    Raises
    ------
    UserError
        When one does not hold numbers, or classes are asked for.
    """
    if request.predict == "classes":
        raise request.misread("numbers", f" with {columns.shape[1]} label columns")
    columns = columns.infer_objects()  # truth values beside missing ones were objects
    for name in columns:
        if not (is_number(columns[name]) or columns[name].dtype.kind == "b"):
            words = sorted(set(as_text(columns[name])))
            how = f": write 0 and 1 for {' and '.join(map(repr, words))}" if len(words) == 2 else ""
            raise UserError(f"label-column: {name!r} does not hold numbers, as each of several is to{how}")
    names = tuple(columns.columns)
    return Targets(_finite(columns.to_numpy(np.float64), names), "numbers", len(names), names)


def _finite(values: NDArray[np.float64], names: Sequence[str]) -> NDArray[np.float32]:
    """Round numbers (N, columns) to float32; UserError for those that are infinite or too large."""
    y = as_float32(values)
    for name, column in zip(names, y.T, strict=True):
        if not np.isfinite(column).all():
            raise UserError(
                f"label-column: {name!r} holds numbers that are infinite or too large for float32"
            )
    return y


def encode_targets(column: "Series", label: Feature, request: Request) -> Targets:
    """Encode a column without missing values as classes or numbers.

    ``request.predict`` says which. With ``auto``, truth values, at most `MAX_CLASSES` distinct texts, and
    numbers of which `are_classes` says so are classes. Classes are numbered in the order of
    ``label.values``, else in sorted order. The classes of one site must be numbers already, or be named, as
    the other sites' are not visible. Of private rows all classes are named, or it is said that they are
    numbers.

    Raises
    ------
    UserError
        When the values cannot be read as ``request.predict`` says.
    """
    refuse_nested(column, "label-column")
    _refuse_inference(label, request)
    number, notes = is_number(column), []
    values = column.to_numpy(np.float64) if number else np.empty(0)
    whole = number and bool(np.all(values == np.floor(values)))
    predict, stated = request.predict, request.predict != "auto"
    if not stated:
        numbers = number and not label.values and not are_classes(values)
        predict = "numbers" if numbers else "classes"
        distinct = column.nunique()
        if whole and not label.values and (numbers or column.dtype.kind == "f" or distinct > FEW_CLASSES):
            other = "classes" if numbers else "numbers"
            found = f"{label.name!r} holds {distinct} distinct whole numbers, read as {predict}"
            notes.append(Note("target", found, f"predict {other}"))
    if predict == "numbers":
        if not number or label.values:
            _refuse_joined(label.name, sorted(set(as_text(column))))
            raise request.misread("classes", f": {label.name!r} does not hold numbers")
        return Targets(_finite(values[:, None], [label.name]), predict, 1, notes=tuple(notes))
    if number and not whole:
        raise request.misread("numbers", f": {label.name!r} does not hold whole numbers")
    if request.of_site and not label.values:
        if not whole or values.min() < 0:
            form = f"{Feature(label.name)}=CLASS|CLASS"
            raise not_allowed(
                "label-column", label.name, f"the column with its classes, the same for all sites: {form}"
            )
        return Targets(values.astype(np.int64), predict, 1 + int(values.max()))
    if not label.values:
        present = np.unique(values).astype(np.int64).tolist()
        if not number:
            present = _texts(column, label.name, stated)
        if present == list(range(len(present))):
            return Targets(values.astype(np.int64), predict, len(present), notes=tuple(notes))
        label = Feature(label.name, tuple(map(str, present)))
        if number:
            notes.append(Note("target", f"the classes {', '.join(label.values)} are numbered from 0"))
    y = category_numbers(column, label, "label-column")
    if read := read_as(as_text(column), label.values):
        notes.append(Note("target", f"read without regard to case and blanks: {read}"))
    return Targets(y, predict, len(label.values), label.values, tuple(notes))


def _refuse_inference(label: Feature, request: Request) -> None:
    """Refuse to read from private rows whether a column holds classes, and which."""
    if request.private and not label.values and request.predict != "numbers":
        form = f"{Feature(label.name)}=CLASS|CLASS"
        wanted = f"the column with its classes, {form}, or predict 'numbers', since rows are private"
        raise not_allowed("label-column", label.name, wanted)


def _texts(column: "Series", name: str, stated: bool) -> list[str]:
    """Return the classes of a column of texts or truth values, sorted.

    Raises
    ------
    UserError
        When most are numbers or dates, some are several classes in one text, some differ in case or blanks
        only, or there are more than `MAX_CLASSES` and it is not ``stated`` that they are classes.
    """
    words = sorted(set(as_text(column)))
    other_way = f"name its classes: {Feature(name)}=CLASS|CLASS"
    check_categories(name, words, "label-column", other_way, first_alone(column))
    _refuse_joined(name, words)
    refuse_alike(name, words)
    if len(words) > MAX_CLASSES and not stated:
        found = f"{len(words)} distinct texts, such as {words[0]!r}; expected at most {MAX_CLASSES} classes"
        raise UserError(f"label-column: {name!r} holds {found}: problem=classification takes more")
    return words


def refuse_alike(name: str, words: Sequence[str]) -> None:
    """Refuse classes that differ only in case or blanks.

    Raises
    ------
    UserError
        Says how they are named.
    """
    if same := alike(words):
        form = joined([str(Feature(name, tuple(sorted({*map(same_word, words)}))))])
        found = f"{listed(same)}, which differ only in case or blanks"
        raise UserError(f"label-column: {name!r} holds {found}; expected classes with names: {form!r}")


def _refuse_joined(name: str, words: Sequence[str]) -> None:
    """Refuse several labels in one cell: texts whose parts, between bars or semicolons, occur again.

    Raises
    ------
    UserError
        When that is so of each part of half of the texts with such signs. It says how several are written.
    """
    for sign in "|;":
        parts = {word: [part.strip() for part in word.split(sign)] for word in words}
        joined_ones = [word for word in words if len(parts[word]) > 1]
        times = Counter(part for of_word in parts.values() for part in set(of_word))
        again = [word for word in joined_ones if all(times[part] > 1 for part in parts[word])]
        if again and 2 * len(again) >= len(joined_ones):
            one, other = parts[again[0]][:2]
            form = joined([one, other])
            raise UserError(
                f"label-column: {name!r} holds several labels in a cell, such as {again[0]!r}; write a "
                f"column of 0 and 1 for each label, and name these: label-column={form} with "
                "problem=multi-label"
            )
