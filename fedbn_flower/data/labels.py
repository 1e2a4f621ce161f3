"""Convert labels to class numbers."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.notes import Note

Labels = NDArray[np.int64]
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


def are_classes(values: NDArray) -> bool:
    """Return whether numbers (N,) are read as classes where nothing says what they are.

    They are if all are whole, and at most `MAX_CLASSES` are distinct.
    """
    whole = np.isfinite(values).all() and (values == np.floor(values)).all()
    return bool(whole) and len(np.unique(values)) <= MAX_CLASSES


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
