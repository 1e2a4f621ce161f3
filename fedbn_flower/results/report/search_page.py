"""The page of a search."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..plotting.report_plots import searched
from ..run_reader import Run, rows_of
from .html import page, paragraph, pictures, section
from .run_page import closing, figures_table, repeat, sentence
from .tables import Table

FIXED = ("trial", "state", "rounds", "seconds", "value", "folder")
"""Columns of ``search.csv`` that are no searched keys."""


def search_page(folder: Path) -> str:
    """The whole page of a search's folder."""
    trials = list(rows_of(folder / "search.csv"))
    keys = [column for column in (trials[0] if trials else {}) if column not in FIXED]
    best = Run.read(folder / "best") if (folder / "best" / "config.json").exists() else None
    by = best.by if best else "value"
    header = ["trial", "state", *keys, "value", "rounds", "seconds"]
    rows = [[_rounded(trial.get(name, "")) for name in header] for trial in trials]
    table = Table([by if name == "value" else name for name in header], rows, words=2)
    values = [float(trial["value"]) if trial.get("value") else None for trial in trials]
    told = [value for value in values if value is not None]
    tops = [(max if by == "accuracy" else min)(told)] if told else []
    lead = [paragraph(f"{len(trials)} trials, {len(told)} of them with a value.")]
    if best:
        lead.append(paragraph(f"The best once more, with its test figure: {sentence(best)}"))
    drawn = {f"{by.capitalize()} by {key}": searched(trials, key, by) for key in keys}
    return page(
        f"Search of {', '.join(keys)}{f' on {best.dataset}' if best else ''}",
        "".join(lead),
        [
            section("The best", figures_table(best).html() if best else "", *(repeat(best) if best else ())),
            section("What was searched", _searched(folder)),
            section("By each key", pictures(drawn)),
            section("Trials", table.html([i for i, value in enumerate(values) if value in tops])),
            *closing([best.config] if best else [], table),
        ],
    )


def _rounded(text: str) -> str:
    """A number with four significant digits; other words as they are."""
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def _searched(folder: Path) -> str:
    """The ranges and choices that ``search.json`` tells."""
    told: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        told = json.loads((folder / "search.json").read_text()).get("search", {})
    rows = [[key, str(value)] for key, value in told.items()]
    return Table(["key", "searched"], rows, words=2).html() if rows else ""
