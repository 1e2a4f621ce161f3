"""Masks case by case: Dice, surface Dice and HD95 of each site, and the best, median and worst cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedbn_flower.clients.problems.evaluation import ROWS
from fedbn_flower.clients.problems.surfaces import CASE_DICE, HD95, OF_A_KIND, SURFACE_DICE

from ..records.cases import DICE, IMAGE, PREDICTION, REFERENCE, overlays_of
from ..records.metrics import shown
from ..results.report.html import folded, gallery, paragraph
from ..results.report.sections.intervals import Intervals, below, with_interval
from ..results.report.tables import Table
from ..results.run_reader import Run
from .overlays import overlays

DECIMALS = {CASE_DICE: 3, SURFACE_DICE: 3, HD95: 2}
KINDS = ("best", "median", "worst")
WORDS = (
    "Each metric is of single cases: its mean over the cases of a site, over those of all sites, and over "
    "the sites. The surface Dice is the share of both surfaces that "
    "lies within {length} of the other; HD95 is the larger of the two directed 95th percentiles "
    "of the distances between them. Where one of the two masks is empty, Dice and surface Dice are 0 and "
    "HD95 is undefined; where both are, the case has none of the three."
)


def segmentation_by_case(run: Run) -> Iterator[str]:
    """Yield the tables of sites and of classes, what the metrics are, and each site's folded pictures."""
    tables = tables_by_case(run)
    for table, note in zip(tables, ("", "Of the cases of all sites."), strict=False):
        yield table.html()
        yield paragraph(note, "note") if note else ""
    if tables:
        yield paragraph(WORDS.format(length=_length(run.summary.by_case or {})), "note")
        yield from below(Intervals.of(run))
    yield from _pictures(run)


def tables_by_case(run: Run) -> list[Table]:
    """Return the metrics of single cases by site and, of several classes, by class; none of other runs."""
    found = run.summary.by_case
    if not found:
        return []
    ends = run.summary.intervals or {}
    rows = [
        _row(site, found, found["clients"].get(site, {}), ends.get("clients", {}).get(site, {}), [site])
        for site in found["cases"]
    ]
    sites = list(found["cases"])
    rows.append(_row("all sites pooled", found, found["pooled"], ends.get("pooled", {}), sites))
    rows.append(_row("mean over sites", found, found["mean"], ends.get("mean", {}), []))
    by_class = [
        _row(name, found, found["pooled"], ends.get("pooled", {}), sites, f"-{name}")
        for name in _classes(found)
    ]
    tables = (Table([first, *_header(found)], of) for first, of in (("site", rows), ("class", by_class)))
    return [table for table in tables if table.rows]


def _header(found: Mapping[str, Any]) -> list[str]:
    return [
        "cases",
        "Dice",
        f"surface Dice at {_length(found)}",
        f"HD95, {found['unit']}",
        "left out of Dice",
        "left out of HD95",
    ]


def _length(found: Mapping[str, Any]) -> str:
    """Return the tolerance with its unit."""
    tolerance, unit = found["tolerance"], found["unit"]
    return f"{tolerance:g} {unit.removesuffix('s') if tolerance == 1 else unit}"


def _row(
    name: str,
    found: Mapping[str, Any],
    values: Mapping[str, float],
    ends: Mapping[str, Any],
    sites: list[str],
    suffix: str = "",
) -> list[str]:
    """Return a row: the values, and of how many cases of these sites they are."""
    left_out = [found["left-out"].get(site, {}) for site in sites]
    counts = [f"{sum(of.get(kind + suffix, 0) for of in left_out):,}" for kind in (CASE_DICE, HD95)]
    cases = f"{sum(found['cases'][site] for site in sites):,}" if sites else ""
    texts = (
        with_interval(kind, shown(kind, values.get(kind + suffix), digits), ends.get(kind + suffix), digits)
        for kind, digits in DECIMALS.items()
    )
    return [name, cases, *texts, *(counts if sites else ["", ""])]


def _classes(found: Mapping[str, Any]) -> list[str]:
    start = f"{CASE_DICE}-"
    return [name.removeprefix(start) for name in found["pooled"] if name.startswith(start)]


def _pictures(run: Run) -> Iterator[str]:
    """Yield the pictures of each site, folded."""
    for partition, of in overlays_of(run.folder).items():
        count = len(of[DICE])
        if not count:
            continue
        several = count == len(KINDS) * OF_A_KIND
        places = (f"{KINDS[i // OF_A_KIND]}, " if several else "" for i in range(count))
        titles = [
            f"{place}case {row:,}: Dice {dice:.3f}"
            for place, row, dice in zip(places, of[ROWS].tolist(), of[DICE].tolist(), strict=True)
        ]
        name = run.client_names.get(partition, f"client {partition}")
        caption = f"{'Best, median and worst cases' if several else 'Cases'} of {name}, by Dice"
        figure = overlays(of[IMAGE], of[REFERENCE], of[PREDICTION], titles)
        yield folded(caption, gallery({caption: figure}, wide=True))
