"""Read table files."""

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed
from ...core.free_memory import check_size
from ...core.notes import Note
from ...core.text import number_of
from ...data.dataset import Request
from ...data.splits import origins
from .header import (
    LOOKED_AT,
    WESTERN,
    Layout,
    Misread,
    checked_names,
    content_of,
    not_of,
    numbers_of_rows,
    title_rows,
)
from .labels import Asked
from .large import check_parquet, check_sheet
from .missing import AUTO, Missing
from .words import as_text, is_nested, is_number
from .written import Signs, Written, the_signs, unread_texts

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TEXTS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET = (".parquet", ".pq")
EXCEL = (".xlsx",)
ROWS_OF_TEXT = 2**14
"""Rows of a text that are looked at together; how numbers are written is the same in all."""
RAGGED = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")


@dataclass(frozen=True, eq=False)
class ReadTable:
    """A table as it was read.

    Parameters
    ----------
    frame : DataFrame
        Its columns, named as `checked_names` has them.
    path : Path
        Its file.
    asked : Asked
        What the keys say of its columns.
    missing : Missing
        Which words are missing values.
    layout : Layout, optional
        Of a text file.
    notes : tuple[Note, ...]
        What was left out of it.
    above : int
        How many rows of a text or a sheet are above its header.
    """

    frame: "DataFrame"
    path: Path
    asked: Asked
    missing: Missing
    layout: Layout | None = None
    notes: tuple[Note, ...] = ()
    above: int = 0

    def words_taken(self, columns: Sequence[str]) -> dict[str, Counter[str]]:
        """Count the words that were taken for missing values without being asked to, by column.

        The text is looked at once more if some of the columns have missing values.
        """
        columns = [name for name in columns if name in self.frame and self.frame[name].isna().any()]
        found: dict[str, Counter[str]] = {}
        for cells in self.cells(columns) if columns and self.missing.guessed else ():
            lacking = self.frame.loc[cells.index, columns].isna()
            taken = np.argwhere((lacking & cells[columns].isin(self.missing.words)).to_numpy())
            for row, place in taken.tolist():
                name = columns[place]
                found.setdefault(name, Counter())[cells[name].iat[row]] += 1
        return found

    @property
    def is_sheet(self) -> bool:
        """Whether it is an Excel file's."""
        return self.path.name.lower().endswith(EXCEL)

    def origins(self, name: str) -> origins.Origins:
        """Return where each row comes from, by the file's name: see `origins`.

        Of a text or an Excel file it is the row that a spreadsheet program shows, of any other file the item.
        """
        count = len(self.frame)
        if self.layout:
            rows = numbers_of_rows(self.layout, count)
            return origins.of_rows(name, rows) if len(rows) == count else np.zeros(count, "S1")
        if self.is_sheet:
            return origins.of_rows(name, np.arange(count) + 2 + self.above)
        return origins.of_items(name, count)

    def spelt(self, name: str) -> NDArray[np.str_]:
        """Return a column as the file writes it: ``007``, where the table has the number 7."""
        import pandas as pd

        column = self.frame[name]
        if is_number(column) and (self.layout or self.is_sheet):
            if self.layout:
                spelt = pd.concat(list(self.cells([name])))[name]
            else:
                of_text = {"usecols": [list(self.frame).index(name)], "dtype": str, "keep_default_na": False}
                spelt = pd.read_excel(self.path, skiprows=self.above, **of_text).iloc[:, 0]
            column = spelt.str.strip() if len(spelt) == len(column) else column
        return np.array(as_text(column), np.str_)

    def texts(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Return the distinct texts of columns in the first `ROWS_OF_TEXT` rows of a text file, in order."""
        cells = next(self.cells(names), None) if names else None
        if cells is None:
            return {}
        return {
            name: list(dict.fromkeys(str(word).strip() for word in cells[name].unique())) for name in names
        }

    def cells(self, names: Sequence[str]) -> "Iterator[DataFrame]":
        """Yield columns of a text file as it writes them, `ROWS_OF_TEXT` rows at a time."""
        import pandas as pd

        if not (layout := self.layout):
            return
        of_text = {"usecols": [layout.names.index(name) for name in names], "dtype": str}
        read = {**_of_layout(layout), **of_text, "keep_default_na": False, "chunksize": ROWS_OF_TEXT}
        yield from pd.read_csv(io.BytesIO(layout.content), **read)


def words_taken(tables: Iterable[ReadTable], columns: Sequence[str]) -> dict[str, Counter[str]]:
    """Count the words of several tables, see `ReadTable.words_taken`."""
    found: dict[str, Counter[str]] = {}
    for table in tables:
        for name, words in table.words_taken(columns).items():
            found.setdefault(name, Counter()).update(words)
    return found


def is_table(path: Path) -> bool:
    """Return whether a path ends as a table's does."""
    return path.name.lower().endswith(SUFFIXES) and not path.name.startswith((".", "~$"))


def stem(path: Path) -> str:
    """Return a table's name without its ending."""
    ending = max((s for s in SUFFIXES if path.name.lower().endswith(s)), key=len)
    return path.name[: -len(ending)]


def open_table(path: Path, request: Request) -> ReadTable:
    """Read a text, Parquet or Excel table as the request asks; column names become text.

    A text file has a header, see `Layout.of`. In it empty fields are missing values, and the words that
    `Missing` says. In a Parquet or Excel file those are that have no value, and words that
    ``missing-values`` names. A named index of a Parquet file becomes a column.

    Raises
    ------
    UserError
        When the file cannot be read, does not fit into memory, has no rows, or two columns of one name.
    """
    name = path.name.lower()
    read = next(reader for endings, reader in FORMATS.items() if name.endswith(endings))
    try:
        found = read(path, request)
    except UserError:
        raise
    except Exception as error:  # pandas and pyarrow raise anything
        if advice := _advice(error):
            raise UserError(f"dataset: {str(path)!r} {advice}") from error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"dataset: cannot load {str(path)!r}: {lines[0]}") from error
    if not len(found.frame):
        raise UserError(f"dataset: {str(path)!r} has no rows")
    return found


