"""Two classes: what the usual threshold misses at each site, and what thresholds of their own would."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....records.cases import GROUP
from ....statistics.intervals import wilson
from ...decisions import POOLED, USUAL, auroc, choose_threshold, counts_at
from ...plotting.decision_plots import calibration_curve, decision_curves
from ..html import folded, gallery, paragraph
from ..tables import Table

if TYPE_CHECKING:
    from pandas import DataFrame

    from ...plotting.svg_figure import InlineFigure

MOST_SITES, MOST_DRAWN = 30, 12
AT_USUAL = (
    *("site", "cases", "positives", "AUROC"),
    *(f"missed at {USUAL}", f"sensitivity at {USUAL}", f"specificity at {USUAL}"),
)
HEADER = (*AT_USUAL, "threshold", "missed", "sensitivity", "specificity")
NOTE = (
    "Class 1 is predicted from the threshold on. Each site's own is that of the greatest sensitivity + "
    "specificity - 1 (Youden) on these same cases, so it looks better here than it will on new ones. "
    "In brackets: 95 % intervals (Wilson), of cases that are in no groups. AUROCs are of single cases here; "
    "those of other tables may be of fixed thresholds. Bins of the calibration have at least 20 cases."
)


def decisions(table: DataFrame | None) -> Iterator[str]:
    """Yield a table with a row for each site, and one for all cases together."""
    if table is None:
        return
    sites = list(table.groupby("site", sort=False))
    shown = sites if len(sites) <= MOST_SITES else sorted(sites, key=_missed, reverse=True)[:MOST_SITES]
    rows = [_row(str(site), cases) for site, cases in shown]
    if len(sites) > 1:
        rows.append(_row(POOLED, table))
    yield Table(HEADER, rows).html()
    if len(sites) > len(shown):
        which = f"The {len(shown)} of {len(sites)} sites that miss most positives at {USUAL}."
        yield paragraph(which, "note")
    yield paragraph(NOTE, "note")
    yield gallery(figures(table))
    if 1 < len(sites) <= MOST_DRAWN:
        drawn = [figures(cases, f", site {site}") for site, cases in sites]
        each = {caption: figure for found in drawn for caption, figure in found.items()}
        yield folded("Decision curve and calibration of each site", gallery(each))


def figures(cases: DataFrame, of: str = "") -> dict[str, InlineFigure | None]:
    """Return the decision curve and the calibration of cases, by caption; its end says of which."""
    return {f"Decision curve{of}": decision_curves(cases), f"Calibration{of}": calibration_curve(cases)}


def _missed(site: tuple[object, DataFrame]) -> int:
    return counts_at(site[1], USUAL).fn


def at_usual(name: str, cases: DataFrame) -> list[str]:
    """Return a row of `AT_USUAL`."""
    usual = counts_at(cases, USUAL)
    found = [name, f"{len(cases):,}", f"{usual.tp + usual.fn:,}", _number(auroc(cases))]
    grouped = GROUP in cases and cases[GROUP].notna().any()
    shares = ((usual.tp, usual.tp + usual.fn), (usual.tn, usual.tn + usual.fp))
    return [*found, f"{usual.fn:,}", *(_share(hits, of, not grouped) for hits, of in shares)]


def _row(name: str, cases: DataFrame) -> list[str]:
    own = choose_threshold(cases, "youden")
    found, chosen = at_usual(name, cases), counts_at(cases, own)
    if math.isnan(own):  # without both classes there is none
        return [*found, "", "", "", ""]
    return [*found, f"{own:.3f}", f"{chosen.fn:,}", _number(chosen.sensitivity), _number(chosen.specificity)]


def _share(hits: int, cases: int, single: bool) -> str:
    """Return a share of cases, with Wilson's interval if these are ``single``."""
    if not cases:
        return ""
    found = wilson(hits, cases)
    return f"{found.value:.3f}" + (f" ({found.low:.3f} to {found.high:.3f})" if single else "")


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"
