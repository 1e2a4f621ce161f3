"""Metrics of subgroups of a run's held-out cases: in ``summary.json``, as ``subgroups.csv`` and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbn_flower.clients import Problem
from fedbn_flower.clients.problems.metrics.base import CLASSES

from ..core.files import csv_text, json_text, write_atomically
from ..core.stored import json_object
from ..core.text import listed, number_of
from ..records.cases import GROUP, ID, SCORE, SITE, SUBGROUP, TARGET, predictions_of, written_columns
from ..records.metrics import percent, shown, spelt
from ..records.summary import SUMMARY_FILE
from ..results.held_out import CASES, EVENTS, events_column
from ..results.report.html import folded, paragraph
from ..results.report.sections.intervals import with_interval
from ..results.report.tables import Table
from ..results.run_reader import Run
from .intervals import measured, without_intervals
from .statistics.intervals import DRAWS, LEVEL
from .statistics.subgroups import (
    FEWEST_CASES,
    FEWEST_EVENTS,
    Subgroup,
    gap,
    level_of_pairs,
    pairs_of,
    subgroups,
    worst,
)

if TYPE_CHECKING:
    from pandas import DataFrame

KEY, NOTE = "subgroups", "note"
"""The key in ``summary.json``, and in it that of a sentence that says what is not known."""
SUBGROUPS_FILE = "subgroups.csv"
UNKNOWN = "no value"
"""The name of the subgroup of the cases whose value is missing."""
FEWEST_DRAWS = 200
"""With several attributes there are fewer draws for each, but not fewer than so many."""
SHARED = "All clients have the same cases: the values are over the predictions of all of them."
MOST_NAMED = 10


def write_subgroups(folder: Path, problem: Problem, seed: int) -> None:
    """Add the subgroups to a run's ``summary.json``, and write their table, if its cases have any."""
    path = folder / SUMMARY_FILE
    if not path.exists() or not _attributes(written_columns(folder)):
        return
    if (cases := predictions_of(folder, TARGET)) is None:
        return
    summary = json_object(path)
    found = subgroups_of(cases, summary, problem, seed)
    summary[KEY] = found
    write_atomically(path, json_text(summary, indent=2) + "\n")
    header, rows = table_of(found)
    write_atomically(folder / SUBGROUPS_FILE, csv_text(header, rows))


def _attributes(columns: Iterable[str]) -> list[str]:
    return [name.removeprefix(SUBGROUP) for name in columns if name.startswith(SUBGROUP)]


