"""Doubts about parts of a table's rows, of clients or of the test set: other units, words, no values."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.text import listed, quoted
from ..data.dataset import Dataset
from ..data.numeric import Numeric, Table
from ..data.partition.shares import Shares
from ..data.statistics import columns_of
from .inputs import CHANCE, LEAST, MAX_SHOWN, columns_in
from .targets import same_in_pairs

FEWEST_NUMBERS, MOST_SHARED = 10, 0.5
"""How many numbers others have, and the share of a client's only one there, from and to which it is odd."""
LEAST_FACTOR = 2.0
SPREAD = 0.05, 0.5, 0.95
"""The quantiles between which a site's numbers spread."""
MOST_CELLS = 2**24
"""Cells of a table that is looked at."""
SCALED, ROWS = 50.0, 2**8
"""The factor between magnitudes, from which on one of them is probably scaled; rows that are looked at."""


class Parts(NamedTuple):
    """Parts of a table's rows that are compared: where they are, and what one and another are called.

    ``is_later`` says that one may be of a later time or another place, where new words are no doubt.
    """

    shares: Shares
    where: Sequence[str]
    one: str = "site"
    another: str = "at another client"
    rows: str = "training row"
    is_later: bool = False

    @classmethod
    def of_clients(cls, shares: Shares, names: Sequence[str]) -> "Parts":
        """Return the clients' training rows."""
        return cls(shares, [f"at {names[i] if names else f'client {i}'}" for i in range(len(shares))])


def warn_about_test_set(dataset: Dataset) -> Iterator[str]:
    """Yield the warnings of units, values and words for a test set of its own beside the training set."""
    kind, sets, where = dataset.kind, dataset.splits, ["in the training set", "in the test set"]
    if len(sets) < 2 or not isinstance(kind, Table) or kind.train["x"].size > MOST_CELLS:
        return
    columns = {name: np.concatenate([part.columns[name] for part in sets]) for name in kind.train}
    shares = Shares.cut(np.arange(len(columns["y"])), np.array([len(part) for part in sets]))
    both = replace(dataset, kind=Table(kind.facts, columns))
    yield from warn_about_parts(both, Parts(shares, where, "set", where[0], "row", is_later=True))


def warn_about_parts(dataset: Dataset, parts: Parts) -> Iterator[str]:
    """Yield the warnings of a table's columns that differ between parts as if somebody wrote them otherwise.

    Not of a single number in a later set: a later year, or another hospital, has its own.
    """
    kind = dataset.kind
    if isinstance(kind, Table) and kind.train["x"].size <= MOST_CELLS:
        targets = kind.facts["targets"] if dataset.spec.predicts == "numbers" else []
        yield from units(kind, parts, targets)
        yield from without_values(kind, parts)
        if not parts.is_later:
            yield from single_numbers(kind, parts)
        yield from other_words(kind, parts)


def units(kind: Table, parts: Parts, targets: Sequence[str]) -> Iterator[str]:
    """Yield a warning of columns, inputs or to predict, whose medians differ between clients as units do.

    Their factor is greater than `LEAST_FACTOR`, and than the square of how far, as a factor, the numbers of
    any client spread. All numbers are positive but few, and a client has at least `LEAST` of them.
    """
    import pandas as pd

    columns = {name: at.start for name, words, at in columns_of(kind) if not words}
    rows, owner = _by_part(parts.shares)
    table = pd.DataFrame(kind.train["x"][np.ix_(rows, list(columns.values()))], columns=list(columns))
    if targets:
        table[targets] = kind.train["y"][rows]
    by_client = table.groupby(owner)
    enough = by_client.count() >= LEAST
    low, middle, high = (by_client.quantile(q).where(enough) for q in SPREAD)
    spread = (high / low.where(low > 0)).where(high > low)
    middle = middle.where(spread.notna())
    factor = middle.max() / middle.min()
    found = factor[(factor > LEAST_FACTOR) & (factor > spread.max() ** 2)]
    if len(found):
        of_columns = []
        for name in found.index:
            least, most = middle[name].idxmin(), middle[name].idxmax()
            said = [f"{middle[name][i]:.3g} {parts.where[i]}" for i in (least, most)]
            of_columns.append(f"{name!r} has a median of {' and one of '.join(said)}")
        yield (
            f"columns: units? {listed(of_columns, MAX_SHOWN)}, far more than the numbers of each "
            f"{parts.one} spread; if the units differ, write all {parts.one}s' numbers in one"
        )


def without_values(kind: Table, parts: Parts) -> Iterator[str]:
    """Yield a warning of columns of which a client has no value, though by chance it would have one.

    All of its rows are filled with the same, by which a model can know them.
    """
    shares, sizes = parts.shares, parts.shares.sizes
    rows, owner = _by_part(shares)
    limit = log(CHANCE / max(1, len(kind.facts["columns"]) * len(shares)))
    found = []
    for column in columns_in(kind, rows):
        known = np.bincount(owner[~np.isnan(column.values)], minlength=len(shares))
        without = np.flatnonzero((known == 0) & (sizes > 0))
        others = sizes.sum() - sizes[without].sum()
        lacking = 1 - known.sum() / max(1, others)
        at = [i for i in without.tolist() if others and sizes[i] * log(max(lacking, 1e-300)) < limit]
        if at:
            found.append(f"{column.name!r} {listed([parts.where[i] for i in at], MAX_SHOWN)}")
    if found:
        yield (
            f"columns: lacking? no {parts.rows} has {listed(found, MAX_SHOWN)}, where it is filled with one "
            "value; name the columns to use without it, or find out why"
        )


