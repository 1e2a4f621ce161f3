"""Curves of held-out cases of two classes: those of all sites on the same axes, with areas and intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...records.cases import SCORE, SITE, TARGET
from ...results.run_reader import Run
from ..decisions import POOLED
from ..metric_plots import precision_recall_curves, roc_curves
from ..statistics.cases import Cases
from ..statistics.intervals import delong

if TYPE_CHECKING:
    from pandas import DataFrame

    from ...results.plotting.svg_figure import InlineFigure

ROC, PRECISION = "ROC curve", "Precision and recall"
"""The figures that these stand for where single cases are known, of `metric_plots.FIGURES`."""
MOST_SITES = 10


def curves_by_site(run: Run) -> dict[str, InlineFigure]:
    """Return the figures by caption; none unless cases of two classes are kept, of few sites.

    Where clients have the same cases, there is no pooled curve. Sites without cases of both classes have
    none.
    """
    table = run.binary_cases
    if table is None or table[SITE].nunique() > MOST_SITES:
        return {}
    sites = {str(site): cases for site, cases in table.groupby(SITE, sort=False)}
    if len(sites) > 1 and not table["id"].duplicated().any():
        sites[POOLED] = table
    sites = {name: cases for name, cases in sites.items() if cases[TARGET].nunique() == 2}
    if not sites:
        return {}
    areas = {f"{name}: {_area(cases)}": cases for name, cases in sites.items()}
    precisions = {f"{name}: {_precision(cases)}": cases for name, cases in sites.items()}
    return {
        ROC: roc_curves(areas, next((label for label in areas if label.startswith(POOLED)), "")),
        PRECISION: precision_recall_curves(
            precisions, next((label for label in precisions if label.startswith(POOLED)), "")
        ),
    }


def _area(table: DataFrame) -> str:
    """Return the AUROC of cases with DeLong's interval, as text."""
    cases = Cases.of(table)
    found = delong(cases.targets, cases.scores, cases.in_groups)
    ends = "" if math.isnan(found.low) else f" ({found.low:.3f} to {found.high:.3f})"
    return f"AUROC {found.value:.3f}{ends}"


def _precision(table: DataFrame) -> str:
    """Return the average precision of cases, and the share of positives, as text."""
    from sklearn.metrics import average_precision_score

    found = float(average_precision_score(table[TARGET], table[SCORE]))
    return f"average precision {found:.3f}, prevalence {float(table[TARGET].mean()):.3f}"
