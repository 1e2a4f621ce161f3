"""Doubts about rows: totals, rows that stand twice, merged codes, and what float32 rounds off."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError
from ...core.notes import Note, Row
from ...core.text import listed, quoted
from ...data.column_text import Feature, numeric
from ...data.float32 import Distinct, facts_of, feature_of, may_lose
from ...data.labels import same_word
from ...data.numeric import lost_targets, lost_values
from .table_file import ReadTable
from .words import as_text, is_nested, is_number, is_number_word
from .words import listed as words_listed

FEW, SHARE, MAX_SHOWN = 3, 0.02, 5
"""At most so many rows, or such a share of all, are totals."""
TOTAL = re.compile(
    r"((grand |overall )?(total|mean|sum|average|median)s?|sub-?totals?|avg|std|s\.?d|std\.? ?dev|min|max"
    r"|minimum|maximum|count|n|n ?= ?\d+|standard deviation"
    r"|(gesamt|zwischen)?summe|gesamt|insgesamt|mittelwert|durchschnitt|mittel|anzahl|standardabweichung"
    r"|totaux|moyennes?|somme|m[eé]diane|[eé]cart[- ]type|effectif)[ .:]*"
)
"""What the first cell of such a row says, in lower case."""


def refuse_totals(part: ReadTable) -> None:
    """Refuse rows with a label that have a word such as ``Total`` or ``Mean`` in a column of numbers.

    Without a label such rows are left out anyway.

    Raises
    ------
    UserError
        Names the rows as a spreadsheet counts them.
    """
    if not part.asked.labels:
        return
    labelled = part.frame[part.asked.label_names].notna().all(axis=1)
    for name in part.asked.unnamed:
        if is_number(part.frame[name]) or is_nested(part.frame[name]):
            continue
        column = part.frame[name].dropna()
        odd = {word for word in set(as_text(column.drop_duplicates())) if not is_number_word(word.strip())}
        if not odd or not all(TOTAL.fullmatch(same_word(word)) for word in odd):
            continue
        words = as_text(column)
        places = [i for i, word in zip(column.index, words, strict=True) if word in odd]
        if len(places) > max(FEW, SHARE * len(column)) or 2 * len(places) >= len(column):
            continue
        if labelled[places].any():
            first = 2 + part.above
            rows = listed([str(first + place) for place in places], MAX_SHOWN)
            totals = (
                f"these look like rows of totals: remove them (rows {rows})"
                if len(places) > 1
                else f"this looks like a row of totals: remove it (row {rows})"
            )
            found = f"{name!r} holds numbers and {words_listed(sorted(odd))}"
            raise UserError(f"dataset: {str(part.path)!r}: {found}; {totals}")


POINTED = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
WHOLE = re.compile(r"[+-]?\d{1,3}")
OF_EITHER = 3
"""Distinct numbers of either form, below which they say nothing."""
FIRST_ROWS = 100
"""Rows by which most columns are known to be others."""
GREATER = 0.9
"""The share of the whole numbers that are greater than all others, if points separate thousands."""


def refuse_thousands(part: ReadTable) -> None:
    """Refuse numbers of a text file, such as ``1.234``, whose points probably separate thousands.

    Those with a point then have exactly three digits behind it, and the others, below 1000, hardly any: as
    decimals nearly all of these are greater than all of those; or they have three digits, and some of those
    a zero at their end, which decimals without a point beside them have lost.

    Raises
    ------
    UserError
        Says how to write them in either case.
    """
    names = [name for name in part.asked.unnamed if part.layout and _may_be_thousands(part.frame[name])]
    for name, texts in part.texts(names).items():
        pointed = [word for word in texts if POINTED.fullmatch(word)]
        whole = [word for word in texts if WHOLE.fullmatch(word) and float(word)]
        if min(len(pointed), len(whole)) < OF_EITHER or any("." in word for word in {*texts} - {*pointed}):
            continue
        highest, sizes = max(abs(float(word)) for word in pointed), np.abs(np.array(whole, np.float64))
        fixed = any(word.endswith("0") for word in pointed) and sizes.min() >= 100
        if fixed or np.mean(sizes > highest) >= GREATER:
            one, other = pointed[0], max(whole, key=float)
            found = f"dataset: {str(part.path)!r}: {name!r} holds {one!r} and {other!r}"
            way = f"write {one.replace('.', '')}, else {other}.000, and so all of its numbers"
            raise UserError(f"{found}; if points separate thousands, {way}")


def _may_be_thousands(column: "Series") -> bool:
    """Return whether all numbers of a column are fractions below 1000 with three decimals at most."""
    if column.dtype.kind != "f":
        return False
    distinct = (np.abs(some.dropna().unique()) for some in (column.dropna().head(FIRST_ROWS), column))
    return all(len(values) and values.max() < 1000 and _are_thousandths(values) for values in distinct)


def _are_thousandths(values: np.ndarray) -> bool:
    """Return whether all numbers have three decimals at most."""
    thousandths = values * 1000
    return bool((np.abs(thousandths - np.rint(thousandths)) < 1e-6).all())


LEAST = 10
"""Different rows, below which chance may repeat all."""
NEARLY = 0.9
"""The share of the different rows that stand two, four, ... times, if a table stands twice."""


def merged(parts: Sequence[ReadTable], columns: Mapping[Row, Sequence[str]]) -> Iterator[Note]:
    """Yield notes on text files' codes with different zeros before them, such as ``01`` and ``1``.

    ``columns`` are those of labels and owners, by the row of their notes; those that are no numbers, or no
    columns, are passed over.
    """
    found: dict[str, dict[int, dict[str, None]]] = {}
    for part in parts:
        known = dict.fromkeys(name for names in columns.values() for name in names if name in part.frame)
        for name, texts in part.texts([name for name in known if is_number(part.frame[name])]).items():
            for text in filter(str.isdecimal, texts):
                found.setdefault(name, {}).setdefault(int(text), {})[text] = None
    for row, names in columns.items():
        for name in names:
            several = {number: texts for number, texts in found.get(name, {}).items() if len(texts) > 1}
            if several:
                shown = [
                    f"{quoted(sorted(texts), MAX_SHOWN)} as {number}" for number, texts in several.items()
                ]
                yield Note(row, f"{name!r} holds numbers, of which it reads {listed(shown, MAX_SHOWN)}")


def repeated(parts: Sequence[ReadTable], columns: Sequence[str]) -> Iterator[Note]:
    """Yield a note on files with the same rows, or one if nearly all rows stand twice or three times."""
    from pandas.util import hash_pandas_object

    hashes = []
    for part in parts:
        here = part.frame[[name for name in columns if name in part.frame]]
        hashes.append(hash_pandas_object(here, index=False).to_numpy())
    first: dict[bytes, Path] = {}
    for part, found in zip(parts, hashes, strict=True):
        other = first.setdefault(np.sort(found).tobytes(), part.path)
        if other != part.path and len(np.unique(found)) >= LEAST:
            one, another = (f"{path.parent.name}/{path.name}" for path in (part.path, other))
            yield Note("examples", f"{one!r} has the same rows as {another!r}")
            return
    counts = np.unique(np.concatenate(hashes), return_counts=True)[1]
    if len(counts) >= 2 * LEAST and any(np.mean(counts % times == 0) >= NEARLY for times in (2, 3)):
        differ = f"{len(counts)} of {counts.sum()} differ"
        yield Note("examples", f"(nearly) each row stands twice or more often: {differ}")


BLOCK = 64
"""Columns that are looked at together."""

if TYPE_CHECKING:
    from pandas import DataFrame, Series


def rounded_off(
    features: Sequence[Feature], table: "DataFrame", labels: Sequence[str]
) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any], tuple[Note, ...]]:
    """Return the column ``rest`` where there is one, the facts of `float32.Columns`, and notes.

    ``labels`` are the columns of numbers to predict.
    """
    rests: dict[int, NDArray[np.float32]] = {}
    lost: list[tuple[str, Distinct]] = []
    for place, name, numbers in _suspects(features, table):
        found = feature_of(numbers)
        if found.rest is not None:
            rests[place] = found.rest
        if found.distinct:
            lost.append((repr(name), found.distinct))
    columns = {"rest": np.stack(list(rests.values()), 1)} if rests else {}
    targets = lost_targets((repr(name), _numbers(table[name])) for name in labels)
    return columns, facts_of(list(rests), {}), (*targets, *lost_values(lost))


def _suspects(features: Sequence[Feature], table: "DataFrame") -> Iterator[tuple[int, str, NDArray]]:
    """Yield place, name and values of the columns of numbers that `may_lose` some."""
    numbers = numeric(features)
    if table.empty:
        return
    for first in range(0, len(numbers), BLOCK):
        some = numbers[first : first + BLOCK]
        columns = [_numbers(table[name]) for _, name in some]
        may = may_lose(np.array([column.astype(np.float64, copy=False) for column in columns]))
        for (start, name), column, suspected in zip(some, columns, may, strict=True):
            if suspected or column.dtype.kind in "iu":
                yield start, name, column


def _numbers(column: "Series") -> NDArray:
    """Return a column as whole numbers of its own type, or as float64 with NaN where a number is missing."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iu":
        return np.asarray(column)
    return np.asarray(column.to_numpy(np.float64, na_value=np.nan))
