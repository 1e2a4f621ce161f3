"""``compare``: the tables and the page that compare the folders of runs, sweeps and searches."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

from rich.console import Console

from fedbn_flower.clients.problems.surfaces import CASE_DICE, HD95

from ..cli.argument_parser import Parser
from ..core.errors import UserError, not_allowed, os_errors_as_user_errors
from ..core.files import write_atomically
from ..core.stored import APP, RUN, SEARCH, SWEEP, checked_kind, damage_as_user_errors
from ..core.text import joined
from ..data.sources import MADE
from ..records.metrics import PERCENT, decimals, heading, percent, shown, spelt
from ..records.summary import OfClient, Summary
from ..results.composition import privacy_of_runs
from ..results.held_out import CASES, compared_cases_table, counts_worth_a_table
from ..results.plotting.plots import save_figure
from ..results.rare_event import main_first
from ..results.report.html import page, paragraph, section, without_folders
from ..results.report.runs_by_seed import (
    FOLDER,
    SEED,
    Group,
    Sweep,
    common_metric,
    headline,
    led_groups,
    legend,
    metrics_table,
)
from ..results.report.sections.client_tables import MAX_LISTED
from ..results.report.sections.closing import for_a_paper, size
from ..results.report.sections.intervals import Intervals, with_interval
from ..results.report.sections.results import counts_by_site, means, with_note
from ..results.report.sweep_page import LINES, curves, curves_figure, metric_by_round
from ..results.report.tables import Table
from ..results.run_directory import default_run_folder, prepare_run_folder
from ..results.run_reader import EVERY_RUN, Run, compared
from ..results.summary import GLOBAL, LEFT_OUT, NON_METRICS, POOLED, metrics_by_group
from .comparisons.best_cells import Verdict, difference_of
from .comparisons.gain import Gain, gain_section, gain_table, gains_of
from .comparisons.over_blocks import Ranking, ranking
from .statistics.paired import NAN, Difference
from .sweeps import RANKS, best_groups, pairs_table, rank_figure, rank_sections, rows

if TYPE_CHECKING:
    from pandas import DataFrame


def compare(arguments: Sequence[str]) -> int:
    """Run ``compare DIR DIR ... [--metric NAME] [--pairs] [--to DIR]``: print tables, and write a page."""
    parser = Parser("fedbn-sim compare", description="Compare runs, sweeps and searches.")
    parser.add_argument("folders", metavar="DIR", nargs="+", type=Path)
    parser.add_argument(
        "--to", metavar="DIR", type=Path, help="new folder for the page [a new one under runs/]"
    )
    parser.add_argument("--metric", metavar="NAME", default="", help="[the main metric that all runs have]")
    parser.add_argument("--pairs", action="store_true", help="a table of the differences of all pairs, too")
    options = parser.parse_args(arguments)
    with damage_as_user_errors("compare", ", ".join(map(str, options.folders))):
        return _compare(options)


@dataclass(frozen=True)
class Compared:
    """Groups of runs, and what is said of them: on the console, in ``compare.md`` and in the page."""

    groups: Sequence[Group]
    metric: str
    warning: str
    """Why their metrics cannot be compared; empty if they can."""
    table: Table
    pairs: Table | None
    beside: Mapping[str, Table]
    gains: Sequence[Gain]
    ranks: Ranking | None
    held_out: Table | None
    differences: Table
    costs: Table
    together: Sequence[str]
    """What the private runs on the same data come to together."""

    @classmethod
    def of(cls, groups: Sequence[Group], metric: str, all_pairs: bool = False) -> Compared:
        """Compare groups of runs; of runs on different data, no metrics."""
        warning, runs = data_warning(groups), [run for group in groups for run in group.runs]
        if warning and all_pairs:
            raise UserError(f"pairs: {warning}")
        told = Verdict() if warning else best_groups(groups, metric)
        return cls(
            groups,
            metric,
            warning,
            metrics_table(groups, metric, told=told),
            pairs_table(groups, metric, told) if all_pairs else None,
            {} if warning else side_by_side(groups, metric),
            [] if warning else gains_of(groups, metric),
            ranking(rows(groups), metric),
            None if warning else compared_cases_table(runs),
            differences(groups),
            costs(groups),
            privacy_of_runs([run for group in groups for run in group.with_privacy]),
        )

    @property
    def tables(self) -> dict[str, Table]:
        """The tables by their titles."""
        gained = f"gain over training alone, {spelt(self.metric)}"
        found = {
            legend(self.groups, self.metric)[:-1]: self.table,
            "all pairs": self.pairs,
            **self.beside,
            gained: gain_table(self.gains) if self.gains else None,
            **({self.ranks.title: self.ranks.table()} if self.ranks else {}),
            f"{CASES} by site": self.held_out,
            "differences": self.differences if self.differences.rows else None,
            "costs": self.costs,
        }
        return {title: table for title, table in found.items() if table}

    def page(self) -> str:
        """Return the page, without curves of runs whose metrics cannot be compared."""
        groups, table, different = self.groups, self.table, self.differences
        runs = [run for group in groups for run in group.runs]
        told = paragraph(table.note) if table.note else ""
        explanation = f"{legend(groups, self.metric)} {means(runs)}"
        notes = [paragraph(line, "note") for line in (self.warning, explanation, *self.together) if line]
        counts = [] if self.warning else counts_worth_a_table(runs)
        first = bool(self.warning)  # stands above the table
        names = list(dict.fromkeys(group.names[FOLDER] for group in groups))
        further = (self.pairs, *self.beside.values(), self.ranks and self.ranks.table())
        in_paper = replace(table, note=f"{table.note} {explanation}".strip())
        cited = for_a_paper([run.config for run in runs], in_paper, *(one for one in further if one), *counts)
        return page(
            f"Comparison of {joined(names)}",
            paragraph(in_common(groups)),
            [
                section("Results", *notes[:first], table.html(), told, *notes[first:]),
                section("All pairs", *_noted(self.pairs)),
                *(section(name, *_noted(found)) for name, found in self.beside.items()),
                section("Differences", different.html() if different.rows else paragraph(NOTHING)),
                section("Gain over training alone", *gain_section(self.gains)),
                *rank_sections(self.ranks),
                section(f"{CASES.capitalize()} by site", *counts_by_site(runs, self.held_out)),
                section("Costs", self.costs.html()),
                "" if self.warning else section("Metrics by round", curves(groups, self.metric)),
                section("For a paper", *cited),
            ],
        )


def _noted(table: Table | None) -> Iterator[str]:
    return with_note(table) if table else iter(())


def _compare(options: argparse.Namespace) -> int:
    groups = read_groups(options.folders)
    if len(groups) < 2:
        one = "one run" if groups[0].names.keys() == {FOLDER} else "one cell of a sweep"
        raise UserError(f"compare: {str(options.folders[0])!r} is {one}; expected at least two")
    found = Compared.of(groups, common_metric(groups, options.metric), options.pairs)
    lines = [line for line in (found.warning, in_common(groups), *found.together) if line]
    if options.to is None:
        folder = default_run_folder()
    else:
        prepare_run_folder(folder := options.to, "to")
    with os_errors_as_user_errors("to", f"write to {str(folder)!r}"):
        write_atomically(folder / "compare.html", found.page())
        text = [f"## {title}\n\n{table.markdown()}" for title, table in found.tables.items()]
        write_atomically(folder / "compare.md", "\n".join([*text, *(f"{line}\n" for line in lines)]))
        if not found.warning:
            by_round = metric_by_round(groups, found.metric)
            save_figure(curves_figure(groups[:LINES], by_round), folder / "compare.png")
        if figure := rank_figure(found.ranks):
            save_figure(figure, folder / RANKS)
    console = Console(emoji=False)
    for title, table in found.tables.items():
        table.show(console, title)
    print(*lines, f"the page is {folder / 'compare.html'}", sep="\n")
    return 0


def of_two(this: Path, other: Path) -> DataFrame:
    """Return the metrics of two runs, the main one first, and the other's less this one's.

    Columns are ``this``, ``other``, ``difference``, the ends of its 95 % interval ``low`` and ``high``, and
    ``p``; the last three are NaN where there is no test.

    Raises
    ------
    UserError
        When a folder is not that of a run with results, or the runs differ in data or have no common metric.
    """
    from pandas import DataFrame

    for folder in (this, other):
        checked_kind(folder, "compare", *EVERY_RUN)
    groups = read_groups([this, other])
    runs = [group.runs[0] for group in groups]
    if without := [run.folder for run in runs if not run.summary.rounds]:
        raise UserError(f"compare: {str(without[0])!r} has no results yet")
    if warning := data_warning(groups):
        raise UserError(f"compare: {warning}")
    main = common_metric(groups)
    column, _ = headline(groups, main)
    found = {}
    for name in main_first(runs[0].summary, main, _common_metrics(runs, column)):
        first, second = (float(_whole(run, column)[name] or 0) for run in runs)
        tested = _tested(runs, name, column) or Difference(second - first, NAN, NAN, NAN)
        found[name] = [first, second, *tested]
    if not found:
        raise UserError("compare: the runs have no common metric")
    columns = ["this", "other", "difference", "low", "high", "p"]
    return DataFrame.from_dict(found, orient="index", columns=columns).rename_axis("metric")


NOTHING = "The runs have the same settings, seeds and data."
COSTS: dict[str, Callable[[Summary], float | None]] = {
    "rounds": lambda summary: summary.rounds,
    "seconds": lambda summary: summary.seconds,
    "seconds per round": lambda summary: summary.seconds_per_round,
    "failures": lambda summary: summary.failures,
    "sent": lambda summary: summary.bytes_sent,
    "received": lambda summary: summary.bytes_received,
}
"""The columns of the table of costs."""
IN_BYTES = ("sent", "received")
SAID = ("strategy", "client", "objective", "model", "rounds", "seed")


def read_groups(folders: Sequence[Path]) -> list[Group]:
    """Read the folders: a run is one group, a sweep one group per cell, a search its best run.

    Their runs are led by a rare event, or none is; see `led_groups`.

    Raises
    ------
    UserError
        When a folder is not of a run, a sweep of which a run has ended, a search or a Flower app's run.
    """
    found = []
    for folder in folders:
        name = _names(folders)[folder]
        kind = checked_kind(folder, "compare", RUN, SWEEP, SEARCH, APP)
        if kind == SWEEP:
            groups = Sweep.read(folder, "compare").as_read
            kept = [replace(g, names={FOLDER: name, **g.names}) for g in groups if g.runs]
            if not kept:
                raise not_allowed("compare", str(folder), "a sweep of which a run has ended")
            lost = [run for group in groups if not group.runs for run in group.failed]
            found += [replace(kept[0], failed=[*kept[0].failed, *lost]), *kept[1:]]
        else:
            run = Run.read(folder / "best" if kind == SEARCH else folder, "compare", EVERY_RUN)
            found.append(Group({FOLDER: name}, [run]))
    return led_groups(found)


def _names(folders: Sequence[Path]) -> dict[Path, str]:
    """Return each folder's label: its last name, or the whole path if another has the same name."""
    names = [folder.resolve().name for folder in folders]
    return {f: n if names.count(n) == 1 else str(f) for f, n in zip(folders, names, strict=True)}