def _advice(error: Exception) -> str:
    """Return what is wrong with a file, and what to do, where pandas says it in its own words."""
    if isinstance(error, BadZipFile):
        return "is no workbook; save it as .xlsx in a spreadsheet program, or call it .csv if it is text"
    if isinstance(error, UnicodeDecodeError):
        return not_of(error.encoding, error)
    if found := RAGGED.search(str(error)):
        expected, line, saw = found.groups()
        return (
            f"has {saw} fields in line {line}, and {expected} above; put a value that holds the separator in "
            "quotes, or remove what is no row"
        )
    return ""


def _missing(request: Request, asked: Asked) -> Missing:
    ids = frozenset(filter(None, (request.group_column, request.unit_column)))
    return Missing(request.missing_values, asked.values, ids)


def _of_layout(layout: Layout) -> dict[str, object]:
    """Return the arguments by which pandas reads such a text."""
    return {
        "sep": layout.separator,
        "encoding": layout.encoding,
        "skiprows": layout.above,
        "names": layout.names,
        "header": 0,
        "index_col": False,
        "decimal": layout.decimal,
        "skipinitialspace": True,
    }


def _read_text(path: Path, request: Request) -> ReadTable:
    """Read a text; all that is wrong with how it is written is said in one line."""
    wrong: list[str] = []
    asked, content = request, content_of(path)
    while True:
        try:
            found = _text_as_asked(path, content, asked)
            break
        except Misread as error:
            if str(error) in wrong:  # as with a mark that lies
                raise UserError(at_once(wrong)) from None
            wrong.append(str(error))
            asked = replace(asked, **error.but)
        except UserError:
            if wrong:  # the rest cannot be looked at
                raise UserError(at_once(wrong)) from None
            raise
    if wrong:
        raise UserError(at_once([*wrong, *unread_texts(found.frame, {*found.asked.texts})]))
    return found


def at_once(wrong: Sequence[str]) -> str:
    """Return one line of several errors of the dataset."""
    first, *others = wrong
    return "; ".join([first, *(one.removeprefix("dataset: ") for one in others)])


def _text_as_asked(path: Path, content: bytes, request: Request) -> ReadTable:
    import pandas as pd

    written = Written.asked(request)
    layout = Layout.of(path, content, request.encoding, request.header_row)
    asked = Asked.of(request, layout.names)
    missing = _missing(request, asked)
    words = missing.for_pandas(layout.names)

    def read(names: list[str], layout: Layout = layout) -> "DataFrame":
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            of_layout = {**_of_layout(layout), "names": names}
            of_words = {"na_values": words, "keep_default_na": False, "low_memory": False}
            return pd.read_csv(io.BytesIO(content), **of_words, **of_layout)

    notes = []
    try:
        frame = read(layout.names)
    except pd.errors.ParserWarning as error:
        last = f"Unnamed: {len(layout.names)}"
        frame = read([*layout.names, last])
        if frame[last].notna().any():
            reason = "rows with more fields than its header has names"
            raise UserError(f"dataset: {str(path)!r} has {reason}") from error
        frame = frame[layout.names]
    if layout.encoding == WESTERN and request.encoding == AUTO:
        notes.append(Note("inputs", f"{path.name!r} is no UTF-8; its letters are read as Windows-1252"))
    signs = the_signs(frame, missing.named, request.thousands) if written.decimal == AUTO else Signs()
    if "," in (signs.decimal, written.decimal):
        other = replace(layout, decimal=",")
        as_words = {name: frame[name] for name in missing.named if name in frame}
        again = read(list(frame.columns), other).assign(**as_words)
        if signs.decimal:
            pointed = [name for name in frame if is_number(frame[name]) and not is_number(again[name])]
            signs = signs.beside(again[pointed])
        if "," in (signs.decimal, written.decimal):
            frame, layout = again, other
    notes += signs.notes(path)
    if layout.above:
        notes.append(_above(layout.above, path, guessed=layout.has_title))
    written = Written.asked(replace(request, thousands=signs.thousands or request.thousands))
    frame, of_dates = written.read(frame, missing.named, {*asked.texts}, path, layout.decimal)
    return ReadTable(frame, path, asked, missing, layout, (*notes, *of_dates), layout.above)


