"""Convert labels to class numbers."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError
from ..core.free_memory import check_size
from ..core.text import number_of
from .notes import Note

Labels = NDArray[np.int64]
CLASS_NAMES = "classes.txt"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
"""A number, as a cell of a table has it."""
MAX_CLASSES = 100
"""Distinct texts, or whole numbers without a type that says what they are, that are read as classes."""


class Classes(NamedTuple):
    """What a source says about its classes.

    Parameters
    ----------
    declared : int
        The least number of classes, whichever occur.
    names : Sequence[str]
        The class names by class number; empty if the classes have no names.
    numbered_here : bool
        Whether the numbers follow from the names in these data, so that another site's may differ.
    """

    declared: int = 0
    names: Sequence[str] = ()
    numbered_here: bool = False


def number_names(names: Sequence[Any], column: str) -> tuple[Labels, Classes]:
    """Number classes by the order of their names, sorted as text.

    Raises
    ------
    UserError
        When a name is missing.
    """
    if missing := sum(name is None for name in names):
        raise UserError(f"label-column: {column!r} is empty in {number_of(missing, 'row')}")
    found, numbers = np.unique(np.asarray(names, dtype=np.str_), return_inverse=True)
    return numbers.astype(np.int64), Classes(len(found), found.tolist(), numbered_here=True)


def as_class_numbers(values: Sequence[Any], column: str) -> Labels:
    """Return the values as int64 class numbers.

    Raises
    ------
    UserError
        When a value is not a whole number >= 0.
    """
    try:
        given = np.asarray(values)
        labels = given.astype(np.int64)
        different = given.dtype.kind not in "biuf" or (given != labels).any()
    except (TypeError, ValueError):
        different = True
    if different:
        raise UserError(f"label-column: {column!r} holds neither class numbers nor class names")
    if len(labels) and labels.min() < 0:
        raise UserError(f"label-column: {column!r} holds the negative class {labels.min()}")
    return labels


def are_classes(values: NDArray) -> bool:
    """Return whether numbers (N,) are read as classes where nothing says what they are.

    They are if all are whole, and at most `MAX_CLASSES` are distinct.
    """
    whole = np.isfinite(values).all() and (values == np.floor(values)).all()
    return bool(whole) and len(np.unique(values)) <= MAX_CLASSES


def classes_of_folder(folder: Path, found: int) -> Classes:
    """Return the classes of a folder of which ``found`` occur, with the names of its ``classes.txt``.

    The file has a line for each class, in the order of their numbers. Without it they have no names.

    Raises
    ------
    UserError
        When it has fewer names than there are classes, or one of them twice, or is no text.
    """
    path = folder / CLASS_NAMES
    if not path.exists():
        return Classes(found)
    try:
        names = [
            line.strip() for line in check_size(path).read_text(encoding="utf-8").splitlines() if line.strip()
        ]
    except UnicodeDecodeError:
        raise UserError(f"dataset: {str(path)!r} is not a text in UTF-8") from None
    if len(names) < found or len(set(names)) < len(names):
        wanted = f"a different one for each of the {found} classes, a line each"
        raise UserError(f"dataset: {str(path)!r} has {len(names)} names; expected {wanted}")
    return Classes(len(names), names)


def same_word(word: str) -> str:
    """Return a word as it is compared: without case, and with no blanks around it and single ones in it."""
    return " ".join(word.split()).casefold()


def spelt_alike(words: Iterable[str]) -> list[list[str]]:
    """Return the groups of words that differ only in case or blanks."""
    same: dict[str, list[str]] = {}
    for word in words:
        same.setdefault(same_word(word), []).append(word)
    return [several for several in same.values() if len(several) > 1]


def alike(names: Iterable[str]) -> list[Note]:
    """Return a note on classes whose names differ only in case or blanks, if there are any."""
    found = [" and ".join(map(repr, several)) for several in spelt_alike(names)]
    return [Note("target", f"classes differ only in case or blanks: {'; '.join(found)}")] if found else []


def gaps(labels: Labels) -> list[Note]:
    """Return a note if class numbers below the largest do not occur, else an empty list.

    The numbers are kept: another site, or another run, may have examples of them.
    """
    classes = np.unique(labels)
    if not len(classes) or classes[-1] + 1 == len(classes):
        return []
    occur = f"only {len(classes)} of the class numbers 0-{classes[-1]} occur"
    return [Note("target", f"{occur}; the model has {classes[-1] + 1} outputs")]
