"""Methods compared over sites, sites that were left out, or data sets, by their ranks on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core.ground.columns import HeldOut
from ...core.text import listed
from ...records.metrics import PERCENT, decimals, percent, shown, spelt
from ...records.summary import NewClients
from ...results.held_out import have_same_cases, held_out_by_site
from ...results.plotting.comparison_plots import Ends
from ...results.report.runs_by_seed import MARK, label_of
from ...results.report.sections.intervals import with_interval
from ...results.report.tables import Table
from ...results.run_reader import Run
from ...results.summary import LEFT_OUT, deciding_column, metrics_by_group, name_of_left_out
from ..statistics.intervals import LEVEL
from ..statistics.paired import BestCells, Ranks, friedman, told_from_best, wilcoxon_tests
from .best_cells import in_words, p_text

T = TypeVar("T")
Rows = Sequence[tuple[Mapping[str, str], Sequence[Run]]]
"""The values of each row of a table by key, and its complete runs."""
SITES, SITES_LEFT_OUT, DATA_SETS = "sites", "sites left out", "data sets"
LEFT_OUT_KEY, DATASET_KEY, FOLDER = HeldOut.SITE.one, HeldOut.TEST.key, "folder"
FEWEST, MOST_METHODS = 6, 30
"""Of fewer values Wilcoxon's signed ranks never reach 5 %; more methods take long."""
RANK, NOT_TOLD_BY_RANK = "mean rank", "cannot be told from the best mean rank"
LAST_COLUMN = "the last column is Wilcoxon's test against the best"
TOGETHER = "Sites train together, so their values depend on each other."


@dataclass(frozen=True)
class Ranking:
    """Methods by their mean ranks over blocks, such as sites.

    Parameters
    ----------
    what : str
        What the blocks are.
    metric : str
        The metric's name.
    methods : tuple[str, ...]
        The methods' names.
    means, mean_ranks : NDArray[np.float64]
        Over the blocks, (k,); the best has rank 1.
    best : BestCells[str], optional
        The methods that cannot be told from the best mean rank, with Wilcoxon's p-values; None if nothing is
        known.
    sentence : str
        The same in words.
    critical_difference : float
        Of mean ranks, by Nemenyi; 0 of two methods.
    """

    what: str
    metric: str
    methods: tuple[str, ...]
    means: NDArray[np.float64]
    mean_ranks: NDArray[np.float64]
    best: BestCells[str] | None
    sentence: str
    critical_difference: float = 0.0

    @property
    def title(self) -> str:
        return f"{spelt(self.metric)} over {self.what}"

    def of(self, method: str) -> str:
        """Return whether a method cannot be told from the best mean rank: ``yes``, ``no``, ``unknown``."""
        return "unknown" if self.best is None else "yes" if method in self.best.alike else "no"

    def rank_of(self, method: str) -> float:
        """Return a method's mean rank."""
        return float(self.mean_ranks[self.methods.index(method)])

    def table(self) -> Table:
        """Return a row per method, by its mean rank, marked if it cannot be told from the best."""
        header = ["method", f"mean over {self.what}", RANK, "p (Wilcoxon, Bonferroni)"]
        rows = [self._row(number) for number in np.argsort(self.mean_ranks, kind="stable")]
        return Table(header, rows, note=self.sentence)

    def _row(self, number: int) -> list[str]:
        method = self.methods[number]
        mark = MARK if self.best and method in self.best.alike else ""
        value = percent(self.metric) * self.means[number]
        against = (
            "" if self.best is None or method == self.best.best else p_text(self.best.behind[method].p_value)
        )
        text = f"{value:.1f}" if self.metric in PERCENT else f"{value:.4g}"
        return [method, text, f"{self.mean_ranks[number]:.2f}{mark}", against]


def ranking(rows: Rows, metric: str) -> Ranking | None:
    """Compare methods over what their runs have in common.

    These are the data sets, if there are several; the sites that were left out in turn; else the sites. A
    value is the mean over the seeds. Two methods have Wilcoxon's signed-rank test, more of them Friedman's
    and, if that finds a difference at 5 %, Nemenyi's critical difference of mean ranks.

    Returns
    -------
    Ranking or None
        None of one method, of many, of folds, and of too few sites.
    """
    runs = [run for _, members in rows for run in members]
    if any(run.config.get(HeldOut.FOLDS.one) for run in runs):
        return None
    what = _what(runs)
    values = values_by_block(rows, metric, what)
    if not 1 < len(values) <= MOST_METHODS:
        return None
    blocks = [b for b in next(iter(values.values())) if all(b in of for of in values.values())]
    if what == SITES and (len(blocks) < FEWEST or not _are_comparable(runs)):
        return None
    if not blocks:
        return None
    table = np.array([[np.mean(of[block]) for of in values.values()] for block in blocks])
    higher = any(metric in run.summary.higher_is_better for run in runs)
    return _ranking(what, metric, tuple(values), table, higher)


