"""The classes of files: numbered by name, or named by a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import UserError
from ..core.free_memory import check_size
from ..core.text import number_of
from ..data.labels import Classes, Labels

CLASS_NAMES = "classes.txt"


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
