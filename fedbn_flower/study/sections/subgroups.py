"""The subgroups of a run's held-out cases in its report: a table for each attribute, and words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...records.metrics import percent, shown, spelt
from ...results.held_out import CASES, EVENTS, events_column
from ...results.report.html import folded, paragraph
from ...results.report.sections.intervals import with_interval
from ...results.report.tables import Table
from ...results.run_reader import Run
from ..subgroups import NOTE, UNKNOWN

WORDS = (
    "In brackets: 95 % intervals. A difference has one for all pairs of its attribute together. What "
    "subgroups differ in beside the attribute, such as the share of the outcome, may be why their "
    "metrics do (docs/fairness.md)."
)


def subgroups(run: Run) -> Iterator[str]:
    """Yield the worst subgroup, a table for each attribute with each site's folded, and what is not known."""
    found = run.summary.subgroups
    if not found:
        return
    for line in in_words(found):
        yield paragraph(line)
    for attribute, of in found["by"].items():
        yield _table(f"by {attribute}", ((_name(one), one) for one in of), run.event).html()
        sites = [
            (f"{_name(one)}, {site}", part) for one in of for site, part in one.get("clients", {}).items()
        ]
        if sites:
            yield folded(f"By {attribute} at each site", _table("subgroup, site", sites, run.event).html())
    yield paragraph(" ".join([WORDS, found.get(NOTE, "")]).rstrip(), "note")


def in_words(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on the worst subgroup, and on the largest difference of each attribute."""
    worst = found.get("worst")
    if not worst:
        return
    metric = worst["metric"]
    value = with_interval(metric, shown(metric, worst["value"]), worst["interval"])
    of = f", the worst of {worst['of']}: it was picked by these cases, and looks worse than it is."
    of = of if worst["of"] > 1 else "."
    yield f"Worst subgroup: {_full(worst['by'], worst['subgroup'])}, {spelt(metric)} {value}{of}"
    for attribute, differences in found["differences"].items():
        if metric in differences:
            one = differences[metric]
            yield (
                f"Largest difference by {attribute}: {spelt(metric)} {_points(metric, one)}, "
                f"{one['higher']} over {one['lower']}."
            )


def _full(attribute: str, subgroup: str) -> str:
    """Return what a subgroup is called outside of the table of its attribute."""
    compares = any(sign in attribute for sign in ("<", ">", "=="))
    return subgroup if compares else f"{attribute} {subgroup}"


def _points(metric: str, one: Mapping[str, Any]) -> str:
    """Return a difference with its interval: ``5.1 points (2.6 to 8.2)`` of a metric in percent."""
    factor = percent(metric)
    ends = [one["difference"], *one["interval"]]
    value, low, high = ("" if end is None else _number(factor * end, factor) for end in ends)
    unit = " points" if factor == 100 else ""
    return f"{value}{unit} ({low} to {high})" if low and high else f"{value}{unit}"


def _number(value: float, factor: int) -> str:
    return f"{value:.1f}" if factor == 100 else f"{value:.4g}"


def _name(one: Mapping[str, Any]) -> str:
    return one["subgroup"] or UNKNOWN


def _table(first: str, rows: Iterable[tuple[str, Mapping[str, Any]]], event: str) -> Table:
    every, headings = list(rows), {"cases": CASES, EVENTS: events_column(event)}
    counts = [key for key in headings if any(key in one for _, one in every)]
    names = list(dict.fromkeys(name for _, one in every for name in one["metrics"]))
    cells = [
        [
            name,
            *(str(one[key]) for key in counts),
            *(
                with_interval(metric, shown(metric, one["metrics"].get(metric)), one["intervals"].get(metric))
                or "not known"
                for metric in names
            ),
        ]
        for name, one in every
    ]
    return Table([first, *(headings[key] for key in counts), *map(spelt, names)], cells)
