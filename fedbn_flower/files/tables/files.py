"""Find the files of a table, one or one for each site, and join what they hold."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core.errors import Conflict, UserError, not_allowed, refuse
from ...core.files import path_of
from ...core.notes import Note
from ...core.text import number_of
from ...data.dataset import Request
from ...data.splits import origins
from ..decoding import is_image
from ..pictures import FOLDER
from ..walk import walk
from .doubts import refuse_thousands, refuse_totals
from .header import is_unnamed
from .missing import AUTO
from .table_file import PARQUET, ReadTable, at_once, is_table, open_table, stem
from .words import as_text, check_categories, is_number, listed, refuse_nested
from .written import unread_texts

if TYPE_CHECKING:
    from pandas import DataFrame

FILE = "file"
"""The column of a natural partition by file, where each site has a file of its own; `FOLDER` is the same."""
MOST_FILES = 5
"""Files of which one line says what is wrong."""
SPLITS = ("train", "test")
SHARD = re.compile(r"\w+-\d{5}-of-\d{5}")
PART = re.compile(r"(chunk|part|piece|shard|slice)[-_ .]?\d+([-_.].*)?", re.IGNORECASE)
"""Names of files that are parts of one table, as Spark and Dask write them: `part-00000-1f2e.c000.snappy`."""
HELD_OUT = re.compile(
    r"(?<![a-z])(test(ing)?|val(id(ation)?)?|hold[ _-]?out)(s?daten|[ _-]?(data|set))?(?![a-z])",
    re.IGNORECASE,
)
"""Names of tables that are no sites, but examples for testing."""

Files = Mapping[str, Mapping[str, Path]]
"""The files of the splits, ``train`` and perhaps ``test``, by site; one file alone has the site ``""``."""


def table_files(path: Path) -> Files:
    """Return the files of a table; empty if there is none.

    A file is the table ``train``. A folder without pictures, neither as files nor in the tables, may hold

    - ``train`` and perhaps ``test``;
    - one table;
    - a table for each site, ``lyon.csv`` and ``turin.csv``, or these in folders ``train`` and ``test``;
    - a folder for each site with ``train`` and perhaps ``test``, or with one table.

    ``train`` and ``test`` may be in any case, such as ``TRAIN.csv``.
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
    if splits := _by_split(tables):
        return {split: {"": path} for split, path in splits.items()}
    if tables:
        if any(map(SHARD.fullmatch, tables)):  # parts of one table, as the hub has them
            return {}
        return {"train": tables if len(tables) > 1 else dict.fromkeys([""], *tables.values())}
    below = {path.name: _tables(path) for path in sorted(folder.iterdir()) if path.is_dir()}
    if of_split := _by_split(below):
        found = of_split
    elif sites := {site: splits for site, tables in below.items() if (splits := _by_split(tables))}:
        found = {s: {site: paths[s] for site, paths in sites.items() if s in paths} for s in SPLITS}
    else:
        found = {"train": _one_each(below)}
    return {split: by_site for split, by_site in found.items() if by_site} if found["train"] else {}


Found = TypeVar("Found")


def _by_split(named: Mapping[str, Found]) -> dict[str, Found]:
    """Return what is called ``train`` and ``test``, in any case; nothing without ``train``."""
    lower = {name.lower(): found for name, found in sorted(named.items())}
    return {split: lower[split] for split in SPLITS if split in lower} if "train" in lower else {}


def _one_each(below: Mapping[str, Mapping[str, Path]]) -> dict[str, Path]:
    """Return the table of each folder, if each that has any has one, and several have."""
    tables = {site: list(found.values()) for site, found in below.items() if found}
    if len(tables) < 2 or any(len(found) > 1 for found in tables.values()):
        return {}
    return (
        {}
        if any(SHARD.fullmatch(name) for found in below.values() for name in found)
        else {site: path for site, (path,) in tables.items()}
    )


def _tables(folder: Path) -> dict[str, Path]:
    """Return the tables in a folder by their names without ending."""
    return {stem(path): path for path in sorted(folder.iterdir()) if path.is_file() and is_table(path)}


