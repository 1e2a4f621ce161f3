"""How the texts of a table write numbers and dates: ``--decimal``, ``--thousands`` and ``--date-format``."""

import io
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import not_allowed
from ...core.notes import Note
from ...data.dataset import Request
from .missing import AUTO
from .words import DATE, is_nested, is_number_type, is_number_word, listed

if TYPE_CHECKING:
    from pandas import DataFrame, Series

SIGNS = {",": ",", ".": r"\.", "'": "['\u2019]", "space": "[ \u00a0\u202f]"}
"""The patterns of the signs between groups of three digits."""
OTHER = {".": ",", ",": "."}
ISO = "ISO8601"
SHOWN = {ISO: "%Y-%m-%d"}
OF_ISO = r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
LIKE_A_DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T].*)?")
USUAL_FORMATS = tuple(
    sign.join(parts) + time
    for time in ("", " %H:%M", " %H:%M:%S")
    for sign in "./-"
    for parts in (("%d", "%m", "%Y"), ("%m", "%d", "%Y"), ("%Y", "%m", "%d"))
)


@dataclass(frozen=True)
class Written:
    """How numbers and dates are written; ``auto`` where nobody said it.

    Parameters
    ----------
    decimal, thousands, date_format : str
        The keys' values. One that separates thousands is no decimal sign, so that the other one is.
    """

    decimal: str = AUTO
    thousands: str = AUTO
    date_format: str = AUTO

    @classmethod
    def asked(cls, request: Request) -> "Written":
        """Return what the keys say.

        Raises
        ------
        UserError
            When a sign is to be both, or the format is none of dates.
        """
        decimal, thousands, form = request.decimal, request.thousands, request.date_format
        if thousands == decimal != AUTO:
            raise not_allowed("thousands", thousands, f"a sign other than decimal {decimal!r}")
        if form != AUTO and not _is_of_dates(form):
            raise not_allowed("date-format", form, "auto, or a format with day, month and year: %d.%m.%Y")
        return cls(OTHER.get(thousands, decimal) if decimal == AUTO else decimal, thousands, form)

    def read(
        self, frame: "DataFrame", but: Collection[str], used: Collection[str], path: Path, decimal: str = "."
    ) -> tuple["DataFrame", list[Note]]:
        """Return a table with the numbers and dates that its texts are, in columns with no other text.

        Parameters
        ----------
        frame : DataFrame
            The table.
        but : Collection[str]
            Columns that stay as they are.
        used : Collection[str]
            Columns in which dates are looked for where nobody said how they are written, which notes say.
        path : Path
            Its file.
        decimal : str
            The decimal sign where none is asked for.
        """
        found, notes = {}, []
        for name in frame.columns:
            column = frame[name]
            if name not in but and not is_number_type(column.dtype) and not is_nested(column):
                found[name] = self._read(column, decimal if self.decimal == AUTO else self.decimal)
                if self.date_format == AUTO and name in used and (form := the_date_format(found[name])):
                    found[name] = _dates(found[name], form)
                    read = f"{name!r} of {path.name!r} has dates, read as {SHOWN.get(form, form)}"
                    notes.append(Note("inputs", read, "date-format"))
        return frame.assign(**found), notes

    def _read(self, column: "Series", decimal: str) -> "Series":
        import pandas as pd

        if self.decimal == self.thousands == self.date_format == AUTO:
            return column
        texts = column[column.map(lambda cell: isinstance(cell, str))]
        others = column.drop(texts.index).dropna()
        if not len(texts) or not others.map(lambda cell: isinstance(cell, int | float)).all():
            return column
        texts = texts.str.strip()
        group = SIGNS.get(self.thousands)
        digits = rf"(\d+|\d{{1,3}}({group}\d{{3}})+)" if group else r"\d+"
        if texts.str.fullmatch(rf"[+-]?{digits}({re.escape(decimal)}\d+)?").all():
            plain = texts.str.replace(group, "", regex=True) if group else texts
            plain = plain.str.replace(decimal, ".", regex=False)
            if len(others) or (plain != texts).any():
                read = pd.read_csv(io.StringIO("\n".join(plain)), header=None)[0]  # as of a plain file
                numbers = column.mask(column.index.isin(texts.index)).astype(object)
                numbers[texts.index] = read.to_numpy().astype(object)
                return pd.to_numeric(numbers)
        if self.date_format != AUTO and not len(others):
            dates = _dates(column, self.date_format)
            return dates if dates.notna().sum() == len(texts) else column
        return column


@dataclass(frozen=True)
class Signs:
    """How the numbers of a text file are written, where one reading alone fits them; empty where none does.

    Parameters
    ----------
    decimal, thousands : str
        The signs; ``thousands`` is empty where no number has one.
    of_commas, of_thousands : tuple[str, ...]
        The columns that have decimal commas, and signs between thousands.
    """

    decimal: str = ""
    thousands: str = ""
    of_commas: tuple[str, ...] = ()
    of_thousands: tuple[str, ...] = ()

    def beside(self, pointed: "DataFrame") -> "Signs":
        """Return these signs for the columns with points, too, if they can be thousands'; else none."""
        form = _numbers_with(self.decimal, self.thousands)
        if not all(pointed[name].dropna().str.strip().str.fullmatch(form).all() for name in pointed):
            return Signs()
        return replace(self, of_thousands=(*self.of_thousands, *pointed))

    def notes(self, path: Path) -> list[Note]:
        """Return what a run says of them."""
        found = []
        if self.of_commas:
            shown = listed(self.of_commas)
            found.append(Note("inputs", f"{path.name!r} has decimal commas, as in {shown}"))
        if self.thousands:
            what = "commas" if self.thousands == "," else "points"
            shown = f"{path.name!r} has {what} between thousands, as in {listed(self.of_thousands)}"
            found.append(Note("inputs", shown, "thousands"))
        return found


