"""The sites' recalibrated scores beside the plain ones: metrics, decisions, calibration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....core.ground.columns import RECALIBRATED
from ....records.cases import predictions_of, with_recalibrated
from ....records.metrics import shown, spelt
from ....records.summary import Recalibrated
from ....statistics.recalibration import PARAMETERS
from ...decisions import POOLED, is_binary
from ...run_reader import Run
from ...summary import NON_METRICS
from ..html import gallery, paragraph
from ..tables import Table
from .client_tables import twice
from .decisions import MOST_SITES, at_usual, at_usual_header, figures

if TYPE_CHECKING:
    from pandas import DataFrame

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
    yield from map(paragraph, made_worse(run, found))
    if found.method == "threshold":
        yield paragraph(NO_RISKS, "note")
    table = predictions_of(run.folder, RECALIBRATED)
    cases = None if table is None else with_recalibrated(table)
    if cases is not None and is_binary(cases):
        yield _decisions(cases, run.event).html()
        if found.method != "threshold":
            yield gallery(figures(cases, run.event, f", {RECALIBRATED}"))


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
