"""Doubts about inputs: columns of a table that are hardly meant as such, unscaled pictures."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from math import lgamma, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..config.named_algorithms import NOT_GIVEN
from ..core.text import are, in_lower_case, listed, quoted
from ..data.dataset import Dataset, Rows
from ..data.float32 import MOST_WHOLE, with_rest
from ..data.labels import NUMBER
from ..data.numeric import LEAST_LEVEL, LEVELS, PICTURES, Numeric, Table
from ..data.partition.shares import Shares
from ..data.splits.groups import MOST_AGAIN, are_shared, is_of_people
from ..data.statistics import columns_of, spread

Numbers = NDArray[np.float64]

CELLS = 2**21
"""How many cells are looked at, but `FEWEST` rows at least; what is found there is checked on all rows."""
FEWEST = 2**8
CHANCE = 1e-3
"""A warning's probability, over all columns, if these were drawn at random."""
MAX_SHOWN = 5
LEAST = 20
"""Values of a column, below which its name or form says nothing."""
FEW = 3
"""Different values, below which they may have the form of dates by chance."""
OF_ID = re.compile(
    r"(.*[^a-z])?(id|ids|uid|uuid|guid|mrn|identifier|accession|serial)([^a-z].*)?"
    r"|(.*[^a-z])?(case|customer|patient|person|record|row|sample|study|subject|user)[ _-]?"
    r"(id|no|nr|num|number)",
)
"""A name in lower case that is one of ids."""
OF_YEAR = re.compile(r"year|yr|jahr|ann[eé]e|a[nñ]o|anno", re.IGNORECASE)
OF_TIME = re.compile(r"(.*[^a-z])?(at|date|datetime|epoch|time|timestamp|ts|unix)([^a-z].*)?")
"""A name in lower case that is one of times."""
DAY = 86400
SINCE, UNTIL = 946_684_800, 2_051_222_400
"""The first second of 2000 and of 2035, as Unix counts them."""
LONGEST = 10 * 366 * DAY
"""Seconds between the first and the last of numbers that are taken for times though nothing is called so."""
NINES = re.compile(r"-9+(\.9+)?|99+(\.9+)?")
"""A number that stands for a missing value in many files."""
SURE = -99
"""A number of nines, up to which it is one among others that are not negative."""
MOST_GAPS = 5
"""Such a number above that is one if it is so many times as far from the others as these are apart."""


class Column(NamedTuple):
    """A column's values in some rows: numbers, NaN where missing; or categories by number.

    ``words`` is how many a category has; 0 are numbers.
    """

    name: str
    values: Numbers
    words: int = 0

    @property
    def known(self) -> Numbers:
        """The values that are there."""
        return self.values[~np.isnan(self.values)]

    @property
    def is_whole(self) -> bool:
        """Whether they are whole numbers."""
        return not self.words and bool((self.known == np.floor(self.known)).all())