def differences(groups: Sequence[Group]) -> Table:
    """Return the keys, versions and data in which the groups differ, and the seeds: a column per group."""
    configs = [{**compared(group.runs[0]), SEED: _seeds(group)} for group in groups]
    every = dict.fromkeys(key for config in configs for key in config)
    keys = [key for key in every if len({config.get(key, "") for config in configs}) > 1]
    header = ["key", *(group.label for group in groups)]
    rows = [[key, *(config.get(key, "") for config in configs)] for key in keys]
    return Table(header, rows, words=len(header))


def _seeds(group: Group) -> str:
    return ", ".join(dict.fromkeys(str(run.config.get(SEED)) for run in group.runs))


def data_warning(groups: Sequence[Group]) -> str:
    """Return a warning if the groups' runs use different examples, else an empty string.

    Data that the seed draws differ between seeds.
    """
    runs = [run.config for group in groups for run in group.runs]
    drawn: dict[object, set[object]] = {}
    for config in runs:
        seed = config.get("seed") if str(config.get("dataset")).startswith(tuple(MADE)) else None
        drawn.setdefault(seed, set()).update({config.get("data")} - {None})
    datasets = {config.get("dataset") for config in runs}
    digests = {config.get("data") or config.get("dataset") for config in runs}
    same = all(len(found) < 2 for found in drawn.values())
    if same and (len(digests) == 1 or len(datasets) == 1):
        return ""
    names = list(dict.fromkeys(run.dataset for group in groups for run in group.runs))
    data = ", ".join(names) if len(names) > 1 else f"{names[0]} with different examples"
    return f"The runs use different data ({data}), so their metrics cannot be compared."


