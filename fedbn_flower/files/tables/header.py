"""The names of a table's columns, and how a text file writes its table."""

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed
from ...core.free_memory import check_fits, opened
from ...data.labels import NUMBER
from .missing import AUTO

SEPARATORS = ",;\t|"
BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
UNNAMED = re.compile(r"Unnamed: \d+(\.\d+)*|__index_level_\d+__")
SAMPLE = 2**16
CHUNK = 2**20
CELL = 40
"""Bytes of a cell while a table is decoded: as it is read, encoded, and in its split. Measured: 40 to 65; the
least, since a table that may fit is not refused."""
LOOKED_AT = 8
"""Rows that are looked at for a title above the header."""
WESTERN = "cp1252"
_CAPITAL = "\u00c0-\u00d6\u00d8-\u00de\u0152\u0160\u0178\u017d"
_LETTER = rf"A-Za-z{_CAPITAL}\u00df-\u00f6\u00f8-\u00ff\u0153\u0161\u017e"
_NOT_IN_WORDS = "\u00b1-\u00b3\u201c-\u201e\u2013\u2014\u2026"
_SIGN = rf"{_NOT_IN_WORDS}\u00a0\u00a7\u00b0\u00b5\u00b7\u00d7\u2018\u2019\u20ac"
ODD_THERE = re.compile(
    rf"[^\x00-\x7f{_LETTER}{_SIGN}]|[a-z][{_CAPITAL}]|[{_CAPITAL}\u00df-\u00ff]{{3}}"
    rf"|(?<=[{_LETTER}])[{_NOT_IN_WORDS}](?=[{_LETTER}])"
)
"""What is made of other encodings' letters where they are read as Western: signs or capitals within words."""
LONGEST = 2**22
"""Signs of a header or row that is looked at; a quote that never ends is none."""


def is_unnamed(name: str) -> bool:
    """Return whether a column has no name: as pandas calls it, who may also have written it so."""
    return bool(UNNAMED.fullmatch(name))


def is_a_header(names: Iterable[str]) -> str:
    """Return a question if names look like values, to be put behind them."""
    return " (is its first line a header?)" if any(map(NUMBER.fullmatch, names)) else ""


def checked_names(found: Sequence[object], where: str) -> list[str]:
    """Return the names of columns, without blanks around them; those without one as pandas calls them.

    Raises
    ------
    UserError
        When two columns have the same name, or only one of several has any.
    """
    raw = ["" if name is None else str(name) for name in found]
    names: list[str] = []
    places: dict[str, int] = {}
    for place, given in enumerate(raw):
        name = given.strip() or f"Unnamed: {place}"
        while name in places and is_unnamed(name):
            name += ".1"
        names.append(name)
        first = places.setdefault(name, place)
        if first != place:
            one, other = raw[first], given
            called = f"both called {one!r}" if one == other else f"called {one!r} and {other!r}"
            raise UserError(
                f"dataset: columns {first + 1} and {place + 1} of {where!r} are {called}"
                f"{is_a_header(raw)}; expected different names"
            )
    named = [name for name in names if not is_unnamed(name)]
    if len(named) == 1 < len(names) - 1:
        raise UserError(
            f"dataset: the first line of {where!r} names one of {len(names)} columns, {named[0]!r}; "
            "expected a header there"
        )
    return names


class Misread(UserError):
    """What is wrong with a text's layout; ``but`` are keys with which the rest of it can be looked at."""

    def __init__(self, found: str, **but: Any) -> None:
        super().__init__(found)
        self.but = but


