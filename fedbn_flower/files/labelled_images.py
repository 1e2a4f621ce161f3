"""Read images with a table of their labels: a folder with pictures and a table that names them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import UserError, unknown_name
from ..core.notes import Note
from ..core.text import number_of
from ..data.dataset import Decoded, Request
from ..data.images.kind import images_decoded
from ..data.labels import Classes, gaps
from ..data.splits import units_of
from .decoding import ImageDecoder, is_image, is_image_name, name_of_image
from .held_out import of_split_columns, split_folders
from .pictures import files_of, of_paths, whose
from .tables.header import is_unnamed
from .tables.labelled import labelled_rows
from .tables.labels import LABEL_NAMES
from .tables.table_file import ReadTable, is_table, open_table, stem
from .tables.words import is_nested
from .walk import Walk

if TYPE_CHECKING:
    from pandas import DataFrame, Series

LOOKED_AT = 1000  # values of a column, to see whether it names pictures
DECIDES = {"predict numbers": "problem regression", "predict classes": "problem classification"}
"""The key that says how the labels of pictures are read, by the one for a table without pictures."""
BY_SPLIT = "for that give the rows as tables 'train.csv' and 'test.csv'"
LEAST_NAMED = 1 / 5
"""Of the pictures, those that a column of names without suffixes has; numbers may look like names."""


@dataclass(frozen=True, eq=False)
class Named:
    """A table that names pictures.

    Parameters
    ----------
    read : ReadTable
        The table.
    column : str
        The column that names the pictures.
    score : int
        How many different pictures it names, of `LOOKED_AT` values; 0 for none.
    """

    read: ReadTable
    column: str
    score: int

    @property
    def path(self) -> Path:
        return self.read.path

    @property
    def table(self) -> "DataFrame":
        return self.read.frame

    def has_labels(self, request: Request) -> bool:
        if request.label_column != "auto":
            return bool(self.read.asked.labels)
        return any(name.lower() in LABEL_NAMES for name in self.table)

    def has_stated(self, request: Request) -> bool:
        """Return whether it has a column that a key names."""
        return request.image_column in self.table or (
            request.label_column != "auto" and self.has_labels(request)
        )


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables that name a folder's pictures, of one split or two, and notes on their choice."""

    train: Named
    test: Named | None = None
    notes: list[Note] = field(default_factory=list)


class Pictures:
    """A folder's pictures, found by what a table calls them."""

    def __init__(self, found: Walk) -> None:
        self.root = found.root
        self.paths = [path for path in found.files if is_image(path)]
        self._by_name: dict[str, list[tuple[tuple[str, ...], Path]]] = {}
        for path in self.paths:
            folders, stem = found.parts(path)[:-1], name_of_image(path)
            numbers = [str(int(stem))] if stem.isdecimal() and stem.isascii() else []
            for name in {path.name, stem, *numbers}:
                self._by_name.setdefault(name.casefold(), []).append(((*folders, name), path))

    def __len__(self) -> int:
        return len(self.paths)

    def in_folder(self, value: object) -> str:
        """Return the path of a picture in a folder that a value names; empty if there is no such folder."""
        name = "/".join(_parts(value))
        for path in self.paths:
            folders = path.parent.relative_to(self.root).as_posix()
            if name and f"/{folders}".endswith(f"/{name}"):
                return path.relative_to(self.root).as_posix()
        return ""

    def series_of(self, value: object) -> str:
        """Return the folder of a series of which a value names a slice; empty if it names none."""
        above = self.find("/".join(_parts(value)[:-1]))
        return above[0].relative_to(self.root).as_posix() if len(above) == 1 and above[0].is_dir() else ""

    def find(self, value: object) -> list[Path]:
        """Return the pictures that a value may mean: one, none, or several.

        It is a path in the folder, or a longer one that ends so, or the end of such a path, such as a file
        name alone; with or without the suffix. Backslashes separate folders, too. Numbers may lack zeros.
        """
        parts = _parts(value)
        if not parts:
            return []
        places = self._by_name.get(parts[-1].casefold(), [])
        places = [place for place in places if place[0][-1] == parts[-1]] or places
        ends = [(known, path) for known, path in places if _one_ends_with_the_other(known[:-1], parts[:-1])]
        exact = [path for known, path in ends if known == parts]
        return list(dict.fromkeys(exact or (path for _, path in ends)))


