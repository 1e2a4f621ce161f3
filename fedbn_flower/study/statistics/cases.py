"""Held-out cases as arrays, in the order of their sites."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...records.cases import GROUP, ID, OF_CLASS, SCORE, SITE, TARGET

if TYPE_CHECKING:
    from pandas import DataFrame, Series


@dataclass(frozen=True)
class Cases:
    """Held-out cases of one or several sites, those of a site side by side.

    Parameters
    ----------
    targets : NDArray
        Class numbers, int64 (n,), where ``scores`` has a column for each class; else what ``target`` holds:
        0 or 1, or a number.
    scores : NDArray[np.float64]
        The score of class 1 or the predicted number, (n,); or a score of each class, (n, classes).
    groups : NDArray[np.int64]
        The number of each case's group within its site, (n,): 0, 1, ...
    sites : tuple[str, ...]
        The sites' names.
    ends : tuple[int, ...]
        Where the cases of each site end.
    """

    targets: NDArray
    scores: NDArray[np.float64]
    groups: NDArray[np.int64]
    sites: tuple[str, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, frame: "DataFrame") -> "Cases":
        """Return the cases of a table, which has a row for each.

        Parameters
        ----------
        frame : DataFrame
            Columns ``site``, ``target``, and ``score`` or a ``score-CLASS`` for each class. Without a column
            ``group``, or where it is empty, a case is a group by itself. With ``score-CLASS``, a target is a
            class's name or its number in the order of the columns.

        Raises
        ------
        ValueError
            When a column is missing, there is no case, or a target is no class.
        """
        classes = [name.removeprefix(OF_CLASS) for name in frame.columns if str(name).startswith(OF_CLASS)]
        needed = {SITE, TARGET, *(() if classes else (SCORE,))}
        if missing := sorted(needed - set(frame.columns)):
            raise ValueError(f"the table of cases lacks {', '.join(missing)}")
        if not len(frame):
            raise ValueError("the table of cases is empty")
        frame, sites, ends = _by_site(frame)
        names = [OF_CLASS + name for name in classes] if classes else SCORE
        targets = _class_numbers(frame[TARGET], classes) if classes else frame[TARGET].to_numpy()
        return cls(
            targets.astype(np.int64) if targets.dtype == bool else targets,
            frame[names].to_numpy(np.float64),
            _groups_within_sites(frame, ends),
            sites,
            tuple(ends),
        )

    @classmethod
    def of_values(cls, frame: "DataFrame", column: str) -> "Cases":
        """Return the cases that have a number in a column, such as a Dice coefficient, as their scores.

        Parameters
        ----------
        frame : DataFrame
            Columns ``site`` and the one named; ``group`` is as in `of`. Rows where it is NaN are left out.
        column : str
            Its name.

        Raises
        ------
        ValueError
            When no case has a number.
        """
        frame = frame[frame[column].notna()]
        if not len(frame):
            raise ValueError(f"no case has a {column}")
        frame, sites, ends = _by_site(frame)
        values = frame[column].to_numpy(np.float64)
        return cls(
            np.zeros(len(values), np.int64), values, _groups_within_sites(frame, ends), sites, tuple(ends)
        )

    def __len__(self) -> int:
        return len(self.targets)

    def __iter__(self) -> Iterator["Cases"]:
        """Yield the cases of each site."""
        for name, part in zip(self.sites, self.parts, strict=True):
            n = part.stop - part.start
            yield Cases(self.targets[part], self.scores[part], self.groups[part], (name,), (n,))

    @property
    def parts(self) -> list[slice]:
        """Where each site's cases are."""
        return [slice(*bounds) for bounds in zip((0, *self.ends), self.ends, strict=False)]

    @property
    def in_groups(self) -> NDArray[np.int64]:
        """The numbers of groups over all sites, (n,): a group of one site is none of another."""
        counts = [int(self.groups[part].max()) + 1 for part in self.parts]
        first = np.repeat(np.cumsum([0, *counts[:-1]]), np.diff((0, *self.ends)))
        return np.asarray(self.groups + first, np.int64)


def same_cases(frames: "Sequence[DataFrame]") -> list[Cases]:
    """Return the cases of each of several methods, in one order.

    Parameters
    ----------
    frames : Sequence[DataFrame]
        See `Cases.of`, with a column ``id``; the rows may be in another order.

    Raises
    ------
    ValueError
        When two have different cases, or different targets or groups for them; see also `Cases.of`.
    """
    ordered = [frame.sort_values([SITE, ID], key=lambda c: c.astype(str)) for frame in frames]
    names = [frame[[SITE, ID]].astype(str).to_numpy() for frame in ordered]
    if not all(np.array_equal(names[0], other) for other in names):
        raise ValueError("the methods have different cases: their sites or ids differ")
    found = [Cases.of(frame) for frame in ordered]
    for what, arrays in {"targets": [c.targets for c in found], "groups": [c.groups for c in found]}.items():
        if not all(np.array_equal(arrays[0], other) for other in arrays):
            raise ValueError(f"the methods have different {what} for the same cases")
    return found


def _by_site(frame: "DataFrame") -> "tuple[DataFrame, tuple[str, ...], list[int]]":
    """Return the rows of each site side by side, the sites' names, and where the rows of each end."""
    import pandas as pd

    numbers, sites = pd.factorize(frame[SITE].astype(str))
    ends = np.cumsum(np.bincount(numbers, minlength=len(sites))).tolist()
    return frame.iloc[np.argsort(numbers, kind="stable")], tuple(map(str, sites)), ends


def _class_numbers(targets: "Series", classes: list[str]) -> NDArray:
    import pandas as pd

    numbers = pd.Index(classes).get_indexer(targets.astype(str))
    if (numbers < 0).any() and targets.dtype.kind in "iub" and targets.between(0, len(classes) - 1).all():
        return np.asarray(targets)
    if (numbers < 0).any():
        raise ValueError(f"the target {targets[numbers < 0].iloc[0]!r} is none of {', '.join(classes)}")
    return np.asarray(numbers)


def _groups_within_sites(frame: "DataFrame", ends: list[int]) -> NDArray[np.int64]:
    import pandas as pd

    if GROUP not in frame.columns or frame[GROUP].isna().all():
        return np.concatenate([np.arange(n) for n in np.diff([0, *ends])])
    named, row = frame[GROUP].notna().to_numpy(), np.arange(len(frame)).astype(str)
    names = np.where(named, np.char.add("g", frame[GROUP].astype(str).to_numpy(str)), row)
    return np.concatenate([pd.factorize(part)[0] for part in np.split(names, ends[:-1])]).astype(np.int64)