def unread_tables(path: Path, files: Files) -> list[Path]:
    """Return the tables in a folder that are not among the files that are read, sorted."""
    used = {file for by_site in files.values() for file in by_site.values()}
    return [file for file in walk(path).files if is_table(file) and file not in used] if path.is_dir() else []


def has_pictures(path: Path) -> bool:
    """Return whether it is a Parquet file with a column of bytes or structs, as the hub's pictures are in."""
    if not path.is_file() or not path.name.lower().endswith(PARQUET):
        return False
    import pyarrow
    from pyarrow import parquet, types

    try:
        fields = parquet.read_schema(path.absolute()).types
    except (OSError, pyarrow.ArrowException):
        return False  # reported by `open_table`
    return any(
        (types.is_struct(t) and t.get_field_index("bytes") >= 0)
        or types.is_binary(t)
        or types.is_large_binary(t)
        for t in fields
    )


def are_sites(files: Files) -> bool:
    """Return whether each site has a file."""
    return "" not in files["train"]


def name_sites(files: Files) -> bool:
    """Return whether each site has a file, and the files are not called as parts of one table."""
    return bool(files) and are_sites(files) and not _are_parts(files)


def _are_parts(files: Files) -> bool:
    """Return whether the files are called as the parts of one table are."""
    found = [(site, path) for by_site in files.values() for site, path in by_site.items()]
    return all(site == stem(path) and PART.fullmatch(site) for site, path in found)


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

    def origins(self, request: Request) -> origins.Origins:
        """Return the file and the row of each row of the table."""
        root, paths = path_of(request.name), [part.path for part in self.parts]
        names = [path.name if path == root else path.relative_to(root).as_posix() for path in paths]
        return np.concatenate([part.origins(name) for part, name in zip(self.parts, names, strict=True)])


def joined_tables(request: Request, files: Files) -> Joined:
    """Read the files of a table.

    Raises
    ------
    UserError
        When one cannot be read, or lacks a column of another.
    """
    import pandas as pd

    _refuse_held_out(request, files)
    places = [(split, site) for split, by_site in files.items() for site in by_site]
    read = _opened(request, [files[split][site] for split, site in places])
    notes = [*_unread(request, files), *(note for part in read for note in part.notes)]
    refuse(_unused(request, read))
    _check_columns(read, every=are_sites(files))
    for part in read:
        refuse_totals(part)
    _check_types(read)
    for part in read if request.decimal == AUTO else ():
        refuse_thousands(part)
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
            if _are_parts(files):
                parts = f"another partition: by their names {listed(sites)} are parts of one table"
                raise not_allowed("partition", f"natural:{group}", parts)
            table = table.assign(**{group: np.repeat([site for _, site in places], sizes)})
            notes.append(Note("clients", f"the tables of {listed(sites)} are read as sites"))
        elif _are_parts(files):
            notes.append(
                Note("examples", f"{len(sites)} files are read as parts of one table: {listed(sites)}")
            )
        elif not group:
            found = f"the tables of {len(sites)} sites are joined: {listed(sites)}"
            notes.append(Note("clients", found, f"partition natural:{FILE}"))
    elif request.group_column in (FILE, FOLDER) and request.group_column not in table:
        used = listed([part.path.name for part in read])
        are = "is read" if len(read) == 1 else "are read"
        wanted = f"another partition: of {request.name!r} {used} {are}, and no tables of sites"
        raise not_allowed("partition", f"natural:{request.group_column}", wanted)
    return Joined(table, np.repeat([split == "test" for split, _ in places], sizes), read, notes)


def _unread(request: Request, files: Files) -> list[Note]:
    """Return a note on the tables of the folder that are not read."""
    folder = path_of(request.name)
    if not (unread := unread_tables(folder, files)):
        return []
    several = "the table" if len(unread) == 1 else "the tables"
    names = listed([path.relative_to(folder).as_posix() for path in unread])
    used = [path.relative_to(folder).as_posix() for by_site in files.values() for path in by_site.values()]
    are = "is read" if len(used) == 1 else "are read"
    return [Note("left out", f"{several} {names}: {listed(used)} {are}")]


def _unused(request: Request, parts: Sequence[ReadTable]) -> Iterator[Conflict]:
    """Yield keys that say how a text or a sheet is written where there is none."""
    if not any(part.layout for part in parts):
        sheets = any(part.is_sheet for part in parts)
        reason = f"{parts[0].path.name!r} says it itself"
        yield from request.given(reason, "encoding", *() if sheets else ("header_row",))