def costs(groups: Sequence[Group]) -> Table:
    """Return the costs of each group: means over the runs that recorded them."""

    def cost(group: Group, name: str) -> str:
        summaries = (run.summary for run in group.runs if run.summary.rounds)
        values = [value for summary in summaries if (value := COSTS[name](summary)) is not None]
        value = sum(values) / len(values) if values else None
        return "" if value is None else size(value) if name in IN_BYTES else f"{value:.4g}"

    lines = [[group.label, *(cost(group, name) for name in COSTS)] for group in groups]
    return Table(["", *COSTS], lines)


def in_common(groups: Sequence[Group]) -> str:
    """Return what all runs have in common, in words: data, partition, clients, algorithms, rounds, seed."""
    runs = [run for group in groups for run in group.runs]
    told = [
        (*run.where, *(f"{key} {without_folders(str(run.config[key]))}" for key in SAID if key in run.config))
        for run in runs
    ]
    same = [words for words in told[0] if all(words in others for others in told)]
    return f"All {', '.join(same)}." if same else ""


MOST_GROUPS, MOST_METRICS, MOST_DIFFERENCES = 6, 40, 12
DEVIATION = "Mean ± sample standard deviation (n - 1) over the seeds."
INTERVALS = "In brackets: 95 % intervals, of single runs; they do not cover how training varies over seeds."


