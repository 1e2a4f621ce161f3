"""The page of a sweep, and its figure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from math import inf, isinf, sqrt
from shlex import quote as quoted
from statistics import mean, variance
from typing import TYPE_CHECKING
from urllib.parse import quote

from ...core.stored import EXPERIMENT
from ...core.text import joined, number_of
from ...records.metrics import PERCENT, heading
from ..composition import privacy_of_runs
from ..held_out import CASES, compared_cases_table, counts_worth_a_table
from ..plotting.comparison_plots import by_site_plot
from ..plotting.report_plots import mean_curves
from ..run_reader import COSTS
from ..summary import LEFT_OUT, OVER_EXAMPLES
from .html import command, gallery, page, paragraph, section, shown_text, warning
from .runs_by_seed import Group, Sweep, common_metric, headline, legend, metrics_table, verdicts
from .sections.closing import for_a_paper, how_to_reproduce
from .sections.results import counts_by_site, means
from .tables import Table
from .unfinished import unfinished

if TYPE_CHECKING:
    from ..plotting.svg_figure import InlineFigure

NO_COLOURS = "With one seed, and no intervals, it is not known what is noise: nothing is coloured."
QUANTILE = 1.96  # of the normal distribution, for intervals of 95 %
CLIENT = "client "
MOST_SITES = 30
LINES = 18  # distinct lines of one figure
DARK, BRIGHT = (0, 68, 120), (253, 231, 120)  # RGB, ends of the heat table's scale


def sweep_page(sweep: Sweep) -> str:
    """Return the page."""
    metric = common_metric(sweep.groups)
    firsts = [next((run.folder.name for run in (*g.runs, *g.failed)), "") for g in sweep.groups]
    links = [f"{quote(name)}/report.html" if name else "" for name in firsts]
    runs = sweep.runs
    said = verdicts()(sweep.folder)
    told = said.compare(sweep.groups, metric, [run.dataset for run in runs])
    table = metrics_table(sweep.groups, metric, links, told)
    said_below, further = said.sections(sweep, metric)
    held_out = compared_cases_table([run for run in runs if run.summary.rounds])
    common = ", ".join(f"{key} {value}" for key, value in sweep.common.items())
    also = f", {number_of(len(sweep.failed), 'failed run')}" if sweep.failed else ""
    counts = f"{number_of(len(sweep.groups), 'cell')}, {number_of(len(runs), 'run')}{also}"
    lead = f"{counts}; all with {common}." if common else f"{counts}."
    datasets = {run.dataset for run in runs}
    where = f" on {datasets.pop()}" if len(datasets) == 1 else ""
    sites = {f"{heading(metric)} by site": by_site(sweep.groups, metric)}
    together = privacy_of_runs([run for group in sweep.groups for run in group.with_privacy])
    explained = f"{legend(sweep.groups, metric)} {means(runs)}"
    in_paper = replace(table, note=f"{table.note} {explained}".strip())
    failed = Table(["run", "error"], sweep.failed, words=2).html() if sweep.failed else ""
    what = f"Sweep over {joined([*sweep.groups[0].names])}{where}" if sweep.groups else "Sweep"
    titles = {str(run.config.get("title") or what) for group in sweep.groups for run in group.runs}
    return page(
        titles.pop() if len(titles) == 1 else what,
        paragraph(lead),
        [
            warning("Failed runs", failed),
            section(
                "Results",
                table.html(told.alike if told.known else ()),
                paragraph(table.note) if table.note else "",
                paragraph(explained, "note"),
                *(paragraph(line, "note") for line in (*unfinished(sweep.groups, metric), *together)),
            ),
            section("Heat map", heat_table(sweep.groups, metric)),
            section("By site", gallery(sites, wide=True)),
            *said_below,
            section("Metrics by round", curves(sweep.groups, metric)),
            section(f"{CASES.capitalize()} by site", *counts_by_site(runs, held_out)),
            section("Reproduce this sweep", *sweep_command(sweep)),
            section("One run of the sweep", *(how_to_reproduce(runs[0]) if runs else ())),
            section(
                "For a paper",
                *for_a_paper([run.config for run in runs], in_paper, *further, *counts_worth_a_table(runs)),
            ),
        ],
    )


def by_site(groups: Sequence[Group], metric: str) -> "InlineFigure | None":
    """Draw the metric of several methods at each site; None without sites, or of too many."""
    found = {
        group.label: {
            column.removeprefix(CLIENT): values
            for column, values in group.values(metric).items()
            if column.startswith(CLIENT)
        }
        for group in groups
    }
    sites = {site for of_group in found.values() for site in of_group}
    few = 1 < len(groups) <= LINES and 1 < len(sites) <= MOST_SITES
    return by_site_plot(found, metric) if few else None


def sweep_command(sweep: Sweep) -> Iterator[str]:
    """Yield the command of the whole sweep, if its folder has an experiment file."""
    path = sweep.folder / EXPERIMENT
    if path.exists():
        yield command(["fedbn-sim", "--experiment", quoted(str(path))])


def curves(groups: Sequence[Group], metric: str) -> str:
    """Return figures of the groups by round, each with at most `LINES` lines; see `metric_by_round`."""
    metric = metric_by_round(groups, metric)
    parts = [groups[i : i + LINES] for i in range(0, len(groups), LINES)]
    spent = [cost for cost in COSTS if any(cost in run.shown_costs for g in groups for run in g.runs)]
    figures = {}
    for number, part in enumerate(parts, start=1):
        of = f" ({number} of {len(parts)})" if len(parts) > 1 else ""
        figures[f"{heading(metric)} by round{of}"] = curves_figure(part, metric)
        for cost in spent:
            figures[f"{heading(metric)} by {cost}{of}"] = curves_figure(part, metric, cost=cost)
    return gallery(figures, wide=True) if any(run.metrics for g in groups for run in g.runs) else ""


def metric_by_round(groups: Sequence[Group], metric: str) -> str:
    """Return the metric of curves: the loss, where the one that is compared was measured at the end only."""
    _, column = headline(groups, metric)
    drawn = (group.lines(of) for group in groups for of in (column, metric))
    return metric if not column or any(drawn) else "loss"


def curves_figure(groups: Sequence[Group], metric: str, title: str = "", cost: str = "") -> "InlineFigure":
    """Draw the headline metric by round, or by one of `run_reader.COSTS`, one line per group."""
    name, column = headline(groups, metric)
    if name == LEFT_OUT and (drawn := verdicts().figure(groups, metric, title)):
        return drawn
    if column and not any(group.lines(column) for group in groups):  # counted at the end only
        name, column = OVER_EXAMPLES, metric
    labels = {"global": "global model", "pooled": "all held-out examples pooled"}
    label = labels.get(name, "mean over held-out examples")
    lines = {group.label: found for group in groups if (found := group.lines(column or metric, cost))}
    costs = {group.label: [run.costs(cost) for run in group.runs] for group in groups} if cost else None
    return mean_curves(lines, metric, title, costs, cost, label)


def heat_table(groups: Sequence[Group], metric: str) -> str:
    """Return the headline metric as a coloured table if exactly two keys are swept, else nothing.

    The scale is at least two deviations wide, over the seeds or, with one seed, the standard error of the
    cases: less is not shown as a difference. Where neither is known, nothing is coloured.
    """
    keys = list(groups[0].names) if groups else []
    if len(keys) != 2:
        return ""
    name, _ = headline(groups, metric)
    found = {tuple(g.names.values()): v for g in groups if (v := g.values(metric).get(name))}
    if not found:
        return ""
    values = {cell: mean(v) for cell, v in found.items()}
    rows, columns = (list(dict.fromkeys(g.names[key] for g in groups)) for key in keys)
    noise, of = noise_of(groups, list(found.values()), metric)
    low, high = colour_scale(values.values(), 2 * noise, metric)
    head = "".join(f"<th>{shown_text(column)}</th>" for column in columns)
    body = "".join(
        f"<tr><th>{shown_text(row)}</th>"
        + "".join(_cell(values.get((row, column)), low, high, metric) for column in columns)
        + "</tr>\n"
        for row in rows
    )
    width = f" The scale is at least {of} wide ({_shown(2 * noise, metric)})." if noise else ""
    words = f" {NO_COLOURS}" if isinf(noise) else width
    note = f"{legend([], metric)[:-1]}, {name}: {keys[0]} down, {keys[1]} across.{words}"
    colours = f'<i style="background: linear-gradient(to right, rgb{DARK}, rgb{BRIGHT})"></i>'
    ends = (f"<span>{_shown(value, metric)}</span>" for value in (low, high))
    scale = "" if isinf(noise) else f'<div class="scale">{colours.join(ends)}</div>\n'
    return (
        f'<div class="scroll"><table class="coloured"><thead><tr><th></th>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>\n{scale}{paragraph(note, 'note')}"
    )


def noise_of(groups: Sequence[Group], cells: Sequence[Sequence[float]], metric: str) -> tuple[float, str]:
    """Return the deviation of a cell by chance, and what two of it are called; infinite if it is not known.

    It is that over the seeds; with one seed, the greatest standard error that intervals of cases are of.
    """
    if any(len(values) > 1 for values in cells):
        return deviation_over_seeds(cells), "two deviations over the seeds"
    found = [(run.summary.left_out or run.summary).intervals or {} for group in groups for run in group.runs]
    ends = [of.get("pooled", {}).get(metric) for of in found]
    widths = [high - low for low, high in (e for e in ends if e and None not in e)]
    return (max(widths) / (2 * QUANTILE) if widths else inf), "two standard errors of the held-out cases"


def deviation_over_seeds(cells: Collection[Sequence[float]]) -> float:
    """Return the pooled deviation, ``sqrt(sum_c (n_c - 1) s_c^2 / sum_c (n_c - 1))``; 0 without seeds."""
    several = [values for values in cells if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several)
    return sqrt(sum((len(v) - 1) * variance(v) for v in several) / freedom) if freedom else 0.0


def colour_scale(values: Collection[float], width: float, metric: str) -> tuple[float, float]:
    """Return the ends of a scale: those of the values, further apart to either side if they are closer."""
    if isinf(width):
        return -inf, inf
    low, high = min(values), max(values)
    more = max(0.0, width - (high - low)) / 2
    low, high = low - more, high + more
    beyond = (
        max(0.0, high - 1) if metric in PERCENT and not isinf(high) else 0.0
    )  # no label says more than 100 %
    return low - beyond, high - beyond


def _cell(value: float | None, low: float, high: float, metric: str) -> str:
    if value is None:
        return "<td></td>"
    if isinf(low):
        return f"<td>{_shown(value, metric)}</td>"
    share = (value - low) / (high - low) if high > low else 0.5
    colour = tuple(round(d + share * (b - d)) for d, b in zip(DARK, BRIGHT, strict=True))
    ink = "#ffffff" if share < 0.45 else "#14171c"
    return f'<td style="background: rgb{colour}; color: {ink}">{_shown(value, metric)}</td>'


def _shown(value: float, metric: str) -> str:
    return f"{100 * value:.1f}" if metric in PERCENT else f"{value:.4g}"
