"""Pictures as a reader finds them, a row each of one frame, and the dataset that they become.

The frame has the columns ``split``, ``train`` or ``test``; ``origin``, see `origins`; and those of ``path``,
``mask``, ``label``, ``site`` and ``group``, the rows of which stay together, that there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError, not_allowed
from ..core.free_memory import check_fits
from ..core.notes import Note
from ..core.text import number_of
from ..data.dataset import Decoded, Request, Split
from ..data.images.kind import Part, images_decoded
from ..data.labels import Classes
from ..data.scans import patients_of
from ..data.splits import units_of
from ..data.splits.groups import PATIENT, pattern_of
from ..data.splits.origins import Origins
from .decoding import ImageFile
from .held_out import held_out_images
from .picture_names import of_patients

if TYPE_CHECKING:
    from pandas import DataFrame

FOLDER = "folder"
"""The column of a natural partition by folders of sites."""


class Whose(NamedTuple):
    """The group of each picture, (N,), or None where each is on its own; by what, and notes."""

    groups: NDArray | None
    by: str
    notes: list[Note]


def whose(request: Request, paths: Sequence[Path], root: Path, names: Sequence[str] = ()) -> Whose:
    """Return which pictures stay together: as the run says, or else those of one patient of DICOM files.

    Without either there is a note where the ``names``, by default the paths below ``root``, look like it.

    Raises
    ------
    UserError
        When a pattern does not fit a path, or a DICOM file cannot be read.
    """
    if request.unit_column:
        groups = groups_of_paths(request.unit_key, request.unit_pattern, paths, root)
        return Whose(groups, request.unit_pattern, [])
    groups = patients_of(paths)
    if groups is not None:
        return Whose(groups, PATIENT, [])
    return Whose(None, "", of_patients(names or [path.relative_to(root).as_posix() for path in paths]))


def refuse_other_sites(request: Request, has_sites: bool, without: str) -> None:
    """Refuse a natural partition that folders cannot give; ``without`` sites that is expected."""
    if request.group_column and not (has_sites and request.group_column == FOLDER):
        expected = f"'natural:{FOLDER}'" if has_sites else without
        raise not_allowed("partition", f"natural:{request.group_column}", expected)


def files_of(paths: Iterable[Path]) -> list[ImageFile]:
    """Return the files of pictures, called as their paths."""
    return [ImageFile(str(path), path) for path in paths]


def in_order(rows: DataFrame, root: Path) -> DataFrame:
    """Return the rows to train on, then those to test on, with the origins of their paths below a folder."""
    rows = rows.sort_values("split", key=lambda splits: splits != "train", kind="stable", ignore_index=True)
    return rows.assign(origin=list(of_paths(rows["path"], root)))


def by_split(rows: DataFrame, x: NDArray, y: NDArray) -> list[Part]:
    """Return inputs and targets of the training rows, and of the test rows if there are any."""
    count = int((rows["split"] == "train").sum())
    return [(x[:count], y[:count]), (x[count:], y[count:])] if count < len(rows) else [(x, y)]


def decoded_rows(
    request: Request,
    rows: DataFrame,
    parts: Sequence[Part],
    classes: Classes,
    notes: Sequence[Note],
    more_notes: Sequence[Note] = (),
    grouped_by: str = "",
    make: Callable[..., Decoded] = images_decoded,
) -> Decoded:
    """Return pictures as a dataset; without a test set a fifth is held out, see `held_out_images`.

    Parameters
    ----------
    rows : DataFrame
        The frame; training rows before test rows.
    parts : Sequence[Part]
        See `by_split`.
    notes, more_notes : Sequence[Note]
        Those before and after the one on what is held out.
    grouped_by : str
        What the column ``group`` is called; empty if there is none.
    make : Callable
        Called as `images_decoded`.
    """
    is_test = (rows["split"] == "test").to_numpy()
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    sites = rows["site"].to_numpy(np.str_) if "site" in rows else None
    groups = rows["group"].to_numpy(np.str_) if grouped_by else None
    held_out = []
    if not len(test):
        ((x, y),) = parts
        train, test, note = held_out_images(y, sites, groups, grouped_by)
        check_fits("dataset", f"a copy of {len(y):,} images", x.nbytes)
        parts, held_out = [(x[some], y[some]) for some in (train, test)], [note]
    of_rows = Split({}, sites if request.group_column else None, origins=rows["origin"].to_numpy(np.bytes_))
    if groups is not None:
        order = np.concatenate([train, test])
        units = units_of(groups[order])
        of_rows = replace(of_rows, units=units.numbers[np.argsort(order)], unit_names=units.names)
    first, second = (
        replace(of_rows.at(some), columns={"x": x, "y": y})
        for some, (x, y) in zip((train, test), parts, strict=True)
    )
    return make(first, second, classes, [*notes, *held_out, *more_notes])


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