def side_by_side(groups: Sequence[Group], metric: str) -> dict[str, Table]:
    """Return the tables by their headings: the metric by site, and all metrics; none of many groups."""
    complete = [replace(group, runs=[run for run in group.runs if run.summary.rounds]) for group in groups]
    if not 1 < len(complete) <= MOST_GROUPS or not all(group.runs for group in complete):
        return {}
    column, _ = headline(complete, metric)
    by_case = [CASE_DICE] if all(run.summary.by_case for group in complete for run in group.runs) else []
    found = {
        **{f"{heading(name)} by site": _by_site(complete, name, column) for name in (metric, *by_case)},
        f"All metrics, {column}": _of_all_metrics(complete, metric, column),
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


def _of_all_metrics(groups: Sequence[Group], metric: str, column: str) -> Table:
    """Return a row for each metric that all runs have, the main one first, with a column for each group."""
    every = [run for group in groups for run in group.runs]
    rows = []
    names = main_first(every[0].summary, metric, _common_metrics(every, column))
    for number, name in enumerate(names[:MOST_METRICS]):
        digits = decimals(name, (_whole(run, column).get(name) for run in every))
        cells = (_cell(group.runs, name, "", column, digits) for group in groups)
        difference = _difference(every, name, column, digits) if number < MOST_DIFFERENCES else ""
        rows.append([spelt(name), *cells, difference])
    if not any(row[-1] for row in rows):
        rows = [row[:-1] for row in rows]
    table = _table("metric", groups, rows)
    return replace(table, note=f"{table.note} {_without_hd95(groups)}".strip())


def _common_metrics(runs: Sequence[Run], column: str) -> list[str]:
    return [
        name
        for name in _whole(runs[0], column)
        if name not in NON_METRICS and all(_whole(run, column).get(name) is not None for run in runs)
    ]


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
    found = _tested(runs, metric, column)
    if found is None:
        return ""
    value, low, high = (f"{percent(metric) * end:+.{digits}f}" for end in found[:3])
    return f"{value}{' points' if metric in PERCENT else ''} ({low} to {high})"


def _tested(runs: Sequence[Run], metric: str, column: str) -> Difference | None:
    if len(runs) != 2 or column == GLOBAL:
        return None
    first, second = (float(_whole(run, column)[metric] or 0) for run in runs)
    return difference_of(runs[0], runs[1], metric, (first, second))


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