def the_signs(frame: "DataFrame", but: Collection[str], thousands: str) -> Signs:
    """Return the signs of the only reading that fits all texts of numbers, by their columns.

    ``1.234`` has two, ``1.234,50`` and ``1.234.567`` one. If no number of the latter kind is there, signs
    between thousands are not looked for, whatever the other numbers.

    Parameters
    ----------
    frame : DataFrame
        The file as it is read with decimal points.
    but : Collection[str]
        Columns that hold no numbers.
    thousands : str
        The key; signs between thousands are looked for with ``auto``.
    """
    texts = {}
    forms = {sign: _numbers_with(sign, OTHER[sign] if thousands == AUTO else "") for sign in OTHER}
    for name in frame.columns.difference(list(but), sort=False):
        column = frame[name].dropna()
        if len(column) and not is_number_type(column.dtype) and not is_nested(column):
            words = column.drop_duplicates().astype(str).str.strip()
            fits = {sign: words.str.fullmatch(form) for sign, form in forms.items()}
            if (fits[","] | fits["."]).all():
                texts[name] = words, fits
    fit = [sign for sign in OTHER if texts and all(fits[sign].all() for _, fits in texts.values())]
    if len(fit) != 1:
        return Signs()
    (decimal,) = fit
    group = OTHER[decimal]
    has = {name: words.str.contains(group, regex=False) for name, (words, _) in texts.items()}
    grouped = tuple(name for name in texts if has[name].any())
    if grouped and all(texts[name][1][group][has[name]].all() for name in grouped):
        return Signs()
    commas = tuple(name for name, (words, _) in texts.items() if words.str.contains(",", regex=False).any())
    return Signs(decimal, group if grouped else "", commas if decimal == "," else (), grouped)


def _numbers_with(decimal: str, group: str) -> str:
    """Return the pattern of numbers with a decimal sign, and one between thousands if it is not empty."""
    groups = rf"|[1-9]\d{{0,2}}(\{group}\d{{3}})+" if group else ""
    return rf"[+-]?(\d+{groups})(\{decimal}\d+)?"


def _dates(column: "Series", form: str) -> "Series":
    import pandas as pd

    texts = column.str.strip()
    return pd.to_datetime(texts, format=form, errors="coerce", utc=True if form == ISO else None)


def the_date_format(column: "Series") -> str:
    """Return the only usual format that fits all texts of a column; empty if none does, or several do."""
    texts = column.dropna()
    if not len(texts) or not texts.map(lambda cell: isinstance(cell, str)).all():
        return ""
    texts = texts.drop_duplicates()
    if not LIKE_A_DATE.fullmatch(texts.iloc[0].strip()):
        return ""
    if texts.str.strip().str.fullmatch(OF_ISO).all():
        return ISO if _dates(texts, ISO).notna().all() else ""
    fit = [form for form in USUAL_FORMATS if _dates(texts, form).notna().all()]
    return fit[0] if len(fit) == 1 else ""


def unread_texts(frame: "DataFrame", used: Collection[str]) -> list[str]:
    """Return what is wrong with texts that are numbers or dates, by column, with the keys that cure it."""
    found = []
    for name in filter(used.__contains__, frame.columns):
        column = frame[name].dropna()
        if is_number_type(column.dtype) or is_date_type(column.dtype) or is_nested(column) or column.empty:
            continue
        words = sorted(set(column.astype(str).str.strip()))
        if all(map(is_number_word, words)):
            cure = "name its signs, as in decimal=, or thousands=."
            found.append(f"{name!r} holds numbers as text, such as {words[0]!r}: {cure}")
        elif all(map(DATE.fullmatch, words)):
            cure = "name their form, as in date-format=%d.%m.%Y"
            found.append(f"{name!r} holds dates as text, such as {words[0]!r}: {cure}")
    return found


def _is_of_dates(form: str) -> bool:
    import pandas as pd

    day = pd.Timestamp(2021, 12, 31)
    try:
        return bool(pd.to_datetime(day.strftime(form), format=form).normalize() == day)
    except ValueError:
        return False


def is_date_type(dtype: object) -> bool:
    """Return whether a column of this type holds dates."""
    return np.dtype(dtype).kind == "M" if isinstance(dtype, np.dtype) else hasattr(dtype, "tz")


def as_days(table: "DataFrame", but: Collection[str]) -> tuple["DataFrame", list[str]]:
    """Return a table with days since 1970-01-01 in the place of dates, and the columns that had these."""
    import pandas as pd

    dates = [n for n, t in zip(table.columns, table.dtypes, strict=True) if n not in but and is_date_type(t)]
    since = {name: pd.to_datetime(table[name], utc=True) - pd.Timestamp(0, tz="UTC") for name in dates}
    return table.assign(**{name: days / pd.Timedelta(days=1) for name, days in since.items()}), dates
