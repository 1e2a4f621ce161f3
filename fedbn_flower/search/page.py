"""The page of a search."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...records.metrics import heading, spelt
from ...records.stored import CONFIG, SEARCH_FILE, TRIALS, json_object, rows_of, seen
from ..plotting.report_plots import trial_values
from ..run_reader import Run
from .html import gallery, page, paragraph, section
from .run_page import sentence
from .sections.client_tables import metrics_table
from .sections.closing import for_a_paper, how_to_reproduce
from .tables import Table

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
    lead = [paragraph(f"{len(trials)} trials, {complete} of them with a value.")]
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