def _are_comparable(runs: Sequence[Run]) -> bool:
    """Return whether sites have cases of their own, and each the same in all runs of a seed."""
    by_seed: dict[object, set[str]] = {}
    for run in runs:
        keys = [run.config.get(key) for key in ("data", "partition", "num-clients")]
        by_seed.setdefault(run.config.get("seed"), set()).add(repr((keys, held_out_by_site(run))))
    return all(len(found) == 1 for found in by_seed.values()) and not any(map(have_same_cases, runs))


def _what(runs: Sequence[Run]) -> str:
    if any(run.summary.left_out for run in runs):
        return SITES_LEFT_OUT
    return DATA_SETS if len({run.dataset for run in runs}) > 1 else SITES


def values_by_block(rows: Rows, metric: str, what: str) -> dict[str, dict[str, list[float]]]:
    """Return the values of all seeds by method and block."""
    column = deciding_column([metrics_by_group(run.summary).keys() for _, runs in rows for run in runs])
    return by_block(rows, what, lambda run: _by_block(run, metric, what, column))


def by_block(
    rows: Rows, what: str, read: Callable[[Run], Sequence[tuple[str, T]]]
) -> dict[str, dict[str, list[T]]]:
    """Return what is ``read`` of each run, as pairs of a block and its value, by method and block."""
    names = [_method(given, what) for given, _ in rows]
    different = {key for given in names for key in given if len({n.get(key) for n in names}) > 1}
    found: dict[str, dict[str, list[T]]] = {}
    for given, (_, runs) in zip(names, rows, strict=True):
        label = label_of({key: value for key, value in given.items() if key in different})
        for run in runs:
            of_method = found.setdefault(label or run.algorithms, {})
            for block, value in read(run):
                of_method.setdefault(block, []).append(value)
    return {method: of for method, of in found.items() if of}


def _method(names: Mapping[str, str], what: str) -> dict[str, str]:
    """Return what of a row's values says which method it is, and not which data."""
    other = {DATA_SETS: {DATASET_KEY, FOLDER}, SITES_LEFT_OUT: {LEFT_OUT_KEY}}.get(what, set())
    return {key: value for key, value in names.items() if key not in other}


def method_of(names: Mapping[str, str], rows: Rows, found: Ranking) -> str:
    """Return the label in a ranking of the row with these values."""
    every = [_method(given, found.what) for given, _ in rows]
    own = _method(names, found.what)
    return label_of({key: v for key, v in own.items() if len({n.get(key) for n in every}) > 1})


def _by_block(run: Run, metric: str, what: str, column: str) -> list[tuple[str, float]]:
    groups = metrics_by_group(run.summary)
    if what == SITES_LEFT_OUT:
        found = {name_of_left_out(run.summary): groups.get(LEFT_OUT, {}).get(metric)}
    elif what == DATA_SETS:
        found = {run.dataset: groups.get(column, {}).get(metric)}
    else:
        found = {str(c.get("name", i)): c.get(metric) for i, c in run.summary.clients.items()}
    return [(block, float(value)) for block, value in found.items() if value is not None]


def _ranking(
    what: str, metric: str, methods: tuple[str, ...], table: NDArray[np.float64], higher: bool
) -> Ranking:
    """Return the ranking of values (blocks, methods)."""
    ranks = _ranks(table, higher)
    means, over = table.mean(axis=0), f"over {len(table)} {what}"
    if len(table) < FEWEST:
        words = f"Methods cannot be told apart {over}: Wilcoxon's signed ranks need at least {FEWEST}."
        return Ranking(what, metric, methods, means, ranks.mean_ranks, None, words)
    best = told_from_best(wilcoxon_tests(methods, table.T, ranks.mean_ranks), higher_is_better=False)
    test = "Wilcoxon's signed ranks, 5 %"
    if len(methods) > 2:
        best, test = _by_nemenyi(best, methods, ranks)
    sentence = f"{in_words(best, {m: m for m in methods}, RANK)}, {over} ({test})."
    sentence += f" {TOGETHER}" if what == SITES else ""
    critical = ranks.critical_difference
    return Ranking(what, metric, methods, means, ranks.mean_ranks, best, sentence, critical)


def _by_nemenyi(best: BestCells[str], methods: Sequence[str], ranks: Ranks) -> tuple[BestCells[str], str]:
    """Return which methods are not told from the best mean rank, and by what in words.

    All of them, if Friedman's test finds no difference.
    """
    friedmans = f"Friedman's test, p {p_text(ranks.p_value)}"
    if not ranks.p_value <= 1 - LEVEL:
        return best._replace(alike=tuple(methods)), f"{friedmans}; {LAST_COLUMN}"
    near = ranks.mean_ranks - ranks.mean_ranks.min() <= ranks.critical_difference
    alike = tuple(method for method, is_near in zip(methods, near, strict=True) if is_near)
    nemenyi = f"Nemenyi, critical difference {ranks.critical_difference:.2f}, 5 %"
    return best._replace(alike=alike), f"{friedmans}; {nemenyi}; {LAST_COLUMN}"


