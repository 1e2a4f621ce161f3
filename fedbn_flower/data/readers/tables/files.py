"""Find the files of a table, one or one for each site, and join what they hold."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....core.errors import UserError
from ...dataset import Request
from ...images.decoding import is_image
from ...notes import Note
from ...walk import walk
from ..class_folders import FOLDER
from .header import is_unnamed
from .table_file import PARQUET, ReadTable, is_table, open_table, stem, words_taken
from .words import listed

if TYPE_CHECKING:
    from pandas import DataFrame

FILE = "file"
"""The column of a natural partition by file, where each site has a file of its own; `FOLDER` is the same."""
SPLITS = ("train", "test")
SHARD = re.compile(r"\w+-\d{5}-of-\d{5}")

Files = Mapping[str, Mapping[str, Path]]
"""The files of the splits, ``train`` and perhaps ``test``, by site; one file alone has the site ``""``."""


def table_files(path: Path) -> Files:
    """Return the files of a table; empty if there is none.

    A file is the table ``train``. A folder without pictures, neither as files nor in the tables, may hold

    - ``train`` and perhaps ``test``;
    - one table;
    - a table for each site, ``lyon.csv`` and ``turin.csv``, or these in folders ``train`` and ``test``;
    - a folder for each site with ``train`` and perhaps ``test``.
    """
    if path.is_file():
        return {"train": {"": path}} if is_table(path) else {}
    if not path.is_dir():
        return {}
    found = _of_folder(path)
    files = [file for by_site in found.values() for file in by_site.values()]
    if any(map(has_pictures, files)) or not files:
        return {}
    return {} if any(map(is_image, walk(path).files)) else found


def _of_folder(folder: Path) -> Files:
    tables = _tables(folder)
    if "train" in tables:
        return {split: {"": tables[split]} for split in SPLITS if split in tables}
    if tables:
        if any(map(SHARD.fullmatch, tables)):  # parts of one table, as the hub has them
            return {}
        return {"train": tables if len(tables) > 1 else dict.fromkeys([""], *tables.values())}
    below = {path.name: _tables(path) for path in sorted(folder.iterdir()) if path.is_dir()}
    if "train" in below:
        found = {split: below.get(split, {}) for split in SPLITS}
    else:
        sites = {site: tables for site, tables in below.items() if "train" in tables}
        found = {s: {site: tables[s] for site, tables in sites.items() if s in tables} for s in SPLITS}
    return {split: by_site for split, by_site in found.items() if by_site} if found["train"] else {}


def _tables(folder: Path) -> dict[str, Path]:
    """Return the tables in a folder by their names without ending."""
    return {stem(path): path for path in sorted(folder.iterdir()) if path.is_file() and is_table(path)}


def has_pictures(path: Path) -> bool:
    """Return whether it is a Parquet file with a column of bytes or structs, as the hub's pictures are in."""
    if not path.is_file() or not path.name.lower().endswith(PARQUET):
        return False
    import pyarrow
    from pyarrow import parquet, types

    try:
        fields = parquet.read_schema(path).types
    except (OSError, pyarrow.ArrowException):
        return False  # reported by `open_table`
    return any(types.is_struct(t) or types.is_binary(t) or types.is_large_binary(t) for t in fields)


def are_sites(files: Files) -> bool:
    """Return whether each site has a file."""
    return "" not in files["train"]


@dataclass(frozen=True, eq=False)
class Joined:
    """The rows of all files.

    Parameters
    ----------
    table : DataFrame
        Training rows, then test rows. With a file for each site, and the request for it, a column says which.
    is_test : NDArray
        Which rows are test rows, bool (N,).
    parts : Sequence[ReadTable]
        The files.
    notes : list[Note]
        What was left out of the files, and whose they are.
    """

    table: "DataFrame"
    is_test: NDArray[np.bool_]
    parts: Sequence[ReadTable]
    notes: list[Note]

    def words_taken(self, columns: Sequence[str]) -> dict[str, Counter[str]]:
        """Count the words of all files, see `ReadTable.words_taken`."""
        return words_taken(self.parts, columns)


def joined_tables(request: Request, files: Files) -> Joined:
    """Read the files of a table.

    Raises
    ------
    UserError
        When one cannot be read, or lacks a column of another.
    """
    import pandas as pd

    places = [(split, site) for split, by_site in files.items() for site in by_site]
    read = [open_table(files[split][site], request) for split, site in places]
    notes = [note for part in read for note in part.notes]
    _check_columns(read, every=are_sites(files))
    named = [n for n in read[0].frame if not is_unnamed(n) or all(n in part.frame for part in read)]
    for part in read:
        if alone := [name for name in part.frame if is_unnamed(name) and name not in named]:
            notes.append(Note("left out", f"{listed(alone)} of {part.path.name!r}, without a name"))
    frames = [part.frame if list(part.frame) == named else part.frame[named] for part in read]
    table = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    sizes = [len(frame) for frame in frames]
    if are_sites(files):
        group, sites = request.group_column, list(dict.fromkeys(site for _, site in places))
        if group in (FILE, FOLDER) and group not in table:
            table = table.assign(**{group: np.repeat([site for _, site in places], sizes)})
        elif not group:
            found = f"the tables of {len(sites)} sites are joined: {listed(sites)}"
            notes.append(Note("clients", found, f"partition natural:{FILE}"))
    return Joined(table, np.repeat([split == "test" for split, _ in places], sizes), read, notes)


def _check_columns(parts: Sequence[ReadTable], every: bool) -> None:
    """Refuse files that lack a column of the first one, or with ``every`` one of any."""
    first, *others = ({name: None for name in part.frame if not is_unnamed(name)} for part in parts)
    for part, names in zip(parts[1:], others, strict=True):
        lacks = [name for name in first if name not in names]
        more = [name for name in names if name not in first]
        if lacks and not every:
            raise UserError(f"dataset: {str(part.path)!r} has no column {lacks[0]!r}")
        if every and (lacks or more):
            of_one = ((parts[0], lacks), (part, more))
            only = ", ".join(f"only {str(p.path)!r} has {listed(own)}" for p, own in of_one if own)
            raise UserError(f"dataset: {only}; expected the same columns in each table")
