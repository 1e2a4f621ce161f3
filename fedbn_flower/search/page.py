"""The page of a search."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core.stored import CONFIG, SEARCH_FILE, TRIALS, json_object, rows_of, seen
from ..core.text import number_of
from ..records.metrics import heading, percent, spelt, with_unit
from ..results.plotting.plots import COLOURS, new_axes, open_grid, plain
from ..results.plotting.svg_figure import InlineFigure
from ..results.report.html import gallery, page, paragraph, section
from ..results.report.run_page import sentence
from ..results.report.sections.client_tables import metrics_table
from ..results.report.sections.closing import for_a_paper, how_to_reproduce
from ..results.report.tables import Table
from ..results.run_reader import Run

FIXED_COLUMNS = ("trial", "state", "rounds", "seconds", "value", "folder")
"""Columns of ``search.csv`` that are not searched keys."""


def search_page(folder: Path) -> str:
    """Return the page of a search's folder."""
    trials = list(rows_of(folder / TRIALS))
    keys = [column for column in (trials[0] if trials else {}) if column not in FIXED_COLUMNS]
    best = Run.read(folder / "best", "report") if (folder / "best" / CONFIG).exists() else None
    metric = best.main_metric if best else "value"
    header = ["trial", "state", *keys, "value", "rounds", "seconds"]
    rows = [[_rounded(trial.get(name, "")) for name in header] for trial in trials]
    table = Table([spelt(metric) if name == "value" else name for name in header], rows, words=2)
    complete = sum(bool(trial.get("value")) for trial in trials)
    lead = [paragraph(f"{number_of(len(trials), 'trial')}, {complete} of them with a value.")]
    if best:
        lead.append(paragraph(f"The best settings were run again and tested: {sentence(best)}"))
    figures = {f"{heading(metric)} by {key}": trial_values(trials, key, metric) for key in keys}
    return page(
        f"Search of {', '.join(keys)}{f' on {best.dataset}' if best else ''}",
        "".join(lead),
        [
            section("Best settings", *_best_settings(best)),
            section("Search space", _search_space(folder)),
            section("Metric by key", gallery(figures)),
            section("Trials", table.html()),
            section("For a paper", *for_a_paper([best.config] if best else [], table)),
        ],
    )


def _best_settings(best: Run | None) -> Iterator[str]:
    if best:
        yield metrics_table(best).html()
        yield from how_to_reproduce(best)


def _rounded(text: str) -> str:
    """Return a number with four significant digits, and other text unchanged."""
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def _search_space(folder: Path) -> str:
    """Return a table of the ranges and choices in ``search.json``."""
    space: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        space = seen(json_object(folder / SEARCH_FILE).get("search", {}))
    rows = [[key, str(value)] for key, value in space.items()]
    return Table(["key", "values"], rows, words=2).html() if rows else ""


def trial_values(trials: Sequence[Mapping[str, str]], key: str, metric: str) -> InlineFigure | None:
    """Draw the metric of each trial against a searched key; None if no trial has both.

    The key's axis is logarithmic if its values are positive and differ by at least a factor of ten.
    """
    complete = [trial for trial in trials if trial.get(key) and trial.get("value")]
    if not complete:
        return None
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axes = new_axes(4.6, 3.1)
    values: list[float] | list[str] = [trial[key] for trial in complete]
    with suppress(ValueError):
        numbers = values = [float(value) for value in values]
        if min(numbers) > 0 and max(numbers) >= 10 * min(numbers):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
    axes.plot(values, [percent(metric) * float(t["value"]) for t in complete], "o", color=COLOURS[0])
    axes.set(xlabel=key, ylabel=plain(with_unit(metric)))
    open_grid(axes)
    return figure
