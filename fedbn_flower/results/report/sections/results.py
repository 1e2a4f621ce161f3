"""What a run learns, and how well: its metrics, what their means are over, figures, and held-out cases."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ....records.metrics import heading, spelt
from ....records.summary import tested_on
from ...held_out import cases_of_each_class, divided_otherwise, held_out_table, without_a_value
from ...plotting.drawer import drawn_of_run
from ...plotting.plots import metric_names
from ...plotting.report_plots import client_curves, learning_rates, metric_curve, partition_counts
from ...rare_event import led_by_rare_event
from ...run_reader import Run
from ...summary import over_labels
from ..html import folded, gallery, paragraph
from ..tables import Table
from ..unfinished import still_rising
from .client_tables import metrics_table, twice
from .intervals import BRACKETS, in_words

if TYPE_CHECKING:
    from ...plotting.drawer import DrawnApart
    from ...plotting.svg_figure import InlineFigure

MEANS = (
    "Mean over examples weights all held-out examples equally; mean over clients, all clients that have a "
    "value."
)


def means(runs: Iterable[Run]) -> str:
    """Return what the means in a table of these runs are over, and on whose examples clients were tested."""
    runs = [*runs]
    if any(run.told for run in runs):
        return ""
    labels = over_labels(run.config.get("problem") for run in runs)
    lacking = without_a_value(runs) if len(runs) > 1 else ""  # of one run each mean says how many
    said = (tested_on(run.summary for run in runs), divided_otherwise(runs), lacking, labels)
    return " ".join([*(f"{words[:1].upper()}{words[1:]}." for words in said if words), MEANS])


def results(run: Run) -> Iterator[str]:
    """Yield the metrics of all and of each client, and the figures."""
    table = metrics_table(run)
    if table.rows:
        yield table.html()
        rising = still_rising(led_by_rare_event(run))
        yield paragraph(" ".join(filter(None, [means([run]), rising])), "note")
    yield from in_words(run)
    yield gallery(run_figures(run))


def with_words(run: Run, table: Table) -> Table:
    """Return the table with what its means and intervals are, in words, as its note."""
    has_intervals = any(cell.endswith(")") for row in table.rows for cell in row[1:])
    return replace(table, note=f"{means([run])} {BRACKETS if has_intervals else ''}".strip())


def run_figures(run: Run) -> "dict[str, InlineFigure | DrawnApart | None]":
    """Return the figures of every run by caption."""
    names = metric_names(run)
    main = (names or [run.main_metric])[0]
    return {
        **{f"{heading(name)} by round": drawn_of_run(metric_curve, run, name) for name in names},
        **{
            f"{heading(main)} by {cost}": drawn_of_run(metric_curve, run, main, cost)
            for cost in run.shown_costs
        },
        f"{heading(main)} of each client": drawn_of_run(client_curves, run, main),
        "Training examples by client": drawn_of_run(partition_counts, run),
        "Learning rate by round": drawn_of_run(learning_rates, run),
    }


def what_is_learnt(run: Run) -> Iterator[str]:
    """Yield what is learnt, from what, and from whom."""
    if run.learnt:
        yield Table.of_learnt(run.learnt).html()


def held_out(run: Run) -> Iterator[str]:
    """Yield `counts_by_site` of one run."""
    yield from counts_by_site([run], held_out_table([run]))


def counts_by_site(runs: Sequence[Run], counts: Table | None) -> Iterator[str]:
    """Yield the held-out cases: a sentence where they are as many of each site and class, else folded."""
    if counts and (line := cases_of_each_class(runs)):
        yield paragraph(line)
    elif counts:
        yield folded("How many cases, by site and class", "".join(with_note(counts)))


def with_note(table: Table) -> Iterator[str]:
    """Yield a table and what stands below it."""
    yield table.html()
    if table.note:
        yield paragraph(table.note, "note")


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
