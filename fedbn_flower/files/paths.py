"""What paths of pictures say: whose they are, and where a person finds them again."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError
from ..core.text import number_of
from ..data.splits.groups import pattern_of
from ..data.splits.origins import Origins


def groups_of_paths(key: str, text: str, paths: Sequence[Path], root: Path) -> NDArray[np.str_] | None:
    """Return what a key's pattern finds in the path of each picture within its folder; None without one.

    Raises
    ------
    UserError
        When a path does not have the pattern, or its group is empty.
    """
    pattern = pattern_of(key, text)
    if not pattern:
        return None
    names = [path.relative_to(root).as_posix() for path in paths]
    found = [(match.group(1) or "") if (match := pattern.search(name)) else "" for name in names]
    if odd := [name for name, group in zip(names, found, strict=True) if not group]:
        lacks = f"{odd[0]!r} ({len(odd)} of {number_of(len(names), 'picture')})"
        raise UserError(f"{key}: {pattern.pattern!r} finds no group in {lacks}")
    return np.array(found, np.str_)


def of_paths(paths: Iterable[Path], root: Path) -> Origins:
    """Return the paths of files below a folder, with slashes."""
    return np.array([os.fsencode(path.relative_to(root).as_posix()) for path in paths], np.bytes_)
