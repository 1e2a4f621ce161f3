"""Cells as text: categories, and texts that are hardly meant as such."""

import re
import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError
from ...core.text import quoted
from ...data.column_text import Feature, joined
from ...data.labels import NUMBER, same_word, spelt_alike
from ...data.splits.groups import are_shared, is_of_people

if TYPE_CHECKING:
    from pandas import Series

MAX_SHOWN = 5
GROUPS = re.compile(r"[+-]?\d{1,3}([,.' \u00a0\u202f])\d{3}(\1\d{3})*([.,]\d+)?")
"""Digits in groups of three: ``1,317.65``, ``1.317,65``, ``1 317,65``."""
UNIT = re.compile(r"^[$€£¥]\s*|\s*[$€£¥%]$")
_UNIT = (
    r"kg|mg|[uµμ]g|ng|pg|ml|dl|cl|cm|mm|km|nm|ms|°|° ?[cf]|mm ?hg|bpm|kcal|kj|kw|hz|iu|ie|[mnuµμ]?mol"
    r"|years?|yrs?|jahre?|ans?|a[nñ]os?|months?|monate?|weeks?|wochen?|days?|tage?|hours?|hrs?|stunden?|std"
    r"|min|minutes?|minuten?|sec|sek|eur|euros?|usd|gbp|chf|jpy|percent|prozent"
)
_SHORT = "[glmshdyjcu]"
MEASURE = re.compile(
    rf"(.*\d\.?)(\s*({_UNIT})(/({_UNIT}|{_SHORT}))?|\s*{_SHORT}/({_UNIT}|{_SHORT})|\s+{_SHORT})\.?",
    re.IGNORECASE,
)
"""A number with its unit, such as ``72 kg``, ``36.5°C`` or ``45 J``; before one letter there is a blank."""
PAIR = re.compile(r"\d{2,3}\s*/\s*\d{2,3}")
"""Two numbers in a cell, as of blood pressure: ``110/80``."""
MINUS = re.compile("^[\u2010-\u2013\u2212](?=[\\d.,])")
"""A minus that is none to a computer, as word processors write it."""
LIMIT = re.compile(
    r"[<>≤≥]=?\s*[\d.,]+|[\d.,]+\s*(\+|(years )?(and|or) (over|above|older|more|under|below|younger|less))",
    re.IGNORECASE,
)
"""A limit, such as ``<5`` of detection, or ``90+`` of age."""
CODE = re.compile(r"\w*\d\w*")
MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}[-/]\d{1,2}[-/]\d{2}"
    r"|(0?[1-9]|[12]\d|3[01])\.(0?[1-9]|1[0-2])\.\d{2}"
    rf"|\d{{1,2}}\.?[- /]{MONTH}[- /,]+\d{{2,4}}|{MONTH} \d{{1,2}},? \d{{4}})([ T]\d{{1,2}}:\d{{2}}.*)?",
    re.IGNORECASE,
)
TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[ap]\.?m\.?)?", re.IGNORECASE)
NUMBERS = "save the column as numbers"
DATES = "write them as numbers, such as days or years"
TIMES = "write them as numbers, such as minutes or hours"
SEPARATORS = "write decimals with a point, and no separators of thousands"
UNITS = "write numbers without a sign of their unit"
FLATTEN = "write a column for each of its parts"
HYPHENS = "write the minus as '-'"
MEASURES = "write numbers without their unit"
PAIRS = "write a column for each of the two numbers"
HINTS = ("", NUMBERS, HYPHENS, DATES, TIMES, SEPARATORS, UNITS, MEASURES, PAIRS)
MAX_CODES = 20
"""Distinct words, up to which numbers beside words such as ``20A`` are codes."""


def as_text(column: "Series") -> NDArray[np.object_]:
    """Return values as text: whole numbers without a decimal point, truth values as ``False``, ``True``."""
    import pandas as pd

    codes, found = pd.factorize(column, use_na_sentinel=False)
    number = is_number(column)
    words = np.array([_word(value, number) for value in pd.Series(found).astype(object)], object)
    text: NDArray[np.object_] = words[codes]
    return text


def _word(value: object, number: bool) -> str:
    whole = number and isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value) if whole else value)  # type: ignore[call-overload]


def is_nested(column: "Series") -> bool:
    """Return whether a column holds lists or structs, by its first value."""
    first = column.dropna().head(1)
    return any(isinstance(value, dict | list | tuple | set | np.ndarray) for value in first)


def refuse_nested(column: "Series", key: str) -> None:
    """Refuse lists and structs, such as a Parquet file may hold.

    Raises
    ------
    UserError
        Names the column.
    """
    if is_nested(column):
        what = "structs" if isinstance(column.dropna().iloc[0], dict) else "lists"
        raise UserError(f"{key}: {column.name!r} holds {what}; expected one value in each cell: {FLATTEN}")


def is_number(column: "Series") -> bool:
    """Return whether a column is numeric; truth values are not."""
    return is_number_type(column.dtype)