def _opened(request: Request, paths: Sequence[Path]) -> list[ReadTable]:
    """Read the files; what is wrong with several of them is said at once.

    So are several columns of texts that are numbers or dates; one is refused where it is used.
    """
    read, wrong = [], []
    for path in paths:
        try:
            read.append(table := open_table(path, request))
            if len(unread := unread_texts(table.frame, {*table.asked.texts})) > 1:
                raise UserError(f"dataset: {str(path)!r}: {'; '.join(unread)}")
        except UserError as error:
            wrong.append(str(error))
    if wrong:
        more = f"; and {number_of(len(wrong) - MOST_FILES, 'more file')}" if len(wrong) > MOST_FILES else ""
        raise UserError(f"{at_once(wrong[:MOST_FILES])}{more}")
    return read


def _refuse_held_out(request: Request, files: Files) -> None:
    """Refuse a table for testing among those of sites: it would be trained on.

    Raises
    ------
    UserError
        Says how the files are called instead.
    """
    if not are_sites(files) or "test" in files:
        return
    for site, path in files["train"].items():
        if HELD_OUT.search(site):
            name = path.relative_to(path_of(request.name)).as_posix()
            raise UserError(
                f"dataset: of {len(files['train'])} tables of {request.name!r} {name!r} is called as a test "
                "set; expected 'train' and 'test' as whole names: of two tables, as train.csv and test.csv, "
                "or of two folders with the tables of sites"
            )


def _check_columns(parts: Sequence[ReadTable], every: bool) -> None:
    """Refuse files that lack a column of the first one, or with ``every`` one of any."""
    named = [{name: None for name in part.frame if not is_unnamed(name)} for part in parts]
    if every:
        _check_odd_one(parts, named)
    first, *others = named
    for part, names in zip(parts[1:], others, strict=True):
        lacks = [name for name in first if name not in names]
        more = [name for name in names if name not in first]
        if lacks and not every:
            raise UserError(f"dataset: {str(part.path)!r} has no column {lacks[0]!r}")
        if every and (lacks or more):
            of_one = ((parts[0], lacks), (part, more))
            only = ", ".join(f"only {str(p.path)!r} has {listed(own)}" for p, own in of_one if own)
            raise UserError(f"dataset: {only}; expected the same columns in each table")


def _check_odd_one(parts: Sequence[ReadTable], named: Sequence[Mapping[str, None]]) -> None:
    """Refuse a table whose columns are others than those of most tables, if most have the same."""
    usual, count = Counter(map(frozenset, named)).most_common(1)[0]
    if 2 * count <= len(parts):
        return
    for part, names in zip(parts, named, strict=True):
        lacks = sorted(usual - names.keys())
        more = [name for name in names if name not in usual]
        found = [f"lacks {listed(lacks)}"] * bool(lacks) + [f"has {listed(more)}"] * bool(more)
        if found:
            others = f"unlike {count} of {len(parts)} tables"
            wanted = "expected the same columns in each table"
            raise UserError(f"dataset: {str(part.path)!r} {' and '.join(found)}, {others}; {wanted}")


def _check_types(parts: Sequence[ReadTable]) -> None:
    """Refuse a table that has text in a column of numbers, as others have it: perhaps decimal commas."""
    for name in parts[0].asked.unnamed if len(parts) > 1 else ():
        texts = [part for part in parts if name in part.frame and not is_number(part.frame[name])]
        texts = [part for part in texts if part.frame[name].notna().any()]
        numbers = [part for part in parts if name in part.frame and part not in texts]
        if not (texts and any(part.frame[name].notna().any() for part in numbers)):
            continue
        for part in texts:
            where = f"dataset: {str(part.path)!r}"
            refuse_nested(part.frame[name], where)
            words = sorted(set(as_text(part.frame[name].dropna())))
            check_categories(name, words, where)
            found = (
                f"holds text in {name!r}, such as {words[0]!r}, and {str(numbers[0].path)!r} holds numbers"
            )
            raise UserError(f"{where} {found}; expected the same kind in each table")
