"""The metrics of subgroups of a run's held-out cases: in ``summary.json``, and as ``subgroups.csv``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbn_flower.clients import Problem
from fedbn_flower.clients.problems.metrics.base import CLASSES

from ..core.files import csv_text, json_text, write_atomically
from ..core.text import listed
from ..records.cases import GROUP, ID, SCORE, SITE, SUBGROUP, TARGET, predictions_of
from ..records.stored import json_object
from ..records.summary import SUMMARY_FILE
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
    cases = predictions_of(folder, TARGET) if path.exists() else None
    if cases is None or not _attributes(cases):
        return
    summary = json_object(path)
    found = subgroups_of(cases, summary, problem, seed)
    summary[KEY] = found
    write_atomically(path, json_text(summary, indent=2) + "\n")
    header, rows = table_of(found)
    write_atomically(folder / SUBGROUPS_FILE, csv_text(header, rows))


def _attributes(table: DataFrame) -> list[str]:
    return [name.removeprefix(SUBGROUP) for name in table.columns if name.startswith(SUBGROUP)]


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
    attributes = _attributes(table)
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
            ends = _ends(found.low, found.high)
            yield (
                metric,
                {
                    "higher": found.higher,
                    "lower": found.lower,
                    "difference": found.difference,
                    "interval": ends,
                    "pairs": found.pairs,
                },
            )


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
    return {
        "worst": {
            "by": attribute,
            "subgroup": one.name,
            "metric": metric,
            "value": interval.value,
            "interval": _ends(interval.low, interval.high),
            "of": of,
        }
    }


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
    counts = f"{one.cases} case{'' if one.cases == 1 else 's'}"
    return counts if one.events is None else f"{counts}, {one.events} event{'' if one.events == 1 else 's'}"


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
