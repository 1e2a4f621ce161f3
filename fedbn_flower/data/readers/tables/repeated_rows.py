"""Rows that stand twice, and codes that are one number when they are read."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ....core.text import listed, quoted
from ...notes import Note, Row
from .table_file import ReadTable
from .words import is_number

LEAST = 10
"""Different rows, below which chance may repeat all."""
NEARLY = 0.9
"""The share of the different rows that stand two, four, ... times, if a table stands twice."""
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
