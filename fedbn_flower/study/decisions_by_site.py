"""Two classes: what the usual threshold misses at each site, and what thresholds of their own would.

The sites' recalibrated scores beside the plain ones: metrics, decisions, calibration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..core.ground.columns import RECALIBRATED
from ..core.text import listed
from ..records.cases import GROUP, ID, in_numbers, is_binary, predictions_of
from ..records.metrics import shown, spelt
from ..records.summary import Recalibrated
from ..results.held_out import events_column
from ..results.report.html import folded, gallery, paragraph
from ..results.report.sections.client_tables import twice
from ..results.report.tables import Table
from ..results.run_reader import Run
from ..results.summary import NON_METRICS
from .decisions import POOLED, USUAL, auroc, choose_threshold, counts_at
from .figures import calibration_curve, decision_curves
from .recalibration import PARAMETERS, with_recalibrated
from .statistics.case_metrics import METRICS, CaseMetric
from .statistics.cases import Cases
from .statistics.intervals import by_formula, has_shared_cases

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..results.plotting.svg_figure import InlineFigure

MOST_SITES, MOST_DRAWN = 30, 12
OWN = ("threshold", "missed", "sensitivity", "specificity")
NOTE = (
    "From the threshold on, {event} is predicted. Each site's own is that of the greatest sensitivity + "
    "specificity - 1 (Youden) on these same cases, so it looks better here than it will on new ones. "
    "In brackets: 95 % intervals (docs/statistics.md). Bins of the calibration have at least 20 cases."
)


def at_usual_header(event: str) -> list[str]:
    """Return the columns of `at_usual`, of an event of this name."""
    shares = (f"{what} at {USUAL}" for what in ("missed", "sensitivity", "specificity"))
    return ["site", "cases", events_column(event), "AUROC", *shares]


def decisions_by_site(run: Run) -> Iterator[str]:
    """Yield `decisions` of a run's held-out cases of two classes."""
    yield from decisions(run.binary_cases, run.event)


def decisions(table: DataFrame | None, event: str) -> Iterator[str]:
    """Yield a table with a row for each site, and one for all cases together; ``event`` is its name."""
    if table is None:
        return
    sites = list(table.groupby("site", sort=False))
    shown = sites if len(sites) <= MOST_SITES else sorted(sites, key=_missed, reverse=True)[:MOST_SITES]
    rows = [_row(str(site), cases) for site, cases in shown]
    if len(sites) > 1:
        rows.append(_row(POOLED, table))
    yield Table([*at_usual_header(event), *OWN], rows).html()
    if len(sites) > len(shown):
        which = f"The {len(shown)} of {len(sites)} sites that miss most events at {USUAL}."
        yield paragraph(which, "note")
    yield paragraph(NOTE.format(event=event), "note")
    yield gallery(figures(table, event))
    if 1 < len(sites) <= MOST_DRAWN:
        drawn = [figures(cases, event, f", site {site}") for site, cases in sites]
        each = {caption: figure for found in drawn for caption, figure in found.items()}
        yield folded("Decision curve and calibration of each site", gallery(each))


def figures(cases: DataFrame, event: str, of: str = "") -> dict[str, InlineFigure | None]:
    """Return the decision curve and the calibration of cases, by caption; its end says of which."""
    found = decision_curves(cases, event), calibration_curve(cases, event)
    return dict(zip((f"Decision curve{of}", f"Calibration{of}"), found, strict=True))


def _missed(site: tuple[object, DataFrame]) -> int:
    return counts_at(site[1], USUAL).fn


def at_usual(name: str, cases: DataFrame) -> list[str]:
    """Return a row of what the usual threshold does; see `at_usual_header`."""
    usual = counts_at(cases, USUAL)
    found = [name, f"{len(cases):,}", f"{usual.tp + usual.fn:,}", _number(auroc(cases))]
    cases = in_numbers(cases)
    of_groups = cases.assign(**{GROUP: cases[ID]}) if ID in cases and has_shared_cases(cases) else cases
    shares = (_share(METRICS[of], Cases.of(of_groups)) for of in ("sensitivity", "specificity"))
    return [*found, f"{usual.fn:,}", *shares]


