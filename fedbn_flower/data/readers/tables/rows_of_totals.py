"""Rows of totals below a table's examples, which are no examples."""

import re
from collections.abc import Sequence

from ....core.errors import UserError
from ....core.text import listed
from ...labels import same_word
from .table_file import ReadTable
from .words import GROUPS, NUMBER, as_text, is_nested, is_number
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


def refuse_totals(part: ReadTable, names: Sequence[str], labels: Sequence[str]) -> None:
    """Refuse rows with a label that have a word such as ``Total`` or ``Mean`` in a column of numbers.

    Without a label such rows are left out anyway.

    Raises
    ------
    UserError
        Names the rows as a spreadsheet counts them.
    """
    if not labels:
        return
    labelled = part.frame[[name for name in labels if name in part.frame]].notna().all(axis=1)
    for name in names:
        if name not in part.frame or is_number(part.frame[name]) or is_nested(part.frame[name]):
            continue
        column = part.frame[name].dropna()
        odd = {word for word in set(as_text(column.drop_duplicates())) if not _is_number(word)}
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


def _is_number(word: str) -> bool:
    word = word.strip()
    return bool(NUMBER.fullmatch(word.replace(",", ".")) or GROUPS.fullmatch(word))
