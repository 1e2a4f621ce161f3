"""Read images with a table of their labels: a folder with pictures and one CSV file that names them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import UserError, unknown_name
from ..dataset import Decoded, Request
from ..images.decoding import IMAGE_SUFFIXES, ImageDecoder, ImageFile, is_image
from ..images.kind import images_decoded
from ..labels import Classes, gaps
from ..notes import Note
from .tables.labelled import labelled_rows
from .tables.table_file import first_row, open_table

if TYPE_CHECKING:
    from pandas import DataFrame


def table_of_images(folder: Path) -> Path | None:
    """Return the folder's one CSV file, if its first row names a picture; else None.

    ``metadata.csv`` is read by the `datasets` library.
    """
    tables = list(folder.glob("*.csv"))
    if len(tables) != 1 or tables[0].name == "metadata.csv":
        return None
    return tables[0] if any(map(_names_a_picture, first_row(tables[0]))) else None


def decode_labelled_images(request: Request, folder: Path, path: Path) -> Decoded:
    """Decode the pictures that a table names, in its order, and their labels as those of a table.

    A picture is named by its path in the folder, or by its file name alone. A fixed fifth is held out.

    Raises
    ------
    UserError
        When a column is missing or does not fit, or a picture is missing or cannot be read.
    """
    read = open_table(path, request)
    table = read.frame
    column = _image_column(request, table)
    found = labelled_rows(request, table, read.words_taken)
    pictures = _pictures(folder)
    files = [_find(str(name), pictures, column) for name in found.table[column]]
    decoder = ImageDecoder(request.image_size)
    x = decoder.decode((ImageFile(str(file), file) for file in files), len(files))
    y, ids, targets = found.targets.y, found.ids, found.targets
    if len(y) < 5:
        raise UserError(f"dataset: {len(y)} images without a test split; expected at least 5")
    train, test, note = found.held_out_fifth(request)
    notes = [*found.notes, note, *targets.notes, *decoder.notes()]
    if unnamed := len({*pictures.values()}) - len({*files}):
        notes.append(Note("left out", f"{unnamed} pictures, none of which {path.name!r} labels"))
    names, numbered_here = targets.class_names, bool(targets.class_names)
    if targets.predicts == "classes":
        notes += gaps(y)
    elif len(found.label_names) > 1:
        names = tuple(found.label_names)
    return images_decoded(
        (x[train], y[train]),
        (x[test], y[test]),
        Classes(targets.outputs, names, numbered_here),
        (ids[train], ids[test]) if ids is not None else None,
        notes,
    )


def _image_column(request: Request, table: "DataFrame") -> str:
    """Return the column that names the pictures: as requested, else the first that names one."""
    if request.image_column != "auto":
        if request.image_column not in table:
            raise unknown_name("image-column", request.image_column, table.columns)
        return request.image_column
    return next(str(name) for name in table if _names_a_picture(table[name].iloc[0]))


def _names_a_picture(value: object) -> bool:
    return isinstance(value, str) and Path(value).suffix.lower() in IMAGE_SUFFIXES


def _pictures(folder: Path) -> dict[str, Path | None]:
    """Return the folder's pictures by path in it and by file name; None for a name that several have."""
    paths = list(filter(is_image, sorted(folder.rglob("*"))))
    found: dict[str, Path | None] = {}
    for path in paths:
        found[path.name] = None if path.name in found else path
    return found | {path.relative_to(folder).as_posix(): path for path in paths}


def _find(name: str, pictures: Mapping[str, Path | None], column: str) -> Path:
    path = pictures.get(name)
    if path is None:
        reason = "several pictures have that name" if name in pictures else "there is no such picture"
        raise UserError(f"image-column: {column!r} holds {name!r}, and {reason}")
    return path
