r"""The text form of columns: ``age,sex=f|m`` in ``--columns``, ``diagnosis=B|M`` in ``--label-column``.

Columns are separated by commas. A name or value with a comma, a quote or a line break stands in quotes, as in
a CSV file. Within a column a backslash takes from ``|``, ``=`` and ``\`` what they mean: ``age>\=65``,
``unit=mg\|dl|mmol``. Before any other sign it is itself.
"""

import csv
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ..core.errors import not_allowed, unknown_name

_SPECIAL = re.compile(r"([\\|=])")
_PIECES = re.compile(r"\\[\\|=]|.", re.DOTALL)


@dataclass(frozen=True)
class Feature:
    """A column by name: numeric, or categorical with these ``values``, in order."""

    name: str
    values: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The number of encoded columns."""
        return len(self.values) or 1

    @classmethod
    def parse(cls, word: str, names: Collection[str], key: str) -> "Feature":
        """Parse ``NAME`` or ``NAME=VALUE|VALUE``; a column's whole name needs no backslashes.

        Raises
        ------
        UserError
            When there is no such column, or a value is empty or given twice.
        """
        left, equals, right = _split_once(word)
        name = next((n for n in _spelt(_unescaped(left)) if n in names), "")
        if not (equals and name):
            for whole in (name, *_spelt(word)):
                if whole in names:
                    return cls(whole)
            raise unknown_name(key, _unescaped(left), names)
        values = tuple(map(_unescaped, _split(right, "|")))
        if len(set(values)) < len(values) or "" in values:
            raise not_allowed(key, word, "distinct values, as in sex=f|m")
        return cls(name, values)

    def __str__(self) -> str:
        values = "|".join(map(_escaped, self.values))
        return f"{_escaped(self.name)}={values}" if values else _escaped(self.name)


def split_words(text: str) -> list[str]:
    """Split a text at its commas, but for those in quotes."""
    try:
        return next(csv.reader([text]))
    except csv.Error:  # a line break outside quotes
        return [text]


def joined(words: Iterable[str]) -> str:
    """Join words with commas, such as `split_words` splits again."""
    return ",".join(map(_quoted, words))


def format_columns(features: Sequence[Feature]) -> str:
    """Return the text that stands for these columns in ``--columns``."""
    return joined(map(str, features))


def numeric(features: Sequence[Feature]) -> list[tuple[int, str]]:
    """Return the columns that are numbers: the index of each among the encoded ones, and its name."""
    starts = accumulate((feature.width for feature in features), initial=0)
    return [(start, one.name) for start, one in zip(starts, features, strict=False) if not one.values]


def _quoted(word: str) -> str:
    escaped = word.replace('"', '""')
    return f'"{escaped}"' if not word or any(sign in word for sign in ',"\n\r') else word


def _spelt(name: str) -> tuple[str, str]:
    """Return a name as it stands, and without the blanks around it, as after a comma."""
    return name, name.strip()


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _unescaped(text: str) -> str:
    return re.sub(r"\\([\\|=])", r"\1", text)


def _split(text: str, sign: str) -> list[str]:
    """Split a text at each ``sign`` without a backslash; backslashes stay."""
    parts = [""]
    for piece in _PIECES.findall(text):
        if piece == sign:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def _split_once(text: str) -> tuple[str, str, str]:
    """Split a text at its first ``=`` without a backslash, as `str.partition` does."""
    left, *rest = _split(text, "=")
    return (left, "=", text[len(left) + 1 :]) if rest else (text, "", "")
