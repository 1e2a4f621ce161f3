"""Rows that stand twice, and codes that are one number when they are read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....core.listing import listed, quoted
from ...notes import Note, Row
from .table_file import ReadTable
from .words import is_number

if TYPE_CHECKING:
    from pandas import DataFrame

LEAST = 10
"""Different rows, below which chance may repeat all."""
NEARLY = 0.9
"""The share of the different rows that stand an even number of times, if a table stands twice."""
MAX_SHOWN = 5


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


def repeated(parts: Sequence[ReadTable], table: "DataFrame") -> Iterator[Note]:
    """Yield a note on files with the same rows, and else one if nearly all rows of a table stand twice."""
    from pandas.util import hash_pandas_object

    columns = list(table)
    hashes = [
        hash_pandas_object(
            part.frame[[name for name in columns if name in part.frame]], index=False
        ).to_numpy()
        for part in parts
    ]
    first: dict[bytes, str] = {}
    for part, found in zip(parts, hashes, strict=True):
        name = str(part.path.name)
        other = first.setdefault(np.sort(found).tobytes(), name)
        if other != name and len(np.unique(found)) >= LEAST:
            yield Note("examples", f"{name!r} has the same rows as {other!r}")
            return
    counts = np.unique(np.concatenate(hashes), return_counts=True)[1]
    if len(counts) >= 2 * LEAST and np.mean(counts % 2 == 0) >= NEARLY:
        rows = int(counts.sum())
        yield Note(
            "examples", f"(nearly) each row stands twice or more often: {len(counts)} of {rows} differ"
        )
