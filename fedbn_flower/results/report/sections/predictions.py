"""What was predicted, of all clients' examples and of each client's: figures and operating points."""

from collections.abc import Iterator, Mapping, Sequence

from numpy.typing import NDArray

from fedbn_flower.clients import Predicted
from fedbn_flower.clients.problems.metrics.scores import SensitivityAt, curve

from ....config.metric_names import NONE, metric_names
from ....records.metric_states import GLOBAL, POOLED, states_of
from ...plotting.metric_plots import FIGURES
from ...run_reader import Run
from ..html import folded, gallery, paragraph
from ..tables import Table
from .site_curves import curves_by_site

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
    }
    if drawn:
        scores = states[whole].get(HISTOGRAM)
        what = "Areas in tables" if by_site else "Curves and areas"
        fixed = "" if scores is None else f" {what} are of {scores.shape[-1] - 1:,} fixed thresholds."
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
        yield from _operating_points(run, states, whole, metric)


def _operating_points(
    run: Run, states: Mapping[str, Mapping[str, NDArray]], whole: str, metric: SensitivityAt
) -> Iterator[str]:
    """Yield what the threshold that the pooled examples give does at each client, of two classes."""
    histograms = states[whole].get(HISTOGRAM)
    if histograms is None or len(histograms) != 1 or not histograms.sum(2).all():
        return
    of_all = curve(histograms[0])
    point = metric.point(of_all)
    rows = []
    for who, found in sorted(states.items(), key=lambda pair: pair[0] not in WHOSE):
        if HISTOGRAM not in found:
            continue
        here = curve(found[HISTOGRAM][0])
        values = [
            f"{here.tp[point] / here.tp[-1]:.3f}" if here.tp[-1] else "",
            f"{1 - here.fp[point] / here.fp[-1]:.3f}" if here.fp[-1] else "",
        ]
        rows.append([_model(run, who), *values])
    yield Table(["model", "sensitivity", "specificity"], rows).html()
    yield paragraph(
        f"From a probability of {of_all.threshold[point]:.4g} on, {run.event} is predicted: the lowest "
        f"threshold with a specificity of at least {metric.specificity:g}, of {WHOSE[whole]}. It is chosen "
        "on the same examples.",
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
