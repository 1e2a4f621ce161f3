"""Find test examples that are training examples, too, and clients that are copies of each other."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Columns

from ..data.dataset import Dataset, Rows
from ..data.images.kind import Images
from ..data.numeric import Numeric, Table
from ..data.statistics import columns_of

BYTES = 2**30
"""Data of more bytes are not looked at."""
BLOCK = 2**22
"""Bytes that are hashed together."""
CHANCE = 1e-2
"""The probability of as many copies among rows that are drawn alike."""

SIDE, ALIKE, PICTURES = 16, 0.999, 1024
"""Pixels a side of reduced pictures, the correlation of near copies, and how many are compared at once."""
ROUNDED, FEW_VALUES = 100, 0.5
"""The steps of a column's deviation to which rows are rounded, and the share of training rows that are then
like another, from which on near copies are expected."""

COPIED = "they are alike by no chance, since hardly any more are but for one column: remove what stands twice"
MOST_WORK = 2**28
"""Cells times columns of a table whose copies are told from chance."""
FEW_COPIES, LEAST_COPIED, MOST_ALIKE = 5, 0.01, 1.2
"""The least number and share of copied test rows, and the factor by which more are alike but for a column."""
SAMPLE, DEPENDENT = 2048, 1e-4
"""Rows in which columns that follow from others are looked for, and the share of variance that they leave."""
MOST_TWINS, MOST_HEAPS = 2, 0.05
"""How many training rows a copied one equals at most, and for each how many test rows equal more."""

FEW_WRONG = 1e-3
"""The share of pictures in several classes up to which nothing is said."""
FEWEST = 10
"""Clients of fewer examples are not compared: they may have the same by chance."""
MOST_OWNERS = 10
"""Of an example that counts; what more clients have is common."""
SAME, AGAIN = 0.95, 0.1
"""Of two clients the least share of examples that both have, and of one the most that it has again."""


def warn_about_copies(dataset: Dataset, tested: Rows | None = None) -> Iterator[str]:
    """Yield a warning if test examples are training examples, inputs and target alike.

    As many are expected as there are copies among the training examples: a table of few categories has most
    of its rows many times, whoever drew the test set, and a fifth that is held out has its share of what
    stands twice. So they are named if they are more than twice as many as expected, and if chance would
    hardly draw so many; or, of a table, if they were copied, see `_are_copied`. No picture is expected twice,
    and those of one colour do not count. Looked at are tables, arrays and pictures of at most `BYTES`.
    Where there is one set of all examples, ``tested`` are those to test on.
    """
    if not _is_looked_at(dataset) or not len(dataset.test):
        return
    sets = [split.columns for split in dataset.splits]
    places: list[Rows | slice] = [slice(None)] * 2
    if len(sets) < 2:
        if tested is None:
            return
        places = [np.delete(np.arange(len(dataset.train)), tested), tested]
    found = [hashes(columns) for columns in sets]
    train, test = (found[i][rows] for i, rows in zip((0, -1), places, strict=True))
    copied, again = _in_both(train, test)
    if isinstance(dataset.kind, Images):
        at = np.arange(len(found[-1]))[places[1]]
        copied[copied], again = _varied(sets[-1]["x"][at[copied]]), 0
    copies = int(copied.sum())
    rows, tests = len(train), len(test)
    share = (again + 0.5) / (rows + 1)
    is_more = copies > 2 * share * tests and _is_chance_below(copies, tests, share)
    parts = (dataset.splits[i].at(rows).columns for i, rows in zip((0, -1), places, strict=True))
    if is_more or (isinstance(dataset.kind, Table) and _are_copied(dataset.kind, *parts)):
        what = "leave them out of one of the two" if is_more else COPIED
        few = "is a training example, too" if copies == 1 else "are training examples, too"
        yield (
            f"dataset: {copies} of {tests} test examples {few}, inputs and target alike: what is measured on "
            f"them is no measure of new examples; {what}"
        )


def _are_copied(kind: Table, train: Columns, test: Columns) -> bool:
    """Return whether test rows of a table are copies of training rows, and not like them by chance.

    Where chance makes rows alike in all columns, the target among them, it makes many more that are alike
    in all but one, whichever that is, and some that many equal. Not so where a column follows from the
    others, as a total or the last of an answer's 0/1 columns does: of these nothing is said.
    """
    cells = [np.column_stack([part["x"], part["y"]]).astype(np.float32) + 0 for part in (train, test)]
    if sum(part.size for part in cells) * len(kind.facts["columns"]) > MOST_WORK:
        return False
    factors = np.random.default_rng(0).integers(1, 2**64, cells[0].shape[1], np.uint64)
    parts = [part.view(np.uint32) * factors for part in cells]
    sums = [part.sum(1) for part in parts]

    def twins(but: slice) -> NDArray[np.int64]:
        """Return how many training rows each test row equals, but for these columns."""
        of_train, of_test = (every - part[:, but].sum(1) for every, part in zip(sums, parts, strict=True))
        of_train.sort()
        first, behind = (of_train.searchsorted(of_test, side) for side in ("left", "right"))
        found: NDArray[np.int64] = behind - first
        return found

    every = twins(slice(0))
    few = every <= MOST_TWINS
    copied = int(every[few].sum())
    if copied < max(FEW_COPIES, len(every) * LEAST_COPIED) or np.count_nonzero(~few) > MOST_HEAPS * copied:
        return False
    width = train["x"].shape[1]
    columns = [slice(width, None), *(at for _, _, at in columns_of(kind))]
    if not all(twins(but)[few].sum() <= MOST_ALIKE * copied for but in columns):
        return False
    return not _is_dependent(kind, cells[0][:: len(cells[0]) // SAMPLE + 1])


def _is_dependent(kind: Table, cells: NDArray[np.float32]) -> bool:
    """Return whether a column is about a linear function of the others, as all are if rows are few.

    Constant columns do not count, nor that the 0/1 columns that stand for words add up to one.
    """
    cells = np.nan_to_num(cells.astype(np.float64))
    scale = np.where(np.ptp(cells, 0) > 0, cells.std(0), 0)
    last = [at.start + np.flatnonzero(scale[at])[-1:] for _, words, at in columns_of(kind) if words]
    scale[np.concatenate([np.empty(0, np.int64), *last])] = 0
    cells = ((cells - cells.mean(0)) / np.where(scale > 0, scale, 1))[:, scale > 0]
    rows, width = cells.shape
    return not 0 < width < rows or bool(np.linalg.eigvalsh(cells.T @ cells / rows)[0] < DEPENDENT)


def warn_about_contradictions(dataset: Dataset) -> Iterator[str]:
    """Yield a warning of pictures that stand in several classes; those of one colour do not count.

    Nothing is said of fewer than two, or of less than `FEW_WRONG` of all, and where a table of pictures
    whose rows disagree was told of already.
    """
    told = any("labels?" in note.text for note in dataset.notes)
    if told or not (isinstance(dataset.kind, Images) and dataset.has_classes and _is_looked_at(dataset)):
        return
    found = []
    for x, y in ((split.columns["x"], split.columns["y"]) for split in dataset.splits):
        varied = _varied(x)
        found.append(np.column_stack([hashes({"x": x})[varied], y[varied].astype(np.uint64)]))
    pictures = np.unique(np.concatenate(found), axis=0)[:, 0]
    several = int(np.count_nonzero(np.unique(pictures, return_counts=True)[1] > 1))
    if several > max(1, FEW_WRONG * sum(map(len, found))):
        yield f"dataset: labels? {several} pictures stand in several classes, the same to the pixel"


def warn_about_same_clients(dataset: Dataset) -> Iterator[str]:
    """Yield a warning if natural clients have the same examples, as the copy of a file or folder has.

    Clients of similar size count, of whose examples the smaller one has hardly any twice (`SAME`, `AGAIN`):
    where it has, others have them by chance. Held-out examples count as the others.
    """
    parts = [part for part in dataset.splits if part.groups is not None and len(part)]
    if not parts or not _is_looked_at(dataset):
        return
    names, clients = np.unique(np.concatenate([part.groups for part in parts]), return_inverse=True)
    examples = np.unique(np.concatenate([hashes(part.columns) for part in parts]), return_inverse=True)[1]
    sizes = np.bincount(clients)
    found = np.unique(np.column_stack([examples.reshape(-1), clients.reshape(-1)]), axis=0)
    distinct = np.bincount(found[:, 1], minlength=len(names))
    owners = np.split(found[:, 1], np.flatnonzero(np.diff(found[:, 0])) + 1)
    shared = Counter(
        pair for few in owners if 1 < len(few) <= MOST_OWNERS for pair in combinations(few.tolist(), 2)
    )
    pairs = []
    for (a, b), count in sorted(shared.items()):
        small, large = sorted((a, b), key=lambda client: sizes[client])
        is_similar = sizes[small] >= max(FEWEST, sizes[large] / 2)
        if is_similar and distinct[small] >= (1 - AGAIN) * sizes[small] and count >= SAME * distinct[small]:
            pairs.append((str(names[a]), str(names[b]), count, distinct[small]))
    if pairs:
        one, other, count, of = pairs[0]
        more = f"; so do {len(pairs) - 1} other pairs" if len(pairs) > 1 else ""
        yield (
            f"partition: copies? the clients {one!r} and {other!r} have the same examples, {count} of {of}"
            f"{more}: if one is a copy of the other, leave it out"
        )


def warn_about_near_copies(dataset: Dataset, trained: Rows, tested: Rows) -> Iterator[str]:
    """Yield a line if test examples are nearly training examples: for ``inspect``, which has the time.

    Pictures are compared as `_small` has them, by their correlation, and are near copies from `ALIKE` on.
    Rows of numbers are compared once rounded to a hundredth of each column's deviation. Targets do not
    count. The same examples are near copies, too. Tables of few values, see `FEW_VALUES`, are not looked at.
    """
    if not _is_looked_at(dataset) or not len(trained) or not len(tested):
        return
    x, x_test = (split.columns["x"] for split in (dataset.train, dataset.test))
    if isinstance(dataset.kind, Images):
        found, what, among = _most_alike(_small(x, trained), _small(x_test, tested)), "pictures", ""
    else:
        found, again = _rounded_alike(x[trained], x_test[tested])
        if again > FEW_VALUES:
            return
        what, among = "rows", f"; of the training rows {again:.0%} are like another"
    if count := int(found.sum()):
        first = f"the first is number {int(tested[np.argmax(found)])}"
        yield (
            f"dataset: copies? {count} of {len(tested)} test {what} are nearly the same as training {what}, "
            f"whatever their targets ({first}){among}: are they of one patient, visit or series? "
            "group-column keeps these together"
        )


def _rounded_alike(train: NDArray, test: NDArray) -> tuple[NDArray[np.bool_], float]:
    """Return which test rows are training rows, once both are rounded to parts of each column's deviation.

    And the share of the training rows that others equal, as of a table of few values they do by chance.
    """
    scale = np.nanstd(train.astype(np.float64), 0)
    step = np.where(scale > 0, scale, 1) / ROUNDED
    rounded = (np.rint(np.nan_to_num(rows.astype(np.float64)) / step) for rows in (train, test))
    of_train, of_test = (hashes({"x": rows}) for rows in rounded)
    found, again = _in_both(of_train, of_test)
    return found, again / len(train)


def _in_both(train: NDArray, test: NDArray) -> tuple[NDArray[np.bool_], int]:
    """Return which of ``test`` are in ``train``, too, and how many of ``train`` are there more than once."""
    train = np.sort(train)
    is_again = train[1:] == train[:-1]
    again = int(np.count_nonzero(np.append(is_again, False) | np.append(False, is_again)))
    places = np.minimum(np.searchsorted(train, test), len(train) - 1)
    return train[places] == test, again


def _small(images: NDArray, rows: Rows) -> NDArray[np.float32]:
    """Return pictures as `SIDE` x `SIDE` means of intensity, of mean 0 and length 1, (N, SIDE^2).

    Those of one intensity are zeros, and like no other.
    """
    import torch
    from torch.nn.functional import adaptive_avg_pool2d

    found = np.empty((len(rows), SIDE**2), np.float32)
    for start in range(0, len(rows), PICTURES):
        part = images[rows[start : start + PICTURES]].astype(np.float32)
        gray = part.reshape(len(part), -1, *part.shape[-2:]).mean(1)
        small = adaptive_avg_pool2d(torch.from_numpy(gray)[:, None], SIDE).numpy().reshape(len(part), -1)
        small = small - small.mean(1, keepdims=True)
        length = np.linalg.norm(small, axis=1, keepdims=True)
        found[start : start + PICTURES] = small / np.where(length > 0, length, np.inf)
    return found


def _varied(images: NDArray) -> NDArray[np.bool_]:
    """Return which pictures have more than one colour."""
    pixels = images.reshape(*images.shape[:2], math.prod(images.shape[2:]))
    varied: NDArray[np.bool_] = np.ptp(pixels, 2).any(1)
    return varied


def _most_alike(train: NDArray[np.float32], test: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return which test pictures have a training picture with a correlation of at least `ALIKE`."""
    found = np.zeros(len(test), bool)
    for start in range(0, len(test), PICTURES):
        rows = slice(start, start + PICTURES)
        for begin in range(0, len(train), 8 * PICTURES):
            found[rows] |= (test[rows] @ train[begin : begin + 8 * PICTURES].T).max(1) >= ALIKE
    return found


