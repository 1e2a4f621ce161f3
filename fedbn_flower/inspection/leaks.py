"""Find features that determine the target: a copy of it, an id, a row number, a date; a sum of several."""

from collections.abc import Iterator, Sequence
from math import lgamma, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.text import quoted
from ..data.dataset import Dataset
from ..data.numeric import Numeric, Table
from ..data.statistics import columns_of, spread
from .copies import hashes
from .inputs import CELLS, CHANCE, FEWEST, LEAST, MAX_SHOWN

BY_VALUE, BY_THRESHOLD, BY_ORDER = "by its value", "by thresholds", "by its order"
MOST_FEATURES = 2**15
MAX_TARGETS = 8
MOST_SUMMED, EXACT = 2**6, 1e-3
"""Encoded columns of which a target may be a sum, and how far it is off, in its deviations."""

Codes = NDArray[np.int64]


class Column(NamedTuple):
    """A feature: its name, its first encoded column, and how many values it has; 0 are numbers."""

    name: str
    start: int
    values: int = 0

    def of(self, x: NDArray) -> NDArray:
        """Return its values in these rows; those of a category as their numbers, missing ones the last."""
        if not self.values:
            return x[:, self.start]
        part = x[:, self.start : self.start + self.values]
        return np.where(part.any(1), part.argmax(1), self.values)