@dataclass(frozen=True)
class Layout:
    """How a text file writes its table.

    Parameters
    ----------
    content : bytes
        The file's, which is read once.
    separator, encoding, decimal : str
        Its separator of fields, its encoding as Python calls it, and its decimal sign.
    above : int
        How many lines above the header are comments, or blank.
    names : list[str]
        See `checked_names`.
    """

    content: bytes = field(repr=False)
    separator: str
    encoding: str
    above: int
    names: list[str]
    decimal: str = "."
    has_title: bool = False
    """Whether there is text above the header that is no comment."""

    @classmethod
    def of(cls, path: Path, content: bytes, encoding: str = AUTO, header_row: int = 0) -> "Layout":
        """Look at the beginning of a file's content, as ``--encoding`` and ``--header-row`` say.

        A mark at the beginning decides the encoding. The separator is the comma, semicolon, tab or bar,
        whichever is most frequent in the header outside quotes. Lines above it that begin with
        ``#`` are comments, unless one has as many fields as the first line below them, whose names it then
        holds.

        Raises
        ------
        UserError
            When the names are not allowed, or the file is empty or of another encoding.
        """
        lines, cells = _counted(content)
        check_fits("dataset", f"about {lines} rows of {str(path)!r}", cells * CELL)
        marked = (found for mark, found in BYTE_ORDER_MARKS.items() if content.startswith(mark))
        encoding = next(marked, "") or (_encoding_of(content) if encoding == AUTO else _known(encoding))
        try:
            content.decode(encoding)
        except UnicodeDecodeError as error:
            raise Misread(f"dataset: {str(path)!r} {not_of(encoding, error)}", encoding="latin-1") from None
        above = header_row - 1 if header_row else _lines_above(_text(content, encoding))
        text = _text(content, encoding, above)
        header = _whole_line(text)
        separator = _separator(header)
        first = _whole_line(text)
        sample = text.read(SAMPLE)
        if not header.strip():
            if above:
                raise not_allowed("header-row", header_row, f"a row of {str(path)!r}, which has no such one")
            raise UserError(f"dataset: {str(path)!r} is empty")
        lines_there = [header, first, *itertools.islice(sample.splitlines(), LOOKED_AT)]
        if not header_row and (row := _header_below_title(path, content, encoding, lines_there)):
            return replace(cls.of(path, content, encoding, row), has_title=True)
        names = checked_names(fields(header, separator), str(path))
        check_fits("dataset", f"about {lines} rows of {str(path)!r}", lines * len(names) * CELL)
        return cls(content, separator, encoding, above, names)


def content_of(path: Path) -> bytes:
    """Read a text, see `opened`."""
    with opened(path) as file:
        return file.read()


def _header_below_title(path: Path, content: bytes, encoding: str, lines: Sequence[str]) -> int:
    """Return which line is the header below a title: one of words with twice the fields of the first line.

    Of ``Title;;;`` the title alone counts. All below have as many, and some are numbers. It is 0 if the first
    line is the header, which it is if it has as many fields as the next by its own separator.

    Raises
    ------
    UserError
        When no values below such a line are numbers, so that it may be one of them.
    """
    lines = [line for line in lines if line.strip()]
    own = _separator(lines[0]) if lines else ""
    cells = [cell.strip() for cell in fields(lines[0], own)] if lines else []
    alone = sum(map(bool, cells)) == 1 < len(cells) - 1  # as a spreadsheet writes a title: Title;;;
    width = 1 if alone else len(cells)
    if len(lines) < 2 or 1 < width == len(fields(lines[1], own)):
        return 0
    for place, line in enumerate(lines[1:-1], start=1):
        separator = _separator(line)
        words, *below = ([cell.strip() for cell in fields(one, separator)] for one in lines[place:])
        is_header = all(words[1:]) and not any(map(NUMBER.fullmatch, words))
        as_many = {len(cells) for cells in below} == {len(words)}
        above = 1 if alone else len(fields(lines[0], separator))
        if not (is_header and as_many and 2 * above <= len(words)):
            continue
        same = (n for n, one in enumerate(_text(content, encoding), 1) if one.strip() == line.strip())
        row = next(same)
        if any(NUMBER.fullmatch(cell.replace(",", ".")) for cells in below for cell in cells):
            return row
        raise Misread(
            f"dataset: the first line of {str(path)!r}, {lines[0].strip()!r}, has fewer fields than "
            f"those below; if the header is {line.strip()!r}, name its row: header-row={row}",
            header_row=row,
        )
    return 0


def title_rows(rows: Sequence[Sequence[object]]) -> int:
    """Return how many rows of a sheet are above its header: the first row has fewer cells than one of words
    below it, with values below that.

    Cells are None where they are empty. Of the values some column has numbers, dates or the like only.
    """
    filled = [[place for place, cell in enumerate(row) if cell is not None] for row in rows]
    for place in range(1, len(rows) - 1):
        words = [rows[place][at] for at in filled[place]]
        below = [row for row, cells in zip(rows[place + 1 :], filled[place + 1 :], strict=True) if cells]
        of_words = [isinstance(word, str) and not NUMBER.fullmatch(word) for word in words]
        if not below or not all(of_words) or len(set(words)) < max(len(words), 2):
            continue
        columns = [[row[at] for row in below if row[at] is not None] for at in filled[place]]
        have_values = any(cells and not any(isinstance(c, str) for c in cells) for cells in columns)
        inside = all(set(cells) <= set(filled[place]) for cells in filled[place + 1 :])
        if have_values and inside and len(filled[0]) < len(words):
            return place
    return 0


def fields(line: str, separator: str) -> list[str]:
    """Return the fields of a line; blanks before one do not count."""
    return next(csv.reader(io.StringIO(line, newline=""), delimiter=separator, skipinitialspace=True), [])