def single_numbers(kind: Table, parts: Parts) -> Iterator[str]:
    """Yield a warning of numbers of which a client has a single one, though by chance it would have others.

    All others have `FEWEST_NUMBERS` or more, since a flag may be off at one site, and this one in half of
    their rows at most; nor is it so of most clients, as of what is known of each, such as its beds.
    """
    sizes = parts.shares.sizes
    rows, _ = _by_part(parts.shares)
    here = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[here]
    limit, found = log(CHANCE / max(1, len(kind.facts["columns"]) * len(sizes))), []
    for column in columns_in(kind, rows) if len(here) > 1 else ():
        low, high = (ends.reduceat(column.values, starts) for ends in (np.minimum, np.maximum))
        constant = np.flatnonzero(low == high)  # not where one is missing
        if column.words or 2 * len(constant) > len(here):
            continue
        constant = constant[sizes[here[constant]] >= LEAST]
        known = column.values[~np.isnan(column.values)]
        if not len(constant) or ((known == 0) | (known == 1)).all():
            continue
        numbers, counts = np.unique(known, return_counts=True)
        own, with_it = sizes[here[constant]], counts[np.searchsorted(numbers, low[constant])]
        share = (with_it - own) / (len(rows) - own)
        odd = (share <= MOST_SHARED) & (own * np.log(np.maximum(share, 1e-300)) < limit)
        for i in constant[odd & (len(numbers) - (with_it == own) >= FEWEST_NUMBERS)].tolist():
            found.append(f"{column.name!r} is {low[i]:.7g} {parts.where[here[i]]}")
    if found:
        yield (
            f"columns: lacking? {listed(found, MAX_SHOWN)}, in each {parts.rows}, and has many values "
            "elsewhere; if it stands for a missing value, leave it empty"
        )


def warn_about_pairs(dataset: Dataset) -> Iterator[str]:
    """Yield a warning of categories that have two words for yes, and two for no."""
    if isinstance(dataset.kind, Table):
        pairs = {name: same_in_pairs(words) for name, words, _ in columns_of(dataset.kind)}
        found = [
            f"{' and '.join(f'{one!r} as well as {other!r}' for one, other in of)} in {name!r}"
            for name, of in pairs.items()
            if of
        ]
        if found:
            shown = listed(found, MAX_SHOWN)
            yield f"columns: words? {shown}; if they mean the same, write one word for both"


def other_words(kind: Table, parts: Parts) -> Iterator[str]:
    """Yield a warning of categories for which a client has other words than all others: ``f`` for ``female``.

    It has two words or more, as the others have, and no chance would draw new ones so often: their rows
    have few words that are found only once. Of a later set only those count that are short for others', or
    spelt out.
    """
    rows, owner = _by_part(parts.shares)
    words = {name: words for name, words, _ in columns_of(kind)}
    limit = log(CHANCE / max(1, len(words) * len(parts.shares)))
    found = []
    for column in columns_in(kind, rows):
        there = ~np.isnan(column.values)
        if not column.words or not there.any():
            continue
        names = words[column.name]
        whose, which = owner[there], column.values[there].astype(np.int64)
        counts = np.bincount(which, minlength=column.words)
        client, word = np.unique(np.stack([whose, which]), axis=1)
        shared = np.bincount(word, minlength=column.words)[word] > 1
        for i in np.setdiff1d(client, client[shared]).tolist():
            if parts.where[i] == parts.another:
                continue
            own, theirs = word[client == i], np.unique(word[client != i])
            if min(len(own), len(theirs)) < 2:
                continue
            if parts.is_later and not _are_spellings(*([names[k] for k in of] for of in (own, theirs))):
                continue
            new = np.count_nonzero(counts[theirs] == 1) / counts[theirs].sum()
            if counts[own].sum() * log(max(new, 1e-300)) < limit:
                shown = quoted([names[k] for k in own], MAX_SHOWN)
                found.append(f"{column.name!r} {parts.where[i]} ({shown})")
    if found:
        yield (
            f"columns: words? no word of {listed(found, MAX_SHOWN)} is found {parts.another}; if they mean "
            "what others write, write the same words"
        )


def _are_spellings(words: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether each word begins with one of the others, or one of them with it, in any case."""
    one, other = ([word.casefold() for word in of] for of in (words, others))
    return all(any(word.startswith(o) or o.startswith(word) for o in other) for word in one)


def _by_part(shares: Shares) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of all parts, one part's after the other's, and in which each is."""
    rows = np.concatenate([np.empty(0, np.int64), *(shares[i] for i in range(len(shares)))])
    return rows, np.repeat(np.arange(len(shares)), shares.sizes)


def warn_about_scales(dataset: Dataset, parts: Parts) -> Iterator[str]:
    """Yield a warning of arrays whose magnitudes differ between clients, or the test set, by `SCALED`.

    Both do, as a factor: the root mean squares, which hardly know of noise beside a signal, and the medians
    of what is not 0, which know of no outlier.
    """
    if type(dataset.kind) is not Numeric:
        return
    x = {where: dataset.train.columns["x"][parts.shares[i]] for i, where in enumerate(parts.where)}
    x |= {"in the test set": dataset.test.columns["x"]} if dataset.splits[1:] else {}
    sizes = {where: np.abs(part[:: len(part) // ROWS + 1]) for where, part in x.items()}
    positive = {where: part[part > 0] for where, part in sizes.items()}
    found = sorted(
        ((np.square(part, dtype=np.float64).sum() / sizes[where].size) ** 0.5, float(np.median(part)), where)
        for where, part in positive.items()
        if len(part) >= LEAST
    )
    if found and found[-1][0] > SCALED * found[0][0] and found[-1][1] > SCALED * found[0][1]:
        least, most = (f"{size:.3g} {where}" for _, size, where in (found[0], found[-1]))
        said = f"data: scale? the median magnitude of the inputs is {least} and {most}"
        yield f"{said}; if only one of them was scaled, scale both alike"