def warn_about_leaks(dataset: Dataset) -> Iterator[str]:
    """Yield a warning if features alone determine a target on the training rows, or a sum of a table's does.

    A feature does so by its value if no value has two targets, though values occur again; by thresholds if
    the rows in its order have each class once in a row; and of targets that are numbers by its order, if
    theirs is the same or the reverse. It is named if chance would hardly do that: see `CHANCE`. Equal rows
    count once, unless the feature has no more values than there are classes.

    Looked at are tables, and arrays of rows of numbers, with classes or at most `MAX_TARGETS` numbers.
    """
    x, y = dataset.train.columns.get("x"), dataset.train.columns["y"]
    kind, predicts = dataset.kind, dataset.spec.predicts
    if not isinstance(kind, Numeric) or x is None or x.ndim != 2 or predicts not in ("classes", "numbers"):
        return
    targets = y.reshape(len(y), -1)
    features = x.shape[1]
    if not features or features > MOST_FEATURES or targets.shape[1] > MAX_TARGETS or len(x) < 2:
        return
    rows = spread(np.arange(len(x)), max(FEWEST, CELLS // features))
    columns, limit, is_part = _columns(dataset, features), log(CHANCE / features), len(rows) < len(x)
    some = x[rows]
    matrix = np.column_stack([column.of(some) for column in columns])
    for i, target in enumerate(targets.T):
        classes = predicts == "classes"
        of_some = of_all = _Target(target[rows], classes, _different(some, target[rows]))
        found: dict[str, list[str]] = {}
        for column in (columns[place] for place in of_some.candidates(matrix)):
            how = of_some.determined(column.of(some), bool(column.values), limit)
            if how and is_part:
                if of_all is of_some:
                    of_all = _Target(target, classes, _different(x, target))
                how = of_all.determined(column.of(x), bool(column.values), limit)
            if how:
                found.setdefault(how, []).append(column.name)
        named = f" {dataset.output_names[i]!r}" if targets.shape[1] > 1 else ""
        for how, names in found.items():
            yield _warning(names, how, f"the target{named}", len(x), isinstance(kind, Table))
        if found or not isinstance(kind, Table) or not _sum_of(columns, some, target[rows]):
            continue
        if names := _sum_of(columns, x, target):
            yield (
                f"columns: leaks? {quoted(names, MAX_SHOWN)} together determine the target{named} of all "
                f"{len(x)} training rows: it is a sum or difference of them; name the columns to use without "
                "one of them"
            )


def _sum_of(columns: Sequence[Column], x: NDArray, target: NDArray) -> list[str]:
    """Return the columns of which the target is a linear function, two or more; none where rows are few.

    Columns with missing values are left out. Through few different rows, such as those of patients with
    several rows each, there always is such a function: it is one of these only if all have the same weight.
    """
    known, y = ~np.isnan(x).any(0), target.astype(np.float64)
    count = np.count_nonzero(known)
    if count > MOST_SUMMED or len(x) < 2 * count + LEAST or not y.std():
        return []
    x = np.where(known, x, 0).astype(np.float64)
    x -= x.mean(0)
    spread_of = np.where(x.any(0), x.std(0), 1)
    x, y = x / spread_of, (y - y.mean()) / y.std()
    weights = np.linalg.lstsq(x, y)[0]
    low, high = np.quantile(y, (0.25, 0.75))
    if np.abs(x @ weights - y).max() > EXACT * min(1, high - low or 1):  # a few outliers deviate the most
        return []
    sizes = np.abs(weights)
    used = sizes > EXACT
    found = [c.name for c in columns if used[c.start : c.start + max(1, c.values)].any()]
    if len(found) < 2:
        return []
    different, raw = np.unique(x[:, used], axis=0), (sizes / spread_of)[used]
    same_weight = np.ptp(raw) <= EXACT * raw.max()
    return found if same_weight or len(different) >= 2 * np.linalg.matrix_rank(different) else []


def _warning(names: list[str], how: str, target: str, rows: int, is_table: bool) -> str:
    shown = quoted(names, MAX_SHOWN)
    each = "each alone determine" if len(names) > 1 else "alone determines"
    out = "; name the columns to use without it" if is_table else ""
    return (
        f"{'columns' if is_table else 'data'}: leaks? {shown} {each} {target} of all {rows} training rows, "
        f"{how}, as a copy, an id, a row number or a date does{out}"
    )


class _Target:
    """What features are compared with: the rows' targets as codes, and which rows are no copies."""

    def __init__(self, target: NDArray, classes: bool, different: NDArray[np.bool_]) -> None:
        self.codes = np.unique(target, return_inverse=True)[1].reshape(-1).astype(np.int64)
        self.classes, self.different = classes, different
        self.count = int(self.codes.max()) + 1
        self.shares = np.log(np.bincount(self.codes) / len(self.codes))

    def candidates(self, matrix: NDArray) -> Codes:
        """Return the columns that give no value two targets, and repeat values or order the targets."""
        rows = np.argsort(self.codes, kind="stable")
        matrix = matrix[rows]
        order = np.argsort(matrix, axis=0, kind="stable")  # rows of equal value in the order of their targets
        values, codes = np.take_along_axis(matrix, order, 0), self.codes[rows][order]
        same = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
        steps = np.diff(codes, axis=0)
        in_order = (steps >= 0).all(0) | (steps <= 0).all(0)
        if self.classes:
            in_order = np.count_nonzero(steps, axis=0) + 1 == self.count
        return np.flatnonzero(~(same & (steps != 0)).any(0) & (same.any(0) | in_order))

    def determined(self, values: NDArray, is_category: bool, limit: float) -> str:
        """Return how a feature determines the target, or nothing."""
        if self.count < 2:
            return ""
        ranks = np.unique(values, return_inverse=True)[1].reshape(-1)  # a missing value is the last
        order = np.lexsort((self.codes, ranks))
        ranks, codes = ranks[order], self.codes[order]
        starts = np.flatnonzero(np.diff(ranks, prepend=ranks[0] - 1))
        if (np.diff(codes) != 0)[np.diff(ranks) == 0].any():
            return ""  # a value with two targets
        of_values = codes[starts]
        recodes = self.classes and len(starts) <= self.count
        different = np.ones(len(order), bool) if recodes else self.different[order]
        sizes = np.add.reduceat(different, starts)
        if not is_category and self._chance_of_order(of_values, codes[different]) < limit:
            return BY_THRESHOLD if self.classes else BY_ORDER
        return BY_VALUE if self._chance_of_values(sizes[sizes > 1]) < limit else ""

    def _chance_of_values(self, sizes: NDArray) -> float:
        """Return the logarithm of the chance that rows of equal value have equal targets."""
        counts = np.bincount(sizes) if len(sizes) else np.zeros(0)
        return float(
            sum(times * np.logaddexp.reduce(size * self.shares) for size, times in enumerate(counts) if times)
        )

    def _chance_of_order(self, of_values: Codes, codes: Codes) -> float:
        """Return the logarithm of the chance of such an order of the targets; 0 if it is none."""
        steps = np.diff(of_values)
        if self.classes:
            if np.count_nonzero(steps) + 1 != self.count:
                return 0.0
            ways = lgamma(self.count + 1)
        elif (steps >= 0).all() or (steps <= 0).all():
            ways = log(2)
        else:
            return 0.0
        arrangements = lgamma(len(codes) + 1) - sum(map(lgamma, np.bincount(codes) + 1.0))
        return float(min(0.0, ways - arrangements))


def _columns(dataset: Dataset, features: int) -> list[Column]:
    """Return the columns of a table, or of an array with so many."""
    if isinstance(dataset.kind, Table):
        return [Column(name, at.start, len(values)) for name, values, at in columns_of(dataset.kind)]
    return [Column(f"x{i}", i) for i in range(features)]


def _different(x: NDArray, target: NDArray) -> NDArray[np.bool_]:
    """Return which rows are the first of equal rows, bool (N,)."""
    rows = {"x": x + 0, "y": target + 0}  # -0.0 is 0.0
    first = np.unique(hashes(rows), return_index=True)[1]
    found = np.zeros(len(x), bool)
    found[first] = True
    return found
