"""Words that stand for a missing value: ``--missing-values``."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...data.column_text import split_words
from ...data.labels import same_word

AUTO = "auto"
USUAL = (
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
"""The words that pandas takes for missing in a text file."""


@dataclass(frozen=True)
class Missing:
    """Which words are missing values, by column. The empty cell always is one, a value that is named never.

    Parameters
    ----------
    key : str
        ``--missing-values``: words with commas between them, or ``auto`` for the `USUAL` ones of a text file.
    values : Mapping[str, Collection[str]]
        The values that the keys name, by column.
    ids : Collection[str]
        The columns of the natural clients and of the units, whose usual words are names.
    """

    key: str = AUTO
    values: Mapping[str, Collection[str]] = field(default_factory=dict)
    ids: Collection[str] = ()

    @property
    def guessed(self) -> bool:
        """Whether nobody said which words they are."""
        return self.key == AUTO

    @property
    def named(self) -> frozenset[str]:
        """The columns whose values are words, whatever they look like: ids, and those with named values."""
        return frozenset([*self.values, *self.ids])

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words, whatever the column."""
        if self.guessed:
            return USUAL
        return tuple(filter(None, (word.strip() for word in split_words(self.key))))

    def of_column(self, name: str) -> list[str]:
        """Return the words that are missing values in this column, with the empty one."""
        if name in self.ids and self.guessed:
            return [""]
        named = set(map(same_word, self.values.get(name, ())))
        return ["", *(word for word in self.words if same_word(word) not in named)]

    def for_pandas(self, names: Sequence[str]) -> list[str] | dict[str, list[str]]:
        """Return the argument ``na_values`` of pandas for columns of these names."""
        if not self.values and not (self.ids and self.guessed):
            return ["", *self.words]
        return {name: self.of_column(name) for name in names}
