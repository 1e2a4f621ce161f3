"""Table rows as a kind of data, standardised by each client on its own."""

from collections.abc import Collection
from typing import ClassVar

from fedbn_flower.clients import Prepare

from ...dataset import KEYS_OF_TEXTS, Rows
from ...notes import Note
from ...numeric import Numeric, Standardise


class Table(Numeric):
    """Table rows: ``x`` float32 (N, F), ``y`` int64 class numbers (N,) or float32 (N, 1).

    ``x`` holds numbers, NaN where missing, and one-hot categories. Facts: those of `Numeric`; ``numbers``,
    the indices of the numeric columns among the F; and ``columns``, in order the ``name`` of each column and
    its ``values``, of which a number has none.
    """

    prepares_by_client = True
    keys: ClassVar = frozenset(
        {"columns", "label-column", "missing-values", "predict", *KEYS_OF_TEXTS, *Numeric.keys}
    )

    @property
    def numbers(self) -> Collection[int]:
        numbers: list[int] = self.facts["numbers"]
        return numbers

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        """Standardise with the statistics of these rows only, which stay with the client.

        With ``normalize``, by all training rows.
        """
        if normalize:
            return self.standardised_alike
        return Standardise.fit(self.train["x"][rows], self.numbers, self.rest(rows))

    not_integers, prepare_integers = Numeric.not_integers, Numeric.prepare_integers
    """A model that takes whole numbers gets them as they are, not standardised."""

    def notes(self, normalize: bool) -> tuple[Note, ...]:
        """Return none: a table is always standardised, so that its reader knows what is lost."""
        return ()