def warn_about_columns(
    dataset: Dataset, shares: Shares | None = None, missing_values: str = NOT_GIVEN
) -> Iterator[str]:
    """Yield warnings of a table's columns on the training rows, at most one of each kind.

    - ``ids?``: whole numbers or words of which (nearly) each row has its own, if chance would hardly draw
      them so from as many, or from as wide a range; sparse ones only if they are called so.
    - ``groups?``: as many, of which several rows have the same, if they are called as those of people are.
    - ``dates?``: numbers such as 20240131, Unix seconds or milliseconds, and years that are called so.
    - ``owner?``: a value that each client has in all its rows, and no other client has.
    - ``missing?``: -999 and the like, far from all other values, more than once. Targets are looked at, too;
      nothing is if ``missing_values`` was given.

    Parameters
    ----------
    dataset : Dataset
        Nothing is said of one that is no table.
    shares : Shares, optional
        The training rows of each client.
    missing_values : str
        The run's key.
    """
    kind, count = dataset.kind, len(dataset.train)
    if not isinstance(kind, Table) or not count:
        return
    features = len(kind.facts["columns"]) or 1
    some = spread(np.arange(count), max(FEWEST, CELLS // features))

    def found(what_of: Callable[[Column, float], str]) -> dict[str, str]:
        """Return what is said of each column; of some rows alone chance may do what it does not of all."""
        names = None
        if len(some) < count:
            names = {one.name for one in columns_in(kind, some) if what_of(one, 1.0)}
        columns = columns_in(kind, slice(None), names)
        return {one.name: said for one in columns if (said := what_of(one, log(CHANCE / features)))}

    dates = found(lambda column, _: _date_of(column))
    if ids := [name for name in found(_id_of) if name not in dates]:
        yield (
            f"columns: ids? {quoted(ids, MAX_SHOWN)} {_has(ids)} a value of "
            f"{'its' if len(ids) == 1 else 'their'} own in (nearly) each "
            f"training row, as a row number or an id has; name the columns to use without {_it(ids)}"
        )
    if groups := [*found(_group_of)]:
        yield (
            f"columns: groups? {quoted(groups, MAX_SHOWN)} {_has(groups)} values that several rows share, as "
            "those of a patient do: some may be trained on and others tested on; "
            f"group-column {groups[0]!r} keeps them together, and is no input"
        )
    if dates:
        shown = listed([f"{name!r} ({example})" for name, example in dates.items()], MAX_SHOWN)
        yield (
            f"columns: dates? {shown} {are(len(dates))} read as numbers; write days or "
            f"years since a date that matters, or name the columns to use without {_it(dates)}"
        )
    if shares is not None and (owners := list(_owners(kind, shares))):
        clients = int(np.count_nonzero(shares.sizes))
        yield (
            f"columns: owner? {quoted(owners, MAX_SHOWN)} {_has(owners)} one value at each of {clients} "
            f"clients and another at each other, as a client's name has; name the columns to use without "
            f"{_it(owners)}"
        )
    if missing_values == NOT_GIVEN and (stand_ins := list(_stand_ins(dataset, kind))):
        shown = listed([f"{name!r} ({value}, {n} times)" for name, value, n in stand_ins], MAX_SHOWN)
        words = ",".join(dict.fromkeys(value for _, value, _ in stand_ins))
        yield (
            f"missing-values: missing? {shown}, far from all other values; if so, name them with all words "
            f"that stand for none: missing-values={words}"
        )


def _has(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "each have"


def _it(names: Collection[str]) -> str:
    return "it" if len(names) == 1 else "them"


def columns_in(kind: Table, rows: Rows | slice, names: Collection[str] | None = None) -> Iterator[Column]:
    """Yield the columns, or those of these names, in some training rows."""
    x, rest = kind.train["x"][rows], kind.rest(rows)
    for name, words, at in columns_of(kind):
        if names is not None and name not in names:
            continue
        if words:
            part = x[:, at]
            yield Column(name, np.where(part.any(1), part.argmax(1), np.nan), len(words))
        else:
            yield Column(name, with_rest(x, at.start, rest))


def _id_of(column: Column, limit: float) -> str:
    """Return the word of ids if nearly each value is another one, which chance would not do; else nothing.

    Of n values drawn from m, n (n - 1) / 2m pairs are expected to be equal, and more if some are drawn more
    often. Whole numbers are drawn from those between the extremes that are as far apart as all are.
    """
    known = column.known
    found = np.unique(known)
    again = len(known) - len(found)
    if len(known) < 2 or again > MOST_AGAIN * len(known) or not (column.words or column.is_whole):
        return ""
    if column.words:
        places = float(column.words)
    else:
        if len(known) >= LEAST and OF_ID.fullmatch(in_lower_case(column.name)):
            return "id"
        if np.abs(found[[0, -1]]).max() > MOST_WHOLE:
            return ""
        steps = np.diff(found).astype(np.int64)
        places = 1 + float(found[-1] - found[0]) / float(np.gcd.reduce(steps))
    expected = len(known) * (len(known) - 1) / 2 / places
    terms = [k * log(expected) - expected - lgamma(k + 1) for k in range(again + 1)]
    return "id" if np.logaddexp.reduce(terms) < limit else ""


def _group_of(column: Column, limit: float) -> str:
    """Return the word of groups if values called as those of people are shared by rows; else nothing.

    Of some rows alone (``limit`` above 0) the name decides: these may have one of each person's.
    """
    if not is_of_people(column.name) or not (column.words or column.is_whole):
        return ""
    known = column.known
    return "group" if limit > 0 or are_shared(len(np.unique(known)), len(known)) else ""


def _date_of(column: Column) -> str:
    """Return an example of numbers that are dates; nothing if they are hardly that."""
    if column.words or not column.is_whole or len(column.known) < LEAST:
        return ""
    found, name = np.unique(column.known), column.name.lower()
    low, high = found[0], found[-1]
    if len(found) < FEW:
        return ""
    example = f"such as {low:.0f}"
    if low >= 1900_01_01 and high <= 2100_12_31:
        month, day = found // 100 % 100, found % 100
        if (month >= 1).all() and (month <= 12).all() and (day <= 32).all():  # float32 rounds the last digit
            return example
    named = bool(OF_TIME.fullmatch(name))
    for unit, second in (("seconds", 1), ("milliseconds", 1000)):
        is_time = SINCE * second <= low and high <= UNTIL * second and high - low >= DAY * second
        if is_time and (named or high - low <= LONGEST * second):
            return f"Unix {unit} from {np.datetime64(int(low) // second, 's').astype('datetime64[D]')} on"
    is_year = OF_YEAR.fullmatch(name) and low >= 1900 and high <= 2100 and len(found) >= LEAST // 2
    return example if is_year else ""


def _owners(kind: Table, shares: Shares) -> Iterator[str]:
    """Yield the columns that have one value at each client, and at each another."""
    sizes = shares.sizes
    here = np.flatnonzero(sizes)
    if len(here) < 2 or (sizes[here] < 2).any():
        return
    x, rows = kind.train["x"], [shares[client] for client in here.tolist()]
    ends = np.nan_to_num(x[[(some[0], some[-1]) for some in rows]], nan=np.inf)
    for name, _, at in columns_of(kind):
        first, last = ends[:, 0, at], ends[:, 1, at]
        if (first != last).any() or len(np.unique(first, axis=0)) < len(here):
            continue
        found = np.nan_to_num(x[:, at], nan=np.inf)
        if all((found[some] == found[some[0]]).all() for some in rows):
            yield name


def _stand_ins(dataset: Dataset, kind: Table) -> Iterator[tuple[str, str, int]]:
    """Yield columns of numbers, what probably stands for a missing one there, and how often it does."""
    for name, values, extremes in _numbers(dataset, kind):
        if not any(map(_is_of_nines, extremes)):
            continue
        others, found = values[~np.isnan(values)].astype(np.float64), []
        while len(others) and (odd := [v for v in {others.min(), others.max()} if _is_of_nines(v)]):
            found += odd
            others = others[~np.isin(others, odd)]
        for value in sorted(found):
            count = int(np.count_nonzero(values == np.float32(value)))
            if count > 1 and len(others) and _is_far(value, others):
                yield name, f"{value:.7g}", count


def _is_of_nines(value: float) -> bool:
    return bool(NINES.fullmatch(f"{value:.7g}"))


def _numbers(dataset: Dataset, kind: Table) -> Iterator[tuple[str, NDArray, tuple[float, float]]]:
    """Yield the columns of numbers, and those to predict: name, values, and the least and the greatest."""
    x, y = kind.train["x"], kind.train["y"]
    low, high = np.fmin.reduce(x), np.fmax.reduce(x)
    for name, words, at in columns_of(kind):
        if not words:
            yield name, x[:, at.start], (low[at.start], high[at.start])
    if dataset.spec.predicts == "numbers":
        for name, values in zip(kind.facts["targets"], y.T, strict=True):
            yield name, values, (values.min(), values.max())
    elif dataset.class_names and all(map(NUMBER.fullmatch, dataset.class_names)):
        values = np.array(dataset.class_names, np.float32)[y]
        yield kind.facts["targets"][0], values, (values.min(), values.max())


def _is_far(value: float, others: Numbers) -> bool:
    """Return whether a number of nines is far from all others: by their range, or twice that for 99.

    One below 0 among others that are not need only be further from them than they are from each other.
    """
    low, high = float(others.min()), float(others.max())
    if value < 0 <= low:
        apart = MOST_GAPS * np.diff(np.unique(others)).max(initial=0)
        return value <= SURE or low - value > min(apart, high - low)
    gap = max(low - value, value - high)
    return gap > (2 if -SURE >= value >= 0 else 1) * (high - low)


def warn_about_float_pictures(dataset: Dataset) -> Iterator[str]:
    """Yield a warning of floats with the axes of pictures and the levels of 8 bits, which are not scaled."""
    x = dataset.train.columns["x"]
    if not isinstance(dataset.kind, Numeric) or x.dtype.kind != "f" or x.ndim < PICTURES or not x.size:
        return
    low, high = float(x.min()), float(x.max())
    if low >= 0 and LEAST_LEVEL < high <= LEVELS:
        yield (
            f"dataset: 0..255? the inputs are floats of {low:g} to {high:g}, as pictures of 8 bits are, and "
            "go to the model as they are; give them as uint8 or divided by 255, or set normalize=true"
        )
