"""What a table's rows are to predict: the words of ``--label-column`` and ``--predict``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....core.errors import UserError, not_allowed
from ...numeric import as_float32
from .features import Feature, as_text, check_words, is_number, numbered

if TYPE_CHECKING:
    from pandas import Series

LABEL_NAMES = ("label", "labels", "target", "class", "outcome", "y")
MOST_CLASSES = 100  # of whole numbers that are not said to be classes


@dataclass(frozen=True, eq=False)
class Targets:
    """``y``, int64 (N,) or float32 (N, 1), and what it is."""

    y: NDArray
    predicts: str
    outputs: int
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def label_feature(label_column: str, names: Sequence[str], where: str) -> Feature:
    """The column of the labels: ``NAME``, ``NAME=CLASS|CLASS``, or with ``auto`` the one with a usual name.

    Raises
    ------
    UserError
        When there is none, or more than one.
    """
    if label_column != "auto":
        return Feature.parse(label_column, names, "label-column")
    usual = [name for name in names if name.lower() in LABEL_NAMES]
    if len(usual) == 1:
        return Feature(usual[0])
    found = f"{' and '.join(map(repr, usual))} are" if usual else f"none of {', '.join(LABEL_NAMES)} is"
    raise UserError(f"label-column: {found} in {where!r}; name one of {', '.join(names)}")


def targets_of(column: "Series", label: Feature, predict: str, of_site: bool) -> Targets:
    """What the values of a column are, none missing: what ``predict`` says, or with ``auto`` classes where
    they are words, truth values or at most `MOST_CLASSES` whole numbers.

    Classes are numbered in the order of ``label.values``, or sorted; those of a site, whose others are not
    seen, must have numbers already, or be named.

    Raises
    ------
    UserError
        When they cannot be what they are to be.
    """
    number, notes = is_number(column), []
    values = column.to_numpy(np.float64) if number else np.empty(0)
    whole = number and bool(np.all(values == np.floor(values)))
    distinct = column.nunique()
    if predict == "auto":
        numbers = number and not label.values and not (whole and distinct <= MOST_CLASSES)
        predict = "numbers" if numbers else "classes"
        if whole and not label.values and (numbers or column.dtype.kind == "f"):
            other = "classes" if numbers else "numbers"
            told = f"{label.name!r} holds {distinct} different whole numbers, taken for {predict}"
            notes.append(f"label-column: {told} (predict={other} takes them for {other})")
    if predict == "numbers":
        figures = as_float32(values)[:, None]
        if not number or label.values:
            raise not_allowed("predict", predict, f"'classes': {label.name!r} does not hold numbers")
        if not np.isfinite(figures).all():
            raise UserError(f"label-column: {label.name!r} holds numbers that float32 does not have")
        return Targets(figures, predict, 1, notes=tuple(notes))
    if number and not whole:
        raise not_allowed("predict", predict, f"'numbers': {label.name!r} holds numbers that are not whole")
    if of_site and not label.values:
        if not whole or values.min() < 0:
            form = f"{label.name}=CLASS|CLASS"
            raise not_allowed("label-column", label.name, f"its classes too, the same for all sites: {form}")
        return Targets(values.astype(np.int64), predict, 1 + int(values.max()))
    if not label.values:
        present = np.unique(values).astype(np.int64).tolist() if number else sorted(set(as_text(column)))
        if not number:
            check_words(column, present, "label-column")
        if present == list(range(len(present))):
            return Targets(values.astype(np.int64), predict, len(present), notes=tuple(notes))
        label = Feature(label.name, tuple(map(str, present)))
        if number:
            notes.append(f"label-column: the classes {', '.join(label.values)} are numbered from 0")
    y = numbered(column, label, "label-column")
    return Targets(y, predict, len(label.values), label.values, tuple(notes))
