"""Doubts about what is learnt: rows that are no examples, classes that mean the same, labels as numbers."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..config.named_algorithms import NOT_GIVEN
from ..core.text import listed
from ..data.dataset import Dataset
from ..data.events import RARE
from ..data.labels import NUMBER, same_word
from ..data.numeric import Table, are_labels

LEAST = 10
"""Examples of each other class, beside which a single one is odd; and rows, below which none is."""
MOST_ODD = 0.05
"""The share of rows that may be means or sums among numbers that are otherwise class numbers."""
FEW_ODD = 3
"""So many rows may be such, too, if each is one of `LEAST` or more."""
MOST_CLASSES = 10
"""Distinct whole numbers that are probably classes."""
MAX_SHOWN = 5
MOST_SHOWN = 10
"""Classes without training examples in a warning."""
FAR = ("99", "999", "-9", "-99", "-999")
CODES, NUMBERED = ("9", *FAR), ({"0", "1"}, {"1", "2"})
"""Numbers that stand for unknown, and two classes beside which they do."""
SHORT, LONG = 2, 3
"""Letters of a word that stands for another, at most, and of that one, at least."""
OPPOSITES = (
    ("0", "1"), ("1", "2"), ("false", "true"), ("falsch", "wahr"), ("faux", "vrai"), ("f", "t"),
    ("no", "yes"), ("n", "y"), ("nein", "ja"), ("n", "j"), ("non", "oui"), ("n", "o"), ("no", "si"),
    ("no", "sí"), ("n", "s"), ("negative", "positive"), ("neg", "pos"), ("-", "+"), ("absent", "present"),
)  # fmt: skip
"""Words of two classes, of which a column has one pair."""


def warn_about_labels(
    dataset: Dataset, stated: bool = False, missing_values: str = NOT_GIVEN
) -> Iterator[str]:
    """Yield warnings of a table's only label column, on training and test rows, at most one.

    - Numbers, nearly all of which are few whole numbers, as of classes beside their mean.
    - Classes of one example, such as a sum or a header's name, beside others of `LEAST` or more.
    - Classes in two spellings: ``yes`` and ``no`` beside ``1`` and ``0``, or words beside their beginnings.
    - A code for unknown, such as 9, beside 0 and 1 or 1 and 2.
    - Whole numbers from one number on at some natural clients, and from the next one on at others.
    - One of two classes that is rare at all natural clients but one, and frequent there.

    Parameters
    ----------
    dataset : Dataset
        Nothing is said of one that is no table.
    stated : bool
        Whether a key says what the labels are: the first two and a code are then no doubt.
    missing_values : str
        The run's key. If it was not given, `warn_about_columns` names a code that is far from the others.
    """
    if (
        not isinstance(dataset.kind, Table)
        or len(dataset.kind.facts["targets"]) != 1
        or not len(dataset.train)
    ):
        return
    (name,) = dataset.kind.facts["targets"]
    y = np.concatenate([split.columns["y"].ravel() for split in dataset.splits])
    values, counts = np.unique(y, return_counts=True)
    if not dataset.has_classes:
        if not stated:
            yield from _of_numbers(name, values, counts)
        return
    words = dataset.output_names
    found = {words[value]: count for value, count in zip(values.tolist(), counts.tolist(), strict=True)}
    if not stated and (single := _single(found)):
        shown = " and ".join(map(repr, single))
        has = "is the class of one row" if len(single) == 1 else "are each the class of one row"
        yield (
            f"label-column: classes? {shown} {has} in {name!r}, and each other class has "
            f"{min(count for count in found.values() if count > 1)} or more; if it is no example, such as a "
            "mean, a sum or a header, remove the row; else name the classes in label-column"
        )
    elif same := same_in_pairs(list(found)):
        shown = ", ".join(f"{one!r} and {other!r}" for one, other in same)
        yield (
            f"label-column: classes? {shown} are different classes of {name!r}; if they mean the same, write "
            "one word for both"
        )
    elif not stated and (code := _code(list(found), FAR if missing_values == NOT_GIVEN else ())):
        yield (
            f"label-column: classes? {code!r} is a class of {name!r} beside two others, as a code for "
            "unknown is; if nothing is known of these rows, leave the cells empty; else name the classes in "
            "label-column"
        )
    elif shifted := _shifted(dataset, words):
        yield (
            f"label-column: classes? {name!r} has the classes {shifted}; if they mean the same, number "
            "them alike"
        )
    elif swapped := _swapped(dataset, words):
        yield (
            f"label-column: classes? {swapped}; if they are the other way round there, write them as "
            "elsewhere"
        )


def _of_numbers(name: str, values: np.ndarray, counts: np.ndarray) -> Iterator[str]:
    """Yield a warning of numbers that are classes but for a few."""
    whole, rows = values == np.floor(values), int(counts.sum())
    usual = whole & (counts > 1)  # a sum is a whole number, too
    odd = int(counts[~usual].sum())
    few = FEW_ODD if rows >= LEAST * FEW_ODD else 1
    if rows < LEAST or whole.all() or odd > max(few, MOST_ODD * rows):
        return
    if not 2 <= usual.sum() <= MOST_CLASSES:
        return
    numbers = listed([f"{value:.0f}" for value in values[usual]], MOST_CLASSES)
    others = listed([f"{value:.7g}" for value in values[~usual]], MAX_SHOWN)
    found = f"{rows - odd} of {rows} values of {name!r} are one of {numbers}, and not {others}"
    remove = "if that is a mean or the like, remove the row; else predict=numbers says so"
    yield f"predict: classes? {found}: numbers are learnt, no classes; {remove}"


def _single(found: Mapping[str, int]) -> list[str]:
    """Return the up to `FEW_ODD` classes of one example, if there are others and these have many."""
    single = [word for word, count in found.items() if count == 1]
    others = [count for count in found.values() if count > 1]
    return single if len(single) <= FEW_ODD and len(others) > 1 and min(others) >= LEAST else []


def _code(words: Sequence[str], told: Sequence[str]) -> str:
    """Return the class that is probably a code for unknown, beside 0 and 1 or 1 and 2; else nothing."""
    others = [word for word in words if word not in CODES]
    codes = {*words} - {*others} - {*told}
    return next(iter(codes), "") if len(words) == 3 and {*others} in NUMBERED else ""


def same_in_pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the words, as of classes, that probably mean the same, if each is such a one."""
    by_word = {same_word(word): word for word in words}
    pairs = [pair for pair in OPPOSITES if all(word in by_word for word in pair)]
    for i, one in enumerate(pairs):
        for other in pairs[i + 1 :]:
            if len({*one, *other}) == len(words) == 4:
                return [(by_word[a], by_word[b]) for a, b in zip(one, other, strict=True)]
    short = [word for word in by_word if word.isalpha() and len(word) <= SHORT]
    begun = {word: [w for w in by_word if w.startswith(word) and len(w) >= LONG] for word in short}
    if len(short) > 1 and 2 * len(short) == len(by_word) and all(len(found) == 1 for found in begun.values()):
        return [(by_word[word], by_word[found[0]]) for word, found in begun.items()]
    return []