def is_number_type(dtype: object) -> bool:
    """Return whether a column of this type is numeric."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return is_numeric_dtype(dtype) and not is_bool_dtype(dtype)


def is_number_word(word: str) -> bool:
    """Return whether a word is a number, whichever its signs."""
    return bool(NUMBER.fullmatch(word.replace(",", ".")) or GROUPS.fullmatch(word))


def category_numbers(column: "Series", feature: Feature, key: str) -> NDArray[np.int64]:
    """Return the index of each value in ``feature.values``, int64 (N,); ``len(values)`` if it is missing.

    A cell that is not one of them is compared without case and blanks, see `same_word`.

    Raises
    ------
    UserError
        For a value that is not one of them.
    """
    import pandas as pd

    words, present = as_text(column), column.notna().to_numpy()
    indices = pd.Index(feature.values).get_indexer(words)
    if (unknown := present & (indices < 0)).any():
        read_as = spelt_otherwise(words[unknown], feature.values)
        for word, index in read_as.items():
            indices[unknown & (words == word)] = index
    if (unknown := present & (indices < 0)).any():
        found = f"{feature.name!r} holds {words[unknown.argmax()]!r}"
        raise UserError(f"{key}: {found}; expected one of {'|'.join(feature.values)}")
    return np.where(present, indices, len(feature.values)).astype(np.int64)


def spelt_otherwise(words: Collection[str], values: Sequence[str]) -> dict[str, int]:
    """Return the indices of the values that these words differ from in case or blanks only.

    Words that differ so from none of them, or from several, are left out.
    """
    places: dict[str, list[int]] = {}
    for index, value in enumerate(values):
        places.setdefault(same_word(value), []).append(index)
    found = {word: places.get(same_word(word), []) for word in set(words) - set(values)}
    return {word: indices[0] for word, indices in sorted(found.items()) if len(indices) == 1}


def read_as(words: Collection[str], values: Sequence[str]) -> str:
    """Return what is said of words that are read as `spelt_otherwise` does; empty if none are."""
    found = spelt_otherwise(words, values)
    return ", ".join(f"{word!r} as {values[index]!r}" for word, index in found.items())


def alike(words: Sequence[str]) -> list[str]:
    """Return the words that differ from another one in case or blanks only, sorted."""
    return sorted((word for same in spelt_alike(words) for word in same), key=same_word)


def listed(words: Sequence[str]) -> str:
    """Return words in quotes, the first ones of many."""
    return quoted(words, MAX_SHOWN)


def says_whose(column: "Series") -> bool:
    """Return whether a column says of which person or case each row is, and several rows are one's."""
    if not is_of_people(str(column.name)) or is_nested(column):
        return False
    return are_shared(column.nunique(), int(column.notna().sum()))


def first_alone(column: "Series") -> str:
    """Return the value of the first row as text; empty if another row has it, too, or there is none."""
    if not len(column) or (column == column.iloc[0]).sum() != 1:
        return ""
    return str(as_text(column.iloc[:1])[0])


def check_categories(name: str, words: Sequence[str], key: str, other_way: str = "", first: str = "") -> None:
    """Refuse text values most of which are numbers, dates or times; ``other_way`` takes them as they are.

    ``first`` is the value that only the first row has, where units may stand.

    Raises
    ------
    UserError
        Says how to write the file.
    """
    hints = {word: _hint(word) for word in words}
    other = [word for word, hint in hints.items() if not hint]
    if len(other) >= len(words) / 2:
        return
    word = max((word for word in words if hints[word]), key=lambda word: HINTS.index(hints[word]))
    hint = hints[word]
    what = {DATES: "dates", TIMES: "times", PAIRS: "pairs of numbers"}.get(hint, "numbers")
    way = f", or {other_way}" if other_way and hint not in (SEPARATORS, UNITS, HYPHENS) else ""
    if not other:
        raise UserError(f"{key}: {name!r} holds {what} as text, such as {word!r}; {hint}{way}")
    others = _advice(name, words, other, key, first)
    hint = f"{hint}{way}, and {others}" if hint != NUMBERS else others
    raise UserError(f"{key}: {name!r} holds {what} and {other[0]!r}; {hint}")


def _advice(name: str, words: Sequence[str], other: Sequence[str], key: str, first: str) -> str:
    """Return what to do about ``other`` words among numbers or dates."""
    if any(same_word(word) == same_word(name) for word in other):
        return "remove the header where it stands again among the rows"
    if limits := [word for word in other if LIMIT.fullmatch(word.strip())]:
        others = [word for word in other if word not in limits]
        more = f"; and {_advice(name, words, others, key, first)}" if others else ""
        return f"write a number in the place of a limit, such as the limit itself, or leave it empty{more}"
    listed_words = shlex.quote(joined(other if len(other) <= MAX_SHOWN else other[:1]))
    missing = f"leave missing values empty, or name their words: missing-values={listed_words}"
    if list(other) == [first]:
        return f"if the first row holds units or the like, remove it; else {missing}"
    if all(map(CODE.fullmatch, other)) and len(words) <= MAX_CODES:
        named = shlex.quote(joined([str(Feature(name, tuple(words)))]))
        how = (
            f"label-column={named}"
            if key == "label-column"
            else f"name the columns to use, this one as {named}"
        )
        return f"if they are codes, {how}; else {missing}"
    return missing


def _hint(word: str) -> str:
    """Return how to write a number or date that stands as text, one of `HINTS`; empty if it is neither."""
    word = word.strip()
    for form, hint in ((NUMBER, NUMBERS), (DATE, DATES), (TIME, TIMES), (PAIR, PAIRS)):
        if form.fullmatch(word):
            return hint
    if is_number_word(word):
        return SEPARATORS
    for sign, hint in ((MINUS, HYPHENS), (UNIT, UNITS)):
        bare = sign.sub("-" if sign is MINUS else "", word)
        if bare != word and (found := _hint(bare)) in (NUMBERS, SEPARATORS, UNITS, HYPHENS):
            return found if sign is MINUS and found != NUMBERS else hint
    measure = MEASURE.fullmatch(word)
    return MEASURES if measure and _hint(measure[1]) in (NUMBERS, SEPARATORS, HYPHENS) else ""
