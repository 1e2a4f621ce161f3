"""All metrics of several runs side by side, and the main one by site, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev

from fedbn_flower.clients.problems.surfaces import CASE_DICE, HD95

from ...records.metrics import PERCENT, decimals, heading, percent, shown, spelt
from ...records.summary import OfClient
from ...results.report.runs_by_seed import Group, headline
from ...results.report.sections.client_tables import MAX_LISTED
from ...results.report.sections.intervals import Intervals, with_interval
from ...results.report.tables import Table
from ...results.run_reader import Run
from ...results.summary import GLOBAL, LEFT_OUT, NON_METRICS, POOLED, metrics_by_group
from ..comparisons.same_cases import difference_of

MOST_GROUPS, MOST_METRICS, MOST_DIFFERENCES = 6, 40, 12
DEVIATION = "Mean ± sample standard deviation (n - 1) over the seeds."
INTERVALS = "In brackets: 95 % intervals, of single runs; they do not cover how training varies over seeds."


def side_by_side(groups: Sequence[Group], metric: str) -> dict[str, Table]:
    """Return the tables by their headings: the metric by site, and all metrics; none of many groups."""
    complete = [Group(group.names, [run for run in group.runs if run.summary.rounds]) for group in groups]
    if not 1 < len(complete) <= MOST_GROUPS or not all(group.runs for group in complete):
        return {}
    column, _ = headline(complete, metric)
    by_case = [CASE_DICE] if all(run.summary.by_case for group in complete for run in group.runs) else []
    found = {
        **{f"{heading(name)} by site": _by_site(complete, name, column) for name in (metric, *by_case)},
        f"All metrics, {column}": _of_all_metrics(complete, column),
    }
    return {name: table for name, table in found.items() if len(table.rows) > 1}


def _by_site(groups: Sequence[Group], metric: str, column: str) -> Table:
    """Return a row for each site, and one for all, with a column for each group."""
    every = [run for group in groups for run in group.runs]
    sites = list(dict.fromkeys(site for run in every for site in _sites(run)))
    sites = sites if len(sites) <= MAX_LISTED else []
    digits = decimals(metric, (_whole(run, column).get(metric) for run in every))
    rows = [[site, *(_cell(group.runs, metric, site, column, digits) for group in groups)] for site in sites]
    if rows:
        rows.append([column, *(_cell(group.runs, metric, "", column, digits) for group in groups)])
    return _table("site", groups, rows)


def _of_all_metrics(groups: Sequence[Group], column: str) -> Table:
    """Return a row for each metric that all runs have, with a column for each group."""
    every = [run for group in groups for run in group.runs]
    metrics = [
        name
        for name in _whole(every[0], column)
        if name not in NON_METRICS and all(_whole(run, column).get(name) is not None for run in every)
    ]
    rows = []
    for number, name in enumerate(metrics[:MOST_METRICS]):
        digits = decimals(name, (_whole(run, column).get(name) for run in every))
        cells = (_cell(group.runs, name, "", column, digits) for group in groups)
        difference = _difference(every, name, column, digits) if number < MOST_DIFFERENCES else ""
        rows.append([spelt(name), *cells, difference])
    if not any(row[-1] for row in rows):
        rows = [row[:-1] for row in rows]
    table = _table("metric", groups, rows)
    return replace(table, note=f"{table.note} {_without_hd95(groups)}".strip())


def _without_hd95(groups: Sequence[Group]) -> str:
    """Return of how many cases HD95 is undefined, as of those of which nothing was found; "" if of none."""
    left_out = [
        (run.summary.by_case or {}).get("left-out", {}).values() for group in groups for run in group.runs[:1]
    ]
    counts = [sum(of_site.get(HD95, 0) for of_site in sites) for sites in left_out]
    if not any(counts):
        return ""
    words = (f"{group.label} {count}" for group, count in zip(groups, counts, strict=True))
    return f"HD95 leaves out cases in which a mask is empty: {', '.join(words)}."


def _difference(runs: Sequence[Run], metric: str, column: str, digits: int) -> str:
    """Return the second of two runs' metric less the first's, with its interval; empty if not known."""
    if len(runs) != 2 or column == GLOBAL:
        return ""
    first, second = (float(_whole(run, column)[metric] or 0) for run in runs)
    found = difference_of(runs[0], runs[1], metric, (first, second))
    if found is None:
        return ""
    value, low, high = (f"{percent(metric) * end:+.{digits}f}" for end in found[:3])
    return f"{value}{' points' if metric in PERCENT else ''} ({low} to {high})"


def _table(first: str, groups: Sequence[Group], rows: Sequence[Sequence[str]]) -> Table:
    header = [first, *(group.label for group in groups)]
    if rows and len(rows[0]) > len(header):
        header.append(f"{groups[1].label} less {groups[0].label}")
    text = " ".join(cell for row in rows for cell in row[1:])
    notes = [note for sign, note in ((" to ", INTERVALS), ("±", DEVIATION)) if sign in text]
    return Table(header, rows, note=" ".join(notes))


def _cell(runs: Sequence[Run], metric: str, site: str, column: str, digits: int) -> str:
    """Return a metric of a site, or of all without one: with its interval, or with its deviation."""
    found = [
        (float(value), run)
        for run in runs
        if (value := (_sites(run).get(site, {}) if site else _whole(run, column)).get(metric)) is not None
    ]
    if not found:
        return ""
    values = [value for value, _ in found]
    text = shown(metric, mean(values), digits)
    if len(values) == 1:
        return with_interval(metric, text, _ends(found[0][1], site, column).get(metric), digits)
    return f"{text} ± {shown(metric, stdev(values), digits)}"


def _sites(run: Run) -> dict[str, OfClient]:
    by_case = (run.summary.by_case or {}).get("clients", {})
    sites = {str(client.get("name", number)): client for number, client in run.summary.clients.items()}
    return {site: {**metrics, **by_case.get(site, {})} for site, metrics in sites.items()}


def _whole(run: Run, column: str) -> OfClient:
    by_case = (run.summary.by_case or {}).get("pooled", {}) if column == POOLED else {}
    return {**metrics_by_group(run.summary).get(column, {}), **by_case}


def _ends(run: Run, site: str, column: str) -> Mapping[str, list[float | None]]:
    intervals = Intervals.of(run, new=column == LEFT_OUT and not site)
    if intervals is None:
        return {}
    if site:
        return intervals.clients.get(site, {})
    return {} if column == GLOBAL else intervals.pooled