def _shifted(dataset: Dataset, words: list[str]) -> str:
    """Return which numbers the classes have at some natural clients, and which, one higher, at all others.

    Each has them at a client of `LEAST` rows, and no such client has only what both have, as ranks would.
    """
    groups, y = dataset.train.groups, dataset.train.columns["y"]
    if groups is None or not all(map(NUMBER.fullmatch, words)):
        return ""
    whose = np.unique(groups, return_inverse=True)[1]
    rows: dict[tuple[int, ...], int] = {}  # of the largest client with these classes
    for i, size in enumerate(np.bincount(whose).tolist()):
        some = tuple(sorted({int(float(words[k])) for k in np.unique(y[whose == i])}))
        rows[some] = max(size, rows.get(some, 0))
    found = {some for some in rows if not any({*some} < {*more} for more in rows)}  # without an event
    if len(found) != 2:
        return ""
    low, high = sorted(found)
    if len(low) < 2 or high != tuple(number + 1 for number in low) or high[:-1] != low[1:]:
        return ""
    of_both = [size for some, size in rows.items() if {*some} <= {*low} & {*high}]
    if min(rows[low], rows[high]) < LEAST or max(of_both, default=0) >= LEAST:
        return ""
    return f"{', '.join(map(str, low))} at some clients and {', '.join(map(str, high))} at others"


def _swapped(dataset: Dataset, words: list[str]) -> str:
    """Return how frequent a class is at the one natural client of three or more at which it is not rare.

    Nothing if each client has one class: `warn_about_targets` says so.
    """
    groups, y = dataset.train.groups, dataset.train.columns["y"]
    if groups is None or len(words) != 2:
        return ""
    names, whose = np.unique(groups, return_inverse=True)
    sizes, ones = np.bincount(whose), np.bincount(whose, y)
    if not ((ones > 0) & (ones < sizes)).any():
        return ""
    share = ones[sizes >= LEAST] / sizes[sizes >= LEAST]
    for word, of_class in ((words[1], share), (words[0], 1 - share)):
        *others, most = np.sort(of_class) if len(share) > 2 else (0, 0)
        if most >= 1 - RARE and max(others) <= RARE:
            where = names[sizes >= LEAST][of_class.argmax()]
            return f"{most:.0%} are {word!r} at {where}, and at most {max(others):.0%} at others"
    return ""


def warn_about_targets(
    dataset: Dataset, shares: Sequence[NDArray[np.int64]], inferred: bool = True
) -> Iterator[str]:
    """Yield notes on targets that are probably a mistake.

    These are one-hot rows and labels that would be learnt as numbers, if the problem is ``inferred`` from the
    data, classes that only the test set has, and clients with one class each. ``shares`` are the clients'
    training rows.
    """
    train, test = dataset.train.columns["y"], dataset.test.columns["y"]
    if dataset.spec.predicts == "numbers" and inferred and are_labels(train) and (train != train[0]).any():
        columns = train.shape[1]
        if (train.sum(1) == 1).all() and not train.all(0).any():  # not always in the same column
            yield (
                f"data: y looks one-hot (one 1 among {columns} numbers per row), but float targets are "
                "learnt by regression with squared error; for classes give y.argmax(1)"
            )
        else:
            yield (
                f"data: y has {columns} columns of 0 and 1, which are learnt as numbers by regression with "
                "squared error (problem=multi-label learns them as labels)"
            )
    if not dataset.has_classes:
        return
    if unseen := np.setdiff1d(test, train).tolist():
        names = listed([_name(dataset, number) for number in unseen], MOST_SHOWN)
        count = int(np.isin(test, unseen).sum())
        yield (
            f"labels: the training set has no examples of the class {names}, the test set "
            f"has {count}: no client can learn it"
        )
    if all(len(np.unique(train[rows])) == 1 for rows in shares):
        yield "partition: each client has examples of only one class: alone it cannot tell classes apart"


def _name(dataset: Dataset, number: int) -> str:
    names = dataset.class_names
    return repr(names[number]) if number < len(names) else str(number)
