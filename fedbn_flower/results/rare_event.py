"""What leads the tables of a rare event, whose accuracy says little: AUROC, sensitivity, calibration."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from fedbn_flower.clients import Predicted
from fedbn_flower.clients.problems.metrics.scores import Auroc, SensitivityAt, exact_curve

from ..records.cases import SCORE, SITE, TARGET
from ..records.summary import Summary
from .held_out import have_same_cases
from .run_reader import Run

if TYPE_CHECKING:
    from pandas import DataFrame

RARE = 0.2
"""A share of events below which an accuracy says little."""
SPECIFICITY = "0.9"
LEADING = AUROC, SENSITIVITY, CALIBRATION = "auroc", f"sensitivity-at:{SPECIFICITY}", "expected-over-observed"


def rare_cases(run: Run) -> "DataFrame | None":
    """Return the held-out cases of a rare event; None of other runs, and where cases are not kept."""
    cases = run.binary_cases
    return None if cases is None or not is_rare(cases) or have_same_cases(run) else cases


def is_rare(cases: "DataFrame") -> bool:
    """Whether cases have an event, and few."""
    return bool(0 < (cases[TARGET] == 1).mean() < RARE)


def led_by_rare_event(run: Run) -> Run:
    """Return the run with the `LEADING` metrics of all cases and of each client, if its event is rare.

    Where it would be compared by accuracy, it is by AUROC, unless a site is left out.
    """
    cases, summary = rare_cases(run), run.summary
    if cases is None:
        return run
    of_all = summary.pooled or summary.mean or {}
    clients = {
        number: {**figures(cases[cases[SITE] == client.get("name", number)]), **client}
        for number, client in summary.clients.items()
    }
    update: dict[str, object] = {"pooled": {**figures(cases), **of_all}, "clients": clients}
    if run.main_metric == "accuracy" and not summary.left_out:
        update |= {"compared_by": AUROC, "higher_is_better": [*summary.higher_is_better, AUROC]}
    return replace(run, summary=summary.model_copy(update=update))


def is_led(summary: Summary) -> bool:
    """Whether a summary is one of `led_by_rare_event`."""
    return CALIBRATION in (summary.pooled or ())


def figures(cases: "DataFrame") -> dict[str, float | None]:
    """Return the `LEADING` metrics of cases of an event; None for one that is undefined."""
    truth, scores = (cases[TARGET] == 1).to_numpy(), cases[SCORE].to_numpy()
    events = int(truth.sum())
    if not 0 < events < len(truth):
        return dict.fromkeys(LEADING)
    predicted, curve = Predicted("classes", 2), exact_curve(truth, scores)
    sensitivity = SensitivityAt(predicted, SPECIFICITY).of_curve(curve)
    values = (Auroc(predicted).of_curve(curve), sensitivity, scores.sum() / events)
    return dict(zip(LEADING, map(float, values), strict=True))


def main_first(summary: Summary, main: str, metrics: Iterable[str]) -> list[str]:
    """Return metrics in their order, but the main one first, and those of a rare event, its accuracy last."""
    rare = (*LEADING, "accuracy") if is_led(summary) else ()
    leading = dict.fromkeys([*(rare if main == "accuracy" else ()), main, *rare])
    names = list(metrics)
    return [name for name in dict.fromkeys([*leading, *names]) if name in names]