def _is_looked_at(dataset: Dataset) -> bool:
    """Return whether these are tables, arrays or pictures that are not too large."""
    size = sum(column.nbytes for split in dataset.splits for column in split.columns.values())
    return isinstance(dataset.kind, Numeric | Images) and size <= BYTES


def hashes(columns: Columns) -> NDArray[np.uint64]:
    """Return a hash of each example's bytes.

    It is made of the upper halves of two sums of random multiples of its words of 4 bytes, modulo 2^64:
    different examples hardly ever have equal ones, with a probability of about 2^-62 (Dietzfelbinger 1996).
    """
    found = np.zeros((len(next(iter(columns.values()))), 2), np.uint64)
    rng = np.random.default_rng(0)
    for _, column in sorted(columns.items()):
        content = np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint8)
        size = content.shape[1]
        words = -(-size // 4)
        factors = rng.integers(0, 2**64, (words, 2), np.uint64)
        rows = max(1, BLOCK // max(1, size))
        for start in range(0, len(content), rows):
            part = content[start : start + rows]
            padded = np.zeros((len(part), 4 * words), np.uint8)
            padded[:, :size] = part
            found[start : start + rows] += padded.view(np.uint32).astype(np.uint64) @ factors
    upper = found >> np.uint64(32)
    return upper[:, 0] << np.uint64(32) | upper[:, 1]


def _is_chance_below(copies: int, tests: int, share: float) -> bool:
    """Return whether at least so many copies among the tests, each with probability share < 1, are rare."""
    from scipy.special import bdtrc

    return bool(bdtrc(copies - 1, tests, share) < CHANCE)
