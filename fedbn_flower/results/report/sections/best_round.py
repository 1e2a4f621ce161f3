"""Which round's model was kept, by what it was chosen, and what that says of the metrics."""

from collections.abc import Iterator

from ....records.metrics import spelt
from ...run_reader import Run
from ..html import paragraph
from .client_tables import twice

WORD = "cross-fitted"


def how_chosen(run: Run) -> str:
    """Return a sentence of the round whose model was kept, and by what; empty where it is simply the last."""
    summary, metric = run.summary, run.main_metric
    if not summary.best_round:
        return ""
    by = "the held-out cases" if run.config.get("best") == WORD else "the validation share"
    return f"The saved model is that of round {summary.best_round}, of the best {spelt(metric)} on {by}."


def best_round(run: Run) -> Iterator[str]:
    """Yield what a choice on the held-out cases is worth: metrics as chosen, and cross-fitted ones."""
    found = run.summary.cross_fitted
    if not found:
        return
    yield paragraph(how_chosen(run))
    first, second = (found.rounds.get(half) for half in sorted(found.rounds))
    yield paragraph(
        "The plain metrics are of the cases on which this round was chosen, so they look better than they "
        f"will on new cases. The {WORD} ones do not: each client's cases are halved. The first half chose "
        f"round {first}, in which the second is reported, and the second chose round {second}, in which the "
        "first is. They say what such a choice is worth, not what this one model is."
    )
    yield twice(run, found, WORD).html()