def subgroups_of(table: DataFrame, summary: Mapping[str, Any], problem: Problem, seed: int) -> dict[str, Any]:
    """Return what is known of the subgroups of a run's held-out cases.

    ``by`` has the subgroups of each attribute, ``worst`` the one with the worst main metric, ``differences``
    the largest difference of each metric between two subgroups of an attribute.

    Parameters
    ----------
    table : DataFrame
        ``predictions.parquet``, with a column `SUBGROUP` for each attribute.
    summary : Mapping
        ``summary.json``; metrics that the cases do not give are left out, as in `intervals.intervals_of`.
    problem : Problem
        The run's, with its metrics.
    seed : int
        Of the draws.
    """
    attributes = _attributes(table.columns)
    found = measured(table, summary, problem)
    if found is None:
        return {"by": {}, "differences": {}}
    cases, shared, too_long = found.table, found.shared, found.too_long
    metrics = {name: metric for name, metric in found.metrics.items() if metric.has_interval}
    draws, without = max(FEWEST_DRAWS, DRAWS // len(attributes)), without_intervals(found, summary, problem)
    cases = _of_one_site(cases) if shared else cases
    binary = problem.predicts == CLASSES and SCORE in cases.columns
    every: dict[str, list[Subgroup]] = {}
    differences: dict[str, dict[str, Any]] = {}
    for attribute in attributes:
        words = cases[f"{SUBGROUP}{attribute}"]
        every[attribute] = of = subgroups(cases, words, metrics, binary, seed, LEVEL, draws, without)
        if pairs_of(of) > 1:
            of = subgroups(cases, words, metrics, binary, seed, level_of_pairs(of), draws, without)
        differences[attribute] = dict(_differences(of, [*metrics, *without]))
    notes = [SHARED] if shared else []
    notes += [sentence] if (sentence := _not_known(every)) else []
    if too_long:
        notes.append(f"No intervals of {', '.join(too_long)}: with {len(cases):,} cases they take too long.")
    return {
        "by": {attribute: [_as_json(one, shared) for one in of] for attribute, of in every.items()},
        **_worst(every, problem, [*metrics, *without]),
        "differences": {attribute: of for attribute, of in differences.items() if of},
        **({NOTE: " ".join(notes)} if notes else {}),
    }


def _of_one_site(cases: DataFrame) -> DataFrame:
    """Return the predictions of all clients of the same cases: those of a case are in one group."""
    groups = cases[GROUP].where(cases[GROUP].notna(), cases[ID].astype(str))
    return cases.assign(**{SITE: "", GROUP: groups})


def _differences(of: Sequence[Subgroup], metrics: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for metric in metrics:
        if found := gap(of, metric):
            pair = {"higher": found.higher, "lower": found.lower, "difference": found.difference}
            yield metric, {**pair, "interval": _ends(found.low, found.high), "pairs": found.pairs}


def _worst(
    every: Mapping[str, Sequence[Subgroup]], problem: Problem, metrics: Sequence[str]
) -> dict[str, Any]:
    metric = problem.compared_by if problem.compared_by in metrics else next(iter(metrics), "")
    found = worst(every, metric, metric in problem.higher_is_better)
    if found is None:
        return {}
    attribute, one = found
    interval = one.metrics[metric]
    of = sum(one.is_compared for several in every.values() for one in several)
    which = {"by": attribute, "subgroup": one.name, "metric": metric, "value": interval.value}
    return {"worst": {**which, "interval": _ends(interval.low, interval.high), "of": of}}


def _ends(low: float, high: float) -> list[float | None]:
    return [None if math.isnan(end) else end for end in (low, high)]


def _as_json(one: Subgroup, shared: bool) -> dict[str, Any]:
    known = {name: of for name, of in one.metrics.items() if not math.isnan(of.value)}
    return {
        "subgroup": one.name or None,
        "cases": one.cases,
        **({} if one.events is None else {"events": one.events}),
        "metrics": {name: of.value for name, of in known.items()},
        "intervals": {name: _ends(of.low, of.high) for name, of in known.items()},
        **({} if shared else {"clients": {site: _as_json(part, shared) for site, part in one.sites.items()}}),
    }


def _not_known(every: Mapping[str, Sequence[Subgroup]]) -> str:
    """Return which subgroups are too small, in words."""
    few = [
        f"{attribute}: {one.name or UNKNOWN} ({_counts(one)})"
        for attribute, of in every.items()
        for one in of
        if not one.is_large_enough
    ]
    if not few:
        return ""
    needed = f"it takes {FEWEST_CASES} cases"
    if any(one.events is not None for of in every.values() for one in of):
        needed += f" and {FEWEST_EVENTS} of each outcome"
    return f"How good the model is cannot be known of {listed(few, MOST_NAMED)}: {needed}."


def _counts(one: Subgroup) -> str:
    cases = number_of(one.cases, "case")
    return cases if one.events is None else f"{cases}, {number_of(one.events, 'event')}"


def table_of(found: Mapping[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return header and rows of ``subgroups.csv``: each subgroup, without a site of all of them."""
    rows: list[dict[str, Any]] = []
    for attribute, of in found["by"].items():
        for one in of:
            for site, part in (("", one), *one.get("clients", {}).items()):
                row = {"by": attribute, "subgroup": part["subgroup"] or "", "site": site}
                row |= {key: part[key] for key in ("cases", "events") if key in part}
                for name, value in part["metrics"].items():
                    low, high = part["intervals"][name]
                    row |= {name: value, f"{name}-low": low, f"{name}-high": high}
                rows.append(row)
    return list(dict.fromkeys(key for row in rows for key in row)), rows


WORDS = (
    "In brackets: 95 % intervals. A difference has one for all pairs of its attribute together. What "
    "subgroups differ in beside the attribute, such as the share of the outcome, may be why their "
    "metrics do (docs/fairness.md)."
)


def subgroups_section(run: Run) -> Iterator[str]:
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
