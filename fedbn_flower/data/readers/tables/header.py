"""The names of a table's columns, and how a text file writes its table."""

import csv
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ....core.errors import UserError
from .words import NUMBER

SEPARATORS = ",;\t|"
BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
UNNAMED = re.compile(r"Unnamed: \d+(\.\d+)*|__index_level_\d+__")
SAMPLE = 2**16


def is_unnamed(name: str) -> bool:
    """Return whether a column has no name: as pandas calls it, who may also have written it so."""
    return bool(UNNAMED.fullmatch(name))


def checked_names(found: Sequence[object], where: str) -> list[str]:
    """Return the names of columns, without blanks around them; those without one are ``Unnamed: PLACE``.

    Raises
    ------
    UserError
        When two columns have the same name, or only one of several has any.
    """
    raw = ["" if name is None else str(name) for name in found]
    names = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(raw)]
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        first = places.setdefault(name, place)
        if first != place:
            one, other = raw[first], raw[place]
            called = f"both called {one!r}" if one == other else f"called {one!r} and {other!r}"
            question = " (is its first line a header?)" if all(map(NUMBER.fullmatch, names)) else ""
            raise UserError(
                f"dataset: columns {first + 1} and {place + 1} of {where!r} are {called}{question}; "
                "expected different names"
            )
    named = [name for name in names if not is_unnamed(name)]
    if len(named) == 1 < len(names) - 1:
        raise UserError(
            f"dataset: the first line of {where!r} names one of {len(names)} columns, {named[0]!r}; "
            "expected a header there"
        )
    return names


@dataclass(frozen=True)
class Layout:
    """How a text file writes its table.

    Parameters
    ----------
    separator, encoding : str
        Its separator of fields, and its encoding as Python calls it.
    comments : int
        The lines above the header that are left out.
    names : list[str]
        See `checked_names`.
    first : list[str]
        The fields of the first row below the header; empty without one.
    rows : int
        About how many rows there are.
    """

    separator: str
    encoding: str
    comments: int
    names: list[str]
    first: list[str]
    rows: int

    @classmethod
    def of(cls, path: Path) -> "Layout":
        """Look at the beginning of a file.

        The separator is the comma, semicolon, tab or bar, whichever is most frequent in the header outside
        quotes. Lines above it that begin with ``#`` are comments, unless one has as many fields as the first
        line below them, whose names it then holds.

        Raises
        ------
        UserError
            When the names are not allowed, or the file is empty or neither UTF-8 nor UTF-16.
        OSError
            When the file cannot be read.
        """
        with opened(path) as file:
            beginning = file.peek(3)
            encoding = next(
                (e for mark, e in BYTE_ORDER_MARKS.items() if beginning.startswith(mark)), "utf-8"
            )
            text = io.TextIOWrapper(file, encoding=encoding, newline="")
            try:
                lines = _whole_lines(text)
                above = []
                header = next(lines, "")
                while header.startswith("#"):
                    above.append(header)
                    header = next(lines, "")
                separator = max(SEPARATORS, key=_without_quotes(header or "".join(above)).count)
                last = fields(above[-1], separator) if above else []
                if above and (not header or len(last) == len(fields(header, separator))):
                    header, first = above.pop(), header
                else:
                    first = next(lines, "")
                sample = text.read(SAMPLE)
            except UnicodeDecodeError as error:
                wrong = f"byte 0x{error.object[error.start]:02x}" if encoding == "utf-8" else error.reason
                raise UserError(
                    f"dataset: {str(path)!r} is not a text in UTF-8 ({wrong}); save it as UTF-8"
                ) from None
        if not header.strip():
            raise UserError(f"dataset: {str(path)!r} is empty")
        names = checked_names(fields(header, separator), str(path))
        a_row = len(sample) / sample.count("\n") if "\n" in sample else max(1, len(first))
        rows = int(_size(path) / a_row) if len(sample) == SAMPLE else 1 + sample.count("\n")
        return cls(separator, encoding, len(above), names, fields(first, separator), rows)


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for its bytes, unpacked if it ends in ``.gz``."""
    with path.open("rb") as raw:
        if path.suffix.lower() == ".gz":
            with gzip.GzipFile(fileobj=raw) as packed:
                yield io.BufferedReader(packed)
        else:
            yield raw


def fields(line: str, separator: str) -> list[str]:
    """Return the fields of a line; blanks before one do not count."""
    return next(csv.reader(io.StringIO(line, newline=""), delimiter=separator, skipinitialspace=True), [])


def _whole_lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield the lines that are not blank; a line break in quotes ends none."""
    whole = ""
    for line in text:
        whole += line
        if whole.count('"') % 2 == 0 or len(whole) > 2**20:
            if whole.strip():
                yield whole
            whole = ""
    if whole.strip():
        yield whole


def _without_quotes(line: str) -> str:
    return re.sub('"[^"]*"', "", line)


def _size(path: Path) -> int:
    """Return a file's size, unpacked; modulo 4 GiB if it is packed."""
    if path.suffix.lower() != ".gz":
        return path.stat().st_size
    with path.open("rb") as file:
        file.seek(-4, io.SEEK_END)
        return int.from_bytes(file.read(4), "little")