def _ranks(table: NDArray[np.float64], higher: bool) -> Ranks:
    if table.shape[1] > 2:
        return friedman(table, higher)
    from scipy.stats import rankdata

    ranks = rankdata(-table if higher else table, axis=1).mean(axis=0)
    return Ranks(ranks, float("nan"), float("nan"), 0.0)


MOST_COLUMNS, MOST_SITES, MOST_NAMED = 6, 40, 5
OF_CASES = "In brackets: 95 % intervals of a site's cases; they do not cover how training varies over seeds."
HEADER = ("method", "sites left out", "mean over them", "95 % interval")


def values_left_out(rows: Rows, metric: str) -> dict[str, dict[str, list[float]]]:
    """Return the metric of each site left out under each seed, by method; empty of other sweeps.

    Parameters
    ----------
    rows : Rows
        The values of each cell by key, and its complete runs.
    metric : str
        The metric.
    """
    return values_by_block(_in_order(rows), metric, SITES_LEFT_OUT)


def intervals_left_out(rows: Rows, metric: str) -> dict[str, dict[str, Ends]]:
    """Return the interval of each such value, of the site's cases; None with several seeds, or none."""
    found = by_block(
        _in_order(rows), SITES_LEFT_OUT, lambda run: [(name_of_left_out(run.summary), _ends(run, metric))]
    )
    return {
        method: {site: ends[0] if len(ends) == 1 else None for site, ends in of.items()}
        for method, of in found.items()
    }


def _ends(run: Run, metric: str) -> Ends:
    summary = run.summary
    found = (summary.left_out or NewClients()).intervals or {}
    low, high = found.get("clients", {}).get(name_of_left_out(summary), {}).get(metric) or (None, None)
    return None if low is None or high is None else (low, high)


def _in_order(rows: Rows) -> Rows:
    """Return the rows of runs that leave out a site, by its number."""
    found = [row for row in rows if any(run.summary.left_out for run in row[1])]
    return sorted(found, key=lambda row: int(str(row[1][0].config.get(LEFT_OUT_KEY))))


def sites_table(rows: Rows, metric: str) -> Table | None:
    """Return a row for each site left out, with a column for each method; None of many, and of other sweeps.

    A value is the mean over seeds or, of one seed, has the interval of the site's cases.
    """
    found, ends = values_left_out(rows, metric), intervals_left_out(rows, metric)
    sites = list(dict.fromkeys(site for of in found.values() for site in of))
    if not found or len(found) > MOST_COLUMNS or len(sites) > MOST_SITES:
        return None
    digits = decimals(metric, (value for of in found.values() for seeds in of.values() for value in seeds))

    def cell(method: str, site: str) -> str:
        seeds, interval = found[method].get(site), ends.get(method, {}).get(site)
        return with_interval(metric, shown(metric, mean(seeds), digits), interval, digits) if seeds else ""

    return Table(
        ["site left out", *found],
        [[site, *(cell(method, site) for method in found)] for site in sites],
        note=OF_CASES if any(one for of in ends.values() for one in of.values()) else "",
    )


def without_value(sites: Sequence[str], metric: str) -> str:
    """Return a sentence on sites without a value of a metric, such as an AUROC of one class; or nothing."""
    named = f"{listed(sites, MOST_NAMED)} {'has' if len(sites) == 1 else 'have'}"
    return f" {named} no {spelt(metric)}, and no part in this." if sites else ""


def left_out_table(rows: Rows, metric: str) -> Table | None:
    """Return a row for each method over all sites left out, with Student's interval of the mean over sites.

    It is of new sites like these: it holds how sites differ, and not only how few cases each has. None of
    other sweeps.
    """
    found = values_left_out(rows, metric)
    if not found:
        return None
    from scipy.stats import sem, t  # takes a second

    factor, form = percent(metric), ".1f" if metric in PERCENT else ".4g"
    lines = []
    for method, of in found.items():
        means = [mean(seeds) for seeds in of.values()]
        shown = "one site only"
        if len(means) > 1:
            half = float(t.ppf((1 + LEVEL) / 2, len(means) - 1) * sem(means))
            shown = " to ".join(f"{factor * (mean(means) + end):{form}}" for end in (-half, half))
        lines.append([method, str(len(of)), f"{factor * mean(means):{form}}", shown])
    note = "Student's interval of the mean over sites: each is tested on all of its cases, none trained on."
    every = dict.fromkeys(name_of_left_out(run.summary) for _, runs in _in_order(rows) for run in runs)
    without = [site for site in every if not any(site in of for of in found.values())]
    return Table(HEADER, lines, note=note + without_value(without, metric))
