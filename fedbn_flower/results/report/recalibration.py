"""The sites' recalibrated scores beside the plain ones: metrics, decisions, calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.ground.columns import RECALIBRATED
from ...records.cases import predictions_of, with_recalibrated
from ...records.metrics import shown
from ...records.summary import OfClient, Recalibrated
from ...statistics.recalibration import PARAMETERS
from ..decisions import POOLED, is_binary
from ..run_reader import Run
from .client_tables import MAX_LISTED, MODELS
from .decisions import AT_USUAL, MOST_SITES, at_usual, figures
from .html import gallery, paragraph
from .intervals import with_interval
from .tables import Table

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
    yield _metrics(run, found).html()
    if found.method == "threshold":
        yield paragraph(NO_RISKS, "note")
    table = predictions_of(run.folder, RECALIBRATED)
    cases = None if table is None else with_recalibrated(table)
    if cases is not None and is_binary(cases):
        yield _decisions(cases).html()
        if found.method != "threshold":
            yield gallery(figures(cases, f", {RECALIBRATED}"))


def _metrics(run: Run, found: Recalibrated) -> Table:
    """Return a row for all clients together, for their means, and for each if they are few."""
    plain, parameter = run.summary, PARAMETERS.get(found.method, "")
    beside, again = plain.intervals or {}, found.intervals or {}
    rows: list[tuple[str, OfClient | None, OfClient | None, str]] = [
        (MODELS["pooled"], plain.pooled, found.pooled, "pooled"),
        (MODELS["mean"], plain.mean, found.mean, "" if plain.pooled else "pooled"),
        (MODELS["client-mean"], plain.client_mean, found.client_mean, "mean"),
    ]
    drawn = [(name, *pair, beside.get(key, {}), again.get(key, {})) for name, *pair, key in rows if pair[1]]
    few = len(found.clients) <= MAX_LISTED
    for number, client in found.clients.items() if few else ():
        name = str(client.get("name", number))
        intervals = (of.get("clients", {}).get(name, {}) for of in (beside, again))
        drawn.append((f"client {name}", plain.clients.get(number), client, *intervals))
    metrics = [name for name in found.mean or {} if name not in run.class_columns]
    parameters = list(dict.fromkeys(k for c in found.clients.values() for k in c if k.startswith(parameter)))
    header = [*parameters, *(text for name in metrics for text in (name, f"{name}, {RECALIBRATED}"))]
    return Table(
        ["model", *header],
        [
            [name, *(_number(again.get(key)) for key in parameters), *_pairs(metrics, before, again, *ends)]
            for name, before, again, *ends in drawn
        ],
    )


def _pairs(
    metrics: Sequence[str],
    plain: OfClient | None,
    again: OfClient,
    ends: Mapping[str, Any],
    ends_again: Mapping[str, Any],
) -> Iterator[str]:
    """Yield each metric of the plain scores and of the recalibrated ones, with their intervals."""
    for name in metrics:
        for values, intervals in ((plain or {}, ends), (again, ends_again)):
            yield with_interval(name, shown(name, values.get(name)), intervals.get(name))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _decisions(cases: DataFrame) -> Table:
    """Return what recalibrated scores do at the usual threshold, by site and pooled."""
    sites = list(cases.groupby("site", sort=False))
    rows = [at_usual(str(site), of_site) for site, of_site in sites[:MOST_SITES]]
    return Table(AT_USUAL, [*rows, *([at_usual(POOLED, cases)] if len(sites) > 1 else [])])