def _numbered_records(layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Return each row below the header that is not blank, with its number in the file, from 1 on."""
    text = _text(layout.content, layout.encoding, layout.above)
    rows = enumerate(_rows(text, layout.separator), start=layout.above + 1)
    not_blank = ((number, row) for number, row in rows if any(row) or len(row) > 1)
    return itertools.islice(not_blank, 1, None)


def numbers_of_rows(layout: Layout, count: int) -> NDArray[np.int64]:
    """Return which row of a spreadsheet each of ``count`` rows below the header is, from 1 on.

    Lines above the header and blank ones count, and what stands in quotes is in one row.
    """
    first = layout.above + 2
    if sum(1 for _ in _text(layout.content, layout.encoding)) == first + count - 1:
        return np.arange(first, first + count)
    return np.fromiter((number for number, _ in _numbered_records(layout)), np.int64)


def is_text_table(path: Path) -> bool:
    """Return whether a text file, whatever its name, has a header and rows of as many fields, two or more."""
    try:
        layout = Layout.of(path, content_of(path))
        found = [len(row) for _, row in itertools.islice(_numbered_records(layout), LOOKED_AT)]
    except (UserError, OSError, UnicodeDecodeError, csv.Error):
        return False
    return len(layout.names) > 1 and set(found) == {len(layout.names)}


def _rows(text: io.TextIOWrapper, separator: str) -> Iterator[list[str]]:
    """Yield the fields of each row; those of a wide one without quotes and blanks are split much faster."""
    for line in text:
        if '"' in line:
            rest = itertools.chain([line], text)
            yield from csv.reader(rest, delimiter=separator, skipinitialspace=True)
        elif " " in line:
            yield fields(line, separator)
        else:
            yield line.rstrip("\r\n").split(separator)


def _lines_above(text: io.TextIOWrapper) -> int:
    """Return how many lines above the header are comments, with the blank ones between."""
    lines = [text.readline()]
    while lines[-1].startswith("#") or (lines[-1] and not lines[-1].strip()):
        lines.append(text.readline())
    *above, below = lines
    comments = [place for place, line in enumerate(above) if line.strip()]
    if not comments:
        return 0
    last = above[comments[-1]]
    separator = _separator(below or last)
    is_header = not below or len(fields(last, separator)) == len(fields(below, separator))
    return comments[-1] if is_header else len(above)


def _whole_line(text: io.TextIOWrapper) -> str:
    """Return the next line that is not blank; a line break in quotes ends none."""
    whole = ""
    for line in iter(text.readline, ""):
        whole += line
        if whole.count('"') % 2 == 0 or len(whole) > LONGEST:
            if whole.strip():
                break
            whole = ""
    return whole


def _separator(line: str) -> str:
    """Return the separator that is most frequent in a line, outside quotes."""
    return max(SEPARATORS, key=re.sub('"[^"]*"', "", line).count)


def _text(content: bytes, encoding: str, above: int = 0) -> io.TextIOWrapper:
    """Return what is below so many lines of a text."""
    text = io.TextIOWrapper(io.BytesIO(content), encoding, newline="")
    for _ in range(above):
        text.readline()
    return text


def _encoding_of(content: bytes) -> str:
    """Return the encoding of a text without a mark: Western if it is not UTF-8 and may be that."""
    with suppress(UnicodeDecodeError):
        content.decode()
        return "utf-8"
    return "utf-8" if ODD_THERE.search(content.decode(WESTERN, "replace")) else WESTERN


def _known(encoding: str) -> str:
    """Return the name of an encoding that Python knows."""
    try:
        b"a".decode(encoding)
    except (LookupError, UnicodeError, ValueError):
        wanted = "auto, or an encoding of text that Python knows, such as cp1252, cp850 or utf-16-le"
        raise not_allowed("encoding", encoding, wanted) from None
    return encoding


def not_of(encoding: str, error: UnicodeDecodeError) -> str:
    """Return what is said of a text that is not of an encoding, and by which key it is read."""
    wrong = f"byte 0x{error.object[error.start]:02x}" if len(error.object) else error.reason
    called = encoding.upper() if encoding.startswith("utf-8") else encoding
    return (
        f"is not a text in {called} ({wrong}); save it as UTF-8, or name its encoding, as in encoding=cp850"
    )


def _counted(content: bytes) -> tuple[int, int]:
    """Return how many lines a text has, and how many fields, both at most, by its bytes alone."""
    lines = max(map(content.count, (b"\n", b"\r")))
    return lines + 1, lines + max(map(content.count, map(str.encode, SEPARATORS))) + 1