def _row(name: str, cases: DataFrame) -> list[str]:
    own = choose_threshold(cases, "youden")
    found, chosen = at_usual(name, cases), counts_at(cases, own)
    if math.isnan(own):  # without both classes there is none
        return [*found, "", "", "", ""]
    return [*found, f"{own:.3f}", f"{chosen.fn:,}", _number(chosen.sensitivity), _number(chosen.specificity)]


def _share(metric: CaseMetric, cases: Cases) -> str:
    """Return a share of cases with its interval."""
    found = by_formula(metric, cases)
    return "" if found is None or math.isnan(found.value) else found.text


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"


HOW = {
    "temperature": "divided by a temperature of its logits",
    "isotonic": "mapped by a monotone function",
    "threshold": "shifted so that its own threshold (Youden) becomes 0.5",
}
NO_RISKS = (
    "Shifted scores are no risks: of them, read what follows from decisions, such as accuracy, sensitivity "
    "and specificity, and not loss, Brier score or calibration."
)


def recalibration(run: Run) -> Iterator[str]:
    """Yield what each site found, and all metrics twice: of the plain and of the recalibrated scores."""
    found = run.summary.recalibrated
    if not found:
        return
    yield paragraph(
        f"Each site's scores are {HOW.get(found.method, found.method)}, fitted on its own validation share "
        "and applied to its own held-out cases, which the fit has not seen. The model is the same."
    )
    yield twice(run, found, RECALIBRATED, PARAMETERS.get(found.method, ""), found.intervals).html()
    yield from map(paragraph, [*_unchanged(run, found), *made_worse(run, found)])
    if found.method == "threshold":
        yield paragraph(NO_RISKS, "note")
    table = predictions_of(run.folder, RECALIBRATED)
    cases = None if table is None else with_recalibrated(table)
    if cases is not None and is_binary(cases):
        yield _decisions(cases, run.event).html()
        if found.method != "threshold":
            yield gallery(figures(cases, run.event, f", {RECALIBRATED}"))


def _unchanged(run: Run, found: Recalibrated) -> list[str]:
    """Return a line on the clients whose scores stay as they are, since nothing could be fitted."""
    begin = PARAMETERS.get(found.method, "")
    same = [name for name, of in found.clients.items() if not any(key.startswith(begin) for key in of)]
    names = [run.client_names.get(int(name), f"client {name}") for name in same]
    why = "validation cases of one class only"
    why += ", or no threshold better than chance" if found.method == "threshold" else ""
    return [f"Scores stay as they are at {listed(names, MOST_DRAWN)}: {why}."] if names else []


def made_worse(run: Run, found: Recalibrated) -> list[str]:
    """Return a line on the metrics that recalibrated scores have worse, of all held-out examples."""
    of_all = found.pooled or found.mean or {}
    plain = (run.summary.pooled if found.pooled else run.summary.mean) or {}
    worse = []
    for name in plain.keys() & of_all.keys() - NON_METRICS - {*run.class_columns}:
        before, after = plain[name], of_all[name]
        sign = 1 if run.higher_is_better(name) else -1
        texts = [shown(name, value) for value in (before, after)]
        if before is not None and after is not None and sign * after < sign * before and len({*texts}) > 1:
            worse.append(f"{spelt(name)} ({' to '.join(texts)})")
    return [f"Recalibration made worse: {', '.join(sorted(worse))}."] if worse else []


def _decisions(cases: DataFrame, event: str) -> Table:
    """Return what recalibrated scores do at the usual threshold, by site and pooled."""
    sites = list(cases.groupby("site", sort=False))
    rows = [at_usual(str(site), of_site) for site, of_site in sites[:MOST_SITES]]
    return Table(at_usual_header(event), [*rows, *([at_usual(POOLED, cases)] if len(sites) > 1 else [])])
