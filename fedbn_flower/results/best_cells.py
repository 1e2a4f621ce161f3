"""Which cells of a table cannot be told from the best over their seeds: marks, and a sentence in words."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from ..records.summary import OfClasses, Summary
from ..statistics.paired import cannot_be_told_from_best
from .summary import metrics_by_group, seeds_text

K = TypeVar("K", bound=Hashable)
MARK = " *"
POOLED, OVER_EXAMPLES, GLOBAL = "pooled", "mean over examples", "global"


def deciding_column(columns: Collection[Collection[str]]) -> str:
    """Return the column of a table by which its runs are compared, from the columns that each run has.

    It is pooled over the clients' examples where all runs have that, else the clients' mean over examples if
    clients evaluate, else the global model's value.
    """
    if columns and all(POOLED in found for found in columns):
        return POOLED
    return OVER_EXAMPLES if any(OVER_EXAMPLES in found for found in columns) else GLOBAL


def events_of(summary: Summary) -> int | None:
    """Return how many held-out examples are not of the most frequent class; None without classes."""
    counts = (summary.per_class or summary.global_per_class or OfClasses()).examples
    return sum(counts) - max(counts) if counts else None


OTHER_DATA = "Runs on different data are not compared with each other."


@dataclass(frozen=True)
class Verdict(Generic[K]):
    """What is known of which cell of a table is best.

    Parameters
    ----------
    column : str
        The column that is compared, as in `deciding_column`.
    alike : frozenset[K]
        The cells that are marked: they cannot be told from the best. Empty if nothing is known.
    known : bool
        Whether the cells were tested.
    sentence : str
        The verdict in words; empty for a single cell.
    """

    column: str
    alike: frozenset[K]
    known: bool
    sentence: str

    def of(self, cell: K) -> str:
        """Return whether a cell cannot be told from the best: ``yes``, ``no`` or ``unknown``."""
        return ("yes" if cell in self.alike else "no") if self.known else "unknown"


def verdict(
    runs: Mapping[K, Sequence[tuple[object, Summary]]],
    metric: str,
    labels: Mapping[K, str],
    datasets: Collection[str] = (),
) -> Verdict[K]:
    """Compare the cells of a table over the seeds of their runs.

    Parameters
    ----------
    runs : Mapping[K, Sequence[tuple[object, Summary]]]
        The seed and the summary of each complete run, by cell.
    metric : str
        The metric that is compared.
    labels : Mapping[K, str]
        What the sentence calls each cell.
    datasets : Collection[str]
        The data of the runs.
    """
    summaries = [summary for members in runs.values() for _, summary in members]
    column = deciding_column([metrics_by_group(summary).keys() for summary in summaries])
    found = {cell: _by_seed(members, column, metric) for cell, members in runs.items()}
    found = {cell: by_seed for cell, by_seed in found.items() if by_seed}
    if len(found) < 2:
        return Verdict(column, frozenset(), False, "")
    if len(set(datasets)) > 1:
        return Verdict(column, frozenset(), False, OTHER_DATA)
    seeds = list(dict.fromkeys(seed for by_seed in found.values() for seed in by_seed))
    values = {cell: [of.get(seed, np.nan) for seed in seeds] for cell, of in found.items()}
    higher = any(metric in summary.higher_is_better for summary in summaries)
    events = min((n for n in map(events_of, summaries) if n is not None), default=None)
    best, alike, reason, _ = cannot_be_told_from_best(values, higher, events)
    if reason:
        words = f"Which is best cannot be known from {reason}. The best mean is that of {labels[best]}."
        return Verdict(column, frozenset(), False, words)
    over = seeds_text([len(by_seed) for by_seed in found.values()])
    words = (
        f"{_in_words(labels[best], len(alike), len(found))} (paired t-tests over {over} seeds, Holm, 5 %)."
    )
    return Verdict(column, frozenset(alike), True, words)


def _by_seed(members: Iterable[tuple[object, Summary]], column: str, metric: str) -> dict[object, float]:
    found = ((seed, metrics_by_group(summary).get(column, {}).get(metric)) for seed, summary in members)
    return {seed: float(value) for seed, value in found if value is not None}


def _in_words(best: str, alike: int, cells: int) -> str:
    if alike == 1:
        return f"Marked *: {best} is ahead of {'the other' if cells == 2 else f'all {cells - 1} others'}"
    if alike == cells:
        return f"Marked *: none of the {cells} rows can be told from the best mean, {best}"
    return f"Marked *: {alike} of {cells} rows cannot be told from the best mean, {best}"
