"""What was predicted, of all clients' examples and of each client's: curves, figures, operating points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Predicted
from fedbn_flower.clients.problems.metrics.scores import Curve, SensitivityAt, curve, exact_curve

from ..config.metric_names import NONE, metric_names
from ..records.cases import SCORE, SITE, TARGET
from ..records.metrics import GLOBAL, POOLED, states_of
from ..results.report.html import folded, gallery, paragraph
from ..results.report.tables import Table
from ..results.run_reader import Run
from .decisions import POOLED as ALL_SITES
from .figures import FIGURES, RELIABILITY, curves_of_cases
from .statistics.cases import Cases
from .statistics.intervals import delong

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..results.plotting.svg_figure import InlineFigure

HISTOGRAM = SensitivityAt.state
WORDS = (
    "Curves are of single held-out cases. In brackets: 95 % intervals (DeLong). Precision is drawn as steps, "
    "since nothing lies between two thresholds; dots are the prevalence, the share of events: {event}."
)
WHOSE = {POOLED: "all clients' examples pooled", GLOBAL: "global model"}


def predictions(run: Run) -> Iterator[str]:
    """Yield the curves of sites, the figures of a run's states, and the operating points."""
    by_site, states = curves_by_site(run), states_of(run.folder)
    if by_site:
        yield gallery(by_site)
        yield paragraph(WORDS.format(event=run.event), "note")
    whole = next((who for who in WHOSE if who in states), None)
    if whole is None:
        return
    names = _class_names(run, states[whole])
    drawn = {
        caption: draw(states[whole][state], names)
        for caption, (state, draw) in FIGURES.items()
        if state in states[whole] and caption not in by_site
        if caption != RELIABILITY or run.binary_cases is None  # their calibration is drawn with decisions
    }
    if drawn:
        curves = any(FIGURES[caption][0] == HISTOGRAM for caption in drawn)
        edges = states[whole][HISTOGRAM].shape[-1] - 1 if curves else 0
        fixed = f" Curves are of {edges:,} fixed thresholds." if curves else ""
        yield paragraph(f"Of {WHOSE[whole]}.{fixed}", "note")
        yield gallery(drawn)
    clients = {who: found for who, found in states.items() if who not in WHOSE}
    for caption in drawn if clients else ():
        state, draw = FIGURES[caption]
        figures = {
            f"{caption}, {_model(run, who)}": draw(found[state], names)
            for who, found in clients.items()
            if state in found
        }
        yield folded(f"{caption} of each client", gallery(figures))
    for metric in _sensitivities(run):
        yield from _operating_points(run, _curves(run, states, whole), metric)


def _curves(run: Run, states: Mapping[str, Mapping[str, NDArray]], whole: str) -> dict[str, Curve]:
    """Return the curves of two classes, those of all cases first: of single cases if they are known."""
    table = run.binary_cases
    if table is not None:
        sites = {f"client {site}": cases for site, cases in table.groupby(SITE, sort=False)}
        return {
            name: exact_curve((cases[TARGET] == 1).to_numpy(), cases[SCORE].to_numpy())
            for name, cases in {WHOSE[POOLED]: table, **sites}.items()
        }
    order = sorted(states, key=lambda who: (who != whole, who not in WHOSE))
    histograms = {_model(run, who): states[who].get(HISTOGRAM) for who in order}
    return {name: curve(of[0]) for name, of in histograms.items() if of is not None and len(of) == 1}


def _operating_points(run: Run, curves: Mapping[str, Curve], metric: SensitivityAt) -> Iterator[str]:
    """Yield what the threshold that the first of the curves gives does to each, of two classes."""
    if not curves:
        return
    whole, of_all = next(iter(curves.items()))
    if not (of_all.tp[-1] and of_all.fp[-1]):
        return
    threshold = of_all.threshold[metric.point(of_all)]
    rows = []
    for name, here in curves.items():
        point = int(np.flatnonzero(here.threshold >= threshold)[-1])
        values = [
            f"{here.tp[point] / here.tp[-1]:.3f}" if here.tp[-1] else "",
            f"{1 - here.fp[point] / here.fp[-1]:.3f}" if here.fp[-1] else "",
        ]
        rows.append([name, *values])
    yield Table(["model", "sensitivity", "specificity"], rows).html()
    yield paragraph(
        f"From a probability of {threshold:.4g} on, {run.event} is predicted: the lowest threshold with a "
        f"specificity of at least {metric.specificity:g}, of {whole}. It is chosen on the same examples.",
        "note",
    )


def _sensitivities(run: Run) -> Iterator[SensitivityAt]:
    for name in metric_names(str(run.config.get("metrics", NONE))):
        head, _, argument = name.partition(":")
        if head == "sensitivity-at":
            yield SensitivityAt(Predicted("classes", 2), argument)


def _class_names(run: Run, states: Mapping[str, NDArray]) -> Sequence[str]:
    most = max((len(state) for state in states.values()), default=0)
    return run.outcomes if run.class_names or most <= 2 else list(map(str, range(most)))


def _model(run: Run, who: str) -> str:
    return WHOSE[who] if who in WHOSE else f"client {run.client_names.get(int(who), who)}"


ROC, PRECISION = "ROC curve", "Precision and recall"
"""The figures that these stand for where single cases are known, of `figures.FIGURES`."""
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
        sites[ALL_SITES] = table
    sites = {name: cases for name, cases in sites.items() if cases[TARGET].nunique() == 2}
    if not sites:
        return {}
    of = {
        ROC: {f"{name}: {_area(cases)}": cases for name, cases in sites.items()},
        PRECISION: {f"{name}: {_precision(cases)}": cases for name, cases in sites.items()},
    }
    return {caption: curves_of_cases(of[caption], ALL_SITES, caption == PRECISION) for caption in of}


def _area(table: DataFrame) -> str:
    """Return the AUROC of cases with DeLong's interval, as text."""
    cases = Cases.of(table)
    return f"AUROC {delong(cases.targets, cases.scores, cases.in_groups).text}"


def _precision(table: DataFrame) -> str:
    """Return the average precision of cases, and the share of positives, as text."""
    from sklearn.metrics import average_precision_score

    found = float(average_precision_score(table[TARGET], table[SCORE]))
    return f"average precision {found:.3f}, prevalence {float(table[TARGET].mean()):.3f}"