def _read_parquet(path: Path, request: Request) -> ReadTable:
    import pandas as pd
    from pyarrow import parquet

    check_parquet(path)
    checked_names(parquet.read_schema(path.absolute()).names, str(path))
    frame, notes = pd.read_parquet(path.absolute()), []
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index([name for name in frame.index.names if name is not None])
    if not isinstance(frame.index, pd.RangeIndex):
        notes.append(Note("left out", f"the index of {path.name!r}, which has no name"))
    frame = frame.reset_index(drop=True).set_axis(checked_names(frame.columns, str(path)), axis=1)
    return _of_cells(frame, request, path, notes)


def _read_excel(path: Path, request: Request) -> ReadTable:
    import pandas as pd

    try:
        book = pd.ExcelFile(check_size(path), engine="openpyxl")
    except ImportError:
        install = "pip install 'fedbn-flower[excel]'"
        raise UserError(f"dataset: {str(path)!r} needs another package: {install}") from None
    with book:
        sheet, *others = book.sheet_names
        hidden = check_sheet(path, book.book[sheet])
        above = max(request.header_row - 1, 0)
        parse = partial(pd.read_excel, book, sheet_name=sheet, keep_default_na=False, na_values=[""])
        if not request.header_row:
            top = parse(header=None, nrows=LOOKED_AT + 1)
            above = title_rows(top.astype(object).where(top.notna(), None).to_numpy().tolist())
        parse = partial(parse, skiprows=above)
        header = parse(header=None, nrows=1)
        if above and not len(header):
            wanted = f"a row of {str(path)!r}, which has no such one"
            raise not_allowed("header-row", request.header_row, wanted)
        names = checked_names(header.iloc[0].fillna("") if len(header) else [], str(path))
        if others and len(names) < 2:
            wanted = f"put the one with the table first: {', '.join(map(repr, others))}"
            raise UserError(
                f"dataset: the first sheet of {str(path)!r}, {sheet!r}, has at most one column; {wanted}"
            )
        frame = parse(header=0, names=names)
    notes = [_above(above, path, guessed=not request.header_row)] if above else []
    if hidden:
        are = "is" if hidden == 1 else "are"
        notes.append(Note("examples", f"{number_of(hidden, 'hidden row')} of {path.name!r} {are} read, too"))
    if others:
        sheets = ", ".join(map(repr, others))
        notes.append(Note("left out", f"the sheets {sheets} of {path.name!r}"))
    return _of_cells(frame, request, path, notes, above)


def _of_cells(
    frame: "DataFrame", request: Request, path: Path, notes: Sequence[Note], above: int = 0
) -> ReadTable:
    """Return a table whose cells have types, without words that are missing values."""
    asked = Asked.of(request, list(frame.columns))
    missing = _missing(request, asked)
    cells = _without(frame, missing)
    frame, of_dates = Written.asked(request).read(cells, missing.named, {*asked.texts}, path)
    return ReadTable(frame, path, asked, missing, None, (*notes, *of_dates), above)


def _above(count: int, path: Path, guessed: bool) -> Note:
    found = f"{number_of(count, 'line')} above the header of {path.name!r}"
    return Note("left out", found, "header-row" if guessed else "")


def _without(frame: "DataFrame", missing: Missing) -> "DataFrame":
    """Return a table of cells with types without the words that the key says are missing."""
    if missing.guessed:
        return frame
    return frame.apply(lambda column: _column_without(column, missing.of_column(str(column.name))))


def _column_without(column: "Series", words: Sequence[str]) -> "Series":
    if is_nested(column):
        return column
    numbers = [float(word) for word in words if _is_float(word)]
    found = column.isin(numbers if column.dtype.kind in "iuf" else [*words, *numbers])
    return column.mask(found).infer_objects() if found.any() else column


def _is_float(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


FORMATS = {TEXTS: _read_text, PARQUET: _read_parquet, EXCEL: _read_excel}
"""What reads files with these endings."""
SUFFIXES = tuple(ending for endings in FORMATS for ending in endings)
