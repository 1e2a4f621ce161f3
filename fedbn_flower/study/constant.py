"""Say where a model predicts held-out cases no better than a constant, or the other way round at a site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..config.trust import code_in
from ..core.text import listed
from ..records.cases import GROUP, PREDICTED, SCORE, SITE, TARGET, predictions_of
from .statistics.delong import aurocs

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from ..results.run_reader import Run

FEWEST, FEWEST_OTHERS = 30, 5
"""Held-out cases, and those outside the usual class, below which chance decides what is better."""
CHANCE, MOST_SITES = 1e-2, 5
"""A line's probability, over all sites, if scores had nothing to do with the classes; sites that it names."""
ESTIMATED, OF_NUMBERS = ("r2", "rmse"), ("auto", "regression", "least-squares")
"""Metrics of estimates, and problems whose scores are estimates of numbers."""
LOW_AUROC = 0.6
"""The scores of a model that is right less often than a constant tell classes apart from here on."""


def doubts(run: Run) -> Iterator[str]:
    """Yield the lines of a run's cases one by one, of all clients that trained."""
    table = predictions_of(run.folder)
    if table is None or len(table) < FEWEST:
        return
    names = [name for name in table if name == TARGET or name.startswith(f"{TARGET}-")]
    for name in names if scores_are_estimates(run) else ():
        score = SCORE + name.removeprefix(TARGET)
        if table[name].dtype.kind == "f" and score in table:
            yield from no_better_than_mean(table[name], table[score], name.removeprefix(f"{TARGET}-"))
    if run.binary_cases is not None:
        yield from turned_at_sites(run.binary_cases)
    if PREDICTED in table and table[TARGET].dtype.kind == "i":
        yield from no_better_than_usual(table, run.outcomes)


def scores_are_estimates(run: Run) -> bool:
    """Return whether scores of numbers estimate the targets, as a quantile or a rate's logarithm does not.

    Own code that gives the problem, the loss or the data may learn something else; unless the run says R² or
    the RMSE.
    """
    if any(name in row for row in run.metrics[:1] for name in ESTIMATED):
        return True
    problem, loss, dataset = (str(run.config.get(key, "")) for key in ("problem", "loss", "dataset"))
    return problem in OF_NUMBERS and loss in ("", "auto") and not code_in("dataset", dataset)


def no_better_than_mean(targets: Series, scores: Series, name: str = TARGET) -> Iterator[str]:
    """Yield a line if squared errors are no less than those of the mean, and absolute ones of the median."""
    variance, error = targets.var(ddof=0), ((targets - scores) ** 2).mean()
    apart, absolute = (targets - targets.median()).abs().mean(), (targets - scores).abs().mean()
    if error >= variance > 0 and absolute >= apart:
        of = f"{name!r} of " * (name != TARGET)
        squared, others = f"{1 - error / variance:.2f}", f"{absolute:.4g}, that of their median {apart:.4g}"
        yield (
            f"the errors of {of}all held-out cases are no less than those of a constant: R² is {squared}, "
            f"and the mean absolute error {others}"
        )


def no_better_than_usual(table: DataFrame, names: Sequence[str]) -> Iterator[str]:
    """Yield a line if no more cases are right than if the usual class were always predicted.

    Scores that tell the classes apart may be as rarely right, of a rare event: their AUROC, with several
    classes the mean of each against all others, is 0.6 or more.
    """
    targets, predicted = table[TARGET].to_numpy(), table[PREDICTED]
    predicted = predicted.cat.codes if predicted.dtype == "category" else predicted
    counts = np.bincount(targets)
    usual, right = int(counts.argmax()), int((targets == predicted.to_numpy()).sum())
    if right > counts[usual] or len(targets) - counts[usual] < FEWEST_OTHERS:
        return
    scores = (
        {1: SCORE}
        if SCORE in table
        else dict(enumerate(name for name in table if name.startswith(f"{SCORE}-")))
    )
    areas = [
        aurocs(targets == one, table[scores[one]]).areas[0]
        for one in np.flatnonzero(counts).tolist()
        if one in scores
    ]
    if (area := float(np.mean(areas))) < LOW_AUROC:
        name = names[usual] if usual < len(names) else str(usual)
        found, always = (f"{count / len(targets):.1%}" for count in (right, counts[usual]))
        yield (
            f"{found} of all held-out cases are right, and {always} would be if {name!r} were always "
            f"predicted; the AUROC is {area:.2f}"
        )


def turned_at_sites(cases: DataFrame) -> Iterator[str]:
    """Yield a line on the sites at which events have the lower scores, which chance would hardly do.

    By Mann and Whitney's test; at most sites the AUROC is above 0.5. Cases of a group, such as a patient,
    are not independent: each group has one mean score of its cases of a class.
    """
    from scipy.stats import mannwhitneyu

    of = ""
    if GROUP in cases and cases[GROUP].notna().any():
        of = "of mean scores by group "
        groups = cases[GROUP].astype(object).where(cases[GROUP].notna(), np.arange(len(cases)))
        cases = cases.groupby([cases[SITE], groups, cases[TARGET]], sort=False, observed=True)[[SCORE]].mean()
        cases = cases.reset_index()
    found, sites = [], list(cases.groupby(SITE, sort=False, observed=True))
    for site, here in sites:
        events, others = (here[SCORE][here[TARGET] == one] for one in (1, 0))
        if min(len(events), len(others)) >= FEWEST_OTHERS:
            above, chance = mannwhitneyu(events, others, alternative="less")
            found.append((str(site), above / len(events) / len(others), chance))
    turned = [f"{site} ({area:.2f})" for site, area, chance in found if chance < CHANCE / len(sites)]
    if turned and 2 * sum(area > 0.5 for _, area, _ in found) > len(found):
        yield (
            f"the AUROC {of}is below 0.5 at {listed(turned, MOST_SITES)}, and above at most other sites: "
            "look at whether the classes, or a column, are coded the other way round there"
        )