def _parts(value: object) -> tuple[str, ...]:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # whole numbers beside an empty cell
    return PurePosixPath(str(value).strip().replace("\\", "/")).parts


def _one_ends_with_the_other(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    shared = min(len(one), len(other))
    return not shared or one[-shared:] == other[-shared:]


def tables_of_images(request: Request, found: Walk) -> Tables | None:
    """Return the tables at the top of a folder that name its pictures; None if there are none.

    A column does so if at least half of its values name pictures; without suffixes it also names a fifth of
    the pictures. Of several tables it is ``train``, with ``test`` if that has labels, else the one that names
    most pictures. A table with a column ``file_name`` called ``metadata`` is read by the `datasets` library.

    With ``label-column`` or ``image-column`` the table decides, whatever the folders say. A site may lack
    such columns, as other sites may have them.

    Raises
    ------
    UserError
        When such a key is given, and no table fits it; or when several tables fit equally.
    """
    paths = [path for path in found.files if path.parent == found.root and is_table(path)]
    pictures = Pictures(found)
    if not paths or not len(pictures):
        return None
    opened = [open_table(path, request) for path in paths]
    looked = [_look(request, read, pictures) for read in opened if not _is_of_hub(read)]
    names = [one for one in looked if one.score]
    stated = {request.label_column, request.image_column} != {"auto"}
    if not looked:
        return None
    if not names:
        if not stated or (request.of_site and not any(one.has_stated(request) for one in looked)):
            return None
        raise _lacks(request, looked, pictures)
    tables = _choose(request, names, sorted(path.name for path in paths))
    one, folders = tables.train, {path.parent for path in pictures.paths}
    if not stated and not one.has_labels(request) and len(folders) > 1:
        expected = f"one of {', '.join(one.table)}; or move it away, if the folders are the classes"
        named = f"{one.path.name!r} names the pictures and has no column {', '.join(LABEL_NAMES)}"
        raise UserError(f"label-column: {named}; expected {expected}")
    return tables


def of_tables_beside(request: Request, found: Walk) -> list[Note]:
    """Return a note on a table beside class folders with a row for each picture, which is not read."""
    count = sum(map(is_image, found.files))
    beside = [path for path in found.files if path.parent == found.root and is_table(path)]
    rows = {path.name: len(open_table(path, request).frame) for path in beside}
    return [
        Note(
            "target",
            f"classes? {name!r} beside the class folders has a row for each of {count} pictures and is not "
            "read; if a column of it names them, label-column=COLUMN reads its labels",
        )
        for name, number in rows.items()
        if number == count
    ][:1]


def _is_of_hub(read: ReadTable) -> bool:
    return stem(read.path) == "metadata" and "file_name" in read.frame


def _look(request: Request, read: ReadTable, pictures: Pictures) -> Named:
    """Return a table with the column that names most pictures."""
    stated, table = request.image_column, read.frame
    if stated in table:
        return Named(read, stated, max(1, _score(table[stated], pictures)))
    labels = read.asked.label_names
    others = [name for name in table if name not in labels and name.lower() not in LABEL_NAMES]
    scores = {name: _score(table[name], pictures) for name in others if not is_unnamed(name)}
    best = max(scores, key=scores.__getitem__, default="")
    return Named(read, best, scores.get(best, 0) if stated == "auto" else 0)


def _score(column: "Series", pictures: Pictures) -> int:
    """Return how many different pictures a column names; 0 if it does not name pictures."""
    if column.dtype.kind == "b" or is_nested(column):
        return 0
    values = column.dropna().unique()[:LOOKED_AT].tolist()
    with_suffix = sum(isinstance(value, str) and is_image_name(value.strip()) for value in values)
    if values and 2 * with_suffix >= len(values):
        return with_suffix
    found = [places[0] for value in values if len(places := pictures.find(value)) == 1]
    enough = len(set(found)) >= LEAST_NAMED * min(len(pictures), LOOKED_AT)
    return len(set(found)) if 2 * len(found) >= len(values) and enough else 0


def _choose(request: Request, names: Sequence[Named], all_tables: Sequence[str]) -> Tables:
    """Return which of the tables that name pictures are used."""
    splits, notes = split_folders(stem(one.path) for one in names)
    of_split = {splits[stem(one.path)]: one for one in names if stem(one.path) in splits}
    if "train" in of_split:
        train, test = of_split["train"], of_split.get("test")
        if test and not test.has_labels(request):
            test = None
    else:
        notes, test = [], None
        labelled = [one for one in names if one.has_labels(request)] or names
        most = max(one.score for one in labelled)
        best = [one for one in labelled if one.score == most]
        if len(best) > 1:
            which = " and ".join(repr(one.path.name) for one in best)
            raise UserError(f"dataset: {which} name as many pictures of {request.name!r}; expected one table")
        train = best[0]
    used = [one for one in (train, test) if one]
    guessed = "" if request.image_column != "auto" else "image-column"
    column = " and ".join(repr(one.path.name) for one in used)
    notes.append(Note("inputs", f"the column {train.column!r} of {column} names the pictures", guessed))
    unused = [name for name in all_tables if name not in {one.path.name for one in used}]
    if unused:
        tables = "the table" if len(unused) == 1 else "the tables"
        why = f"{column} labels the pictures" if len(used) == 1 else f"{column} label the pictures"
        notes.append(Note("left out", f"{tables} {', '.join(map(repr, unused))}: {why}"))
    return Tables(train, test, notes)


def _lacks(request: Request, looked: Sequence[Named], pictures: Pictures) -> UserError:
    """Return the error that says why no table fits the keys that name columns."""
    one = next((one for one in looked if one.has_labels(request)), looked[0])
    if request.image_column != "auto":
        return unknown_name("image-column", request.image_column, map(str, one.table))
    if len(looked) == 1 and not one.has_labels(request):
        return unknown_name("label-column", request.label_column, map(str, one.table))
    for name in one.table:
        first = one.table[name].dropna().head(1).tolist()
        if first and not is_nested(one.table[name]) and (path := pictures.in_folder(first[0])):
            found = f"{request.label_column!r} is in {one.path.name!r}, whose column {name!r} names folders"
            return UserError(f"label-column: {found}; {_by_picture(path)}")
    texts = [str(name) for name in one.table if one.table[name].dtype.kind not in "bf"]
    column = texts[0] if texts else str(one.table.columns[0])
    held = f"{column!r} holds {str(one.table[column].iloc[0])!r}, and there is no such picture"
    named = f"{request.label_column!r} is in {one.path.name!r}, no column of which names pictures"
    return UserError(f"label-column: {named}: {held}; image-column says which one does")


def _by_picture(path: str) -> str:
    return f"expected a row for each picture, with a column of their paths, such as {path!r}"


def decode_labelled_images(request: Request, walked: Walk, tables: Tables) -> Decoded:
    """Decode the pictures that tables name, in their order, and their labels as those of a table.

    How a picture is named says `Pictures`. Without a table ``test`` a fixed fifth is held out.

    Raises
    ------
    UserError
        When a column is missing or does not fit, or a picture is missing or cannot be read.
    """
    import pandas as pd

    column = tables.train.column
    used = [one for one in (tables.train, tables.test) if one]
    if any(column not in one.table for one in used):
        raise UserError(
            f"dataset: {used[-1].path.name!r} has no column {column!r}, as {used[0].path.name!r} has"
        )
    is_test = np.repeat([one is tables.test for one in used], [len(one.table) for one in used])
    table = pd.concat([one.table for one in used], ignore_index=True)[list(tables.train.table)]
    notes = [*walked.notes(), *tables.notes, *(note for one in used for note in one.read.notes)]
    named = table[column].notna().to_numpy()
    if unnamed := int((~named).sum()):
        notes.append(Note("left out", f"{number_of(unnamed, 'row')} without a picture in {column!r}"))
        table = table[named]
    found = labelled_rows(request, table, [one.read for one in used])
    is_test = is_test[found.table.index]
    pictures = Pictures(walked)
    files = _files(found.table[column], pictures, column)
    patients = whose(request, files, walked.root)
    found = found if patients.groups is None else replace(found, units=units_of(patients.groups))
    y, targets = found.targets.y, found.targets
    if not tables.test and len(y) < 5:
        raise UserError(f"dataset: {number_of(len(y), 'image')} without a test split; expected at least 5")
    train, test, of_split = found.divided(request, is_test if tables.test else None)
    if not tables.test:
        others = [name for name in table if table[name].dtype.kind == "O" and not is_nested(table[name])]
        others = [name for name in others if name not in {*found.label_names, request.group_column}]
        words = {name: table[name].dropna().unique().tolist() for name in others}
        of_split += of_split_columns(words, BY_SPLIT)
    decoder = ImageDecoder(*request.sampling)
    x = decoder.decode(files_of(files), len(files))
    of_labels = [
        note._replace(decided_by=DECIDES.get(note.decided_by, note.decided_by)) for note in targets.notes
    ]
    notes += [*found.notes, *patients.notes, *of_split, *of_labels, *decoder.notes()]
    notes += _of_repeated(files, y)
    if unnamed := len(pictures) - len({*files}):
        labels = " and ".join(repr(one.path.name) for one in used)
        notes.append(Note("left out", f"{number_of(unnamed, 'picture')} without a label in {labels}"))
    names, numbered_here = targets.class_names, bool(targets.class_names)
    if targets.predicts == "classes":
        notes += gaps(y)
    elif len(found.label_names) > 1:
        names = tuple(found.label_names)
    whole = found.with_columns({"x": x}, of_paths(files, walked.root))
    classes = Classes(targets.outputs, names, numbered_here)
    return images_decoded(whole.at(train), whole.at(test), classes, notes)


def _of_repeated(files: Sequence[Path], y: np.ndarray) -> list[Note]:
    """Return a note on the rows that name a picture that an earlier one names, too."""
    if not (again := len(files) - len({*files})):
        return []
    said = f"{number_of(again, 'row')} name{'s' * (again == 1)} a picture that an earlier row names, too"
    kinds = Counter(file for file, _ in {(file, one.tobytes()) for file, one in zip(files, y, strict=True)})
    if several := sum(count > 1 for count in kinds.values()):
        have = "has" if several == 1 else "have"
        said += f"; labels? {number_of(several, 'picture')} {have} rows with different labels"
    return [Note("examples", said)]


def _files(names: Iterable[object], pictures: Pictures, column: str) -> list[Path]:
    """Return the picture of each name.

    Raises
    ------
    UserError
        When there is none, or several are meant.
    """
    files, missing = [], 0
    error = ""
    for value in names:
        places = pictures.find(value)
        if len(places) == 1:
            files.append(places[0])
            continue
        missing += 1
        reason = "several pictures have that name" if places else "there is no such picture"
        if not error and not places and (inside := pictures.in_folder(value)):
            reason = f"that is a folder; {_by_picture(inside)}"
        elif not error and not places and (series := pictures.series_of(value)):
            reason = f"that is a slice of the series in {series!r}; expected a row for the folder"
        error = error or f"image-column: {column!r} holds {str(value)!r}, and {reason}"
    if missing:
        rows = f" ({missing} of {missing + len(files)} rows)" if missing > 1 else ""
        raise UserError(f"{error}{rows}")
    return files
