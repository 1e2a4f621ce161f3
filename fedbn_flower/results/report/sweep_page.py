"""The page of a sweep, and its picture."""

from collections.abc import Iterator, Sequence
from html import escape
from shlex import quote as quoted
from statistics import mean
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..manifest import EXPERIMENT
from ..plotting.report_plots import bands
from .groups import Group, Sweep, best_rows, common_figure, figures_table, headline, legend
from .html import command, page, paragraph, pictures, section, warning
from .run_page import MEANS, closing, repeat
from .tables import Table

if TYPE_CHECKING:
    from ..plotting.svg_figure import InlineFigure

LINES = 18  # that one picture can tell apart
DARK, BRIGHT = (0, 68, 120), (253, 231, 120)  # of the coloured table


def sweep_page(sweep: Sweep) -> str:
    """The whole page."""
    by = common_figure(sweep.groups)
    firsts = [group.runs[0].folder.name if group.runs else "" for group in sweep.groups]
    links = [f"{quote(name)}/report.html" if name else "" for name in firsts]
    table = figures_table(sweep.groups, by, links)
    runs = sweep.runs
    common = ", ".join(f"{key} {value}" for key, value in sweep.common.items())
    told = f"{len(sweep.groups)} cells, {len(runs)} runs" + (f"; all with {common}." if common else ".")
    datasets = {run.dataset for run in runs}
    what = f" on {datasets.pop()}" if len(datasets) == 1 else ""
    failed = Table(["cell", "what went wrong"], sweep.failed, words=2).html() if sweep.failed else ""
    return page(
        f"Sweep of {', '.join(sweep.groups[0].names)}{what}" if sweep.groups else "Sweep",
        paragraph(told),
        [
            warning("Cells that failed", failed),
            section(
                "Results",
                table.html(best_rows(sweep.groups, by)),
                paragraph(f"{legend(sweep.groups, by)} {MEANS}", "note"),
            ),
            section("Cell by cell", coloured(sweep.groups, by)),
            section("By round", curves(sweep.groups, by)),
            section("The same again", *again(sweep)),
            section("One of its runs", *(repeat(runs[0]) if runs else ())),
            *closing([run.config for run in runs], table),
        ],
    )


def again(sweep: Sweep) -> Iterator[str]:
    """The command of the whole sweep, if its folder has what it was made from."""
    path = sweep.folder / EXPERIMENT
    if path.exists():
        yield command(["fedbn-sim", "--experiment", quoted(str(path))])


def curves(groups: Sequence[Group], by: str) -> str:
    """The pictures of the groups by round, so many that the lines of each can be told apart."""
    parts = [groups[i : i + LINES] for i in range(0, len(groups), LINES)]
    drawn = {}
    for number, part in enumerate(parts, start=1):
        of = f" ({number} of {len(parts)})" if len(parts) > 1 else ""
        drawn[f"{by.capitalize()} by round{of}"] = curves_figure(part, by)
    return pictures(drawn, wide=True) if any(run.metrics for g in groups for run in g.runs) else ""


def curves_figure(groups: Sequence[Group], by: str, title: str = "") -> "InlineFigure":
    """The figure that stands for a run, by round, a line a group."""
    whose, column = headline(groups, by)
    what = "global model" if whose == "global" else "mean over held-out examples"
    lines = {group.label: told for group in groups if (told := group.lines(column))}
    return bands(lines, f"{by} ({what})", title)


def coloured(groups: Sequence[Group], by: str) -> str:
    """The figure that stands for a run as a coloured table, where two keys make the cells; else nothing."""
    keys = list(groups[0].names) if groups else []
    if len(keys) != 2:
        return ""
    whose, _ = headline(groups, by)
    values = {tuple(g.names.values()): mean(v) for g in groups if (v := g.values(by).get(whose))}
    if not values:
        return ""
    rows, columns = (list(dict.fromkeys(g.names[key] for g in groups)) for key in keys)
    low, high = min(values.values()), max(values.values())
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr><th>{escape(row)}</th>"
        + "".join(_cell(values.get((row, column)), low, high, by) for column in columns)
        + "</tr>\n"
        for row in rows
    )
    note = f"{legend([], by)[:-1]}, {whose}: {keys[0]} down, {keys[1]} across."
    scale = "".join(f"<span>{_shown(value, by)}</span>" for value in (low, high))
    colours = f"linear-gradient(to right, rgb{DARK}, rgb{BRIGHT})"
    scale = scale.replace("</span><span>", f'</span><i style="background: {colours}"></i><span>')
    return (
        f'<div class="scroll"><table class="coloured"><thead><tr><th></th>{head}</tr></thead>\n'
        f'<tbody>{body}</tbody></table></div>\n<div class="scale">{scale}</div>\n{paragraph(note, "note")}'
    )


def _cell(value: float | None, low: float, high: float, by: str) -> str:
    if value is None:
        return "<td></td>"
    share = (value - low) / (high - low) if high > low else 0.5
    colour = tuple(round(d + share * (b - d)) for d, b in zip(DARK, BRIGHT, strict=True))
    ink = "#ffffff" if share < 0.45 else "#14171c"
    return f'<td style="background: rgb{colour}; color: {ink}">{_shown(value, by)}</td>'


def _shown(value: float, by: str) -> str:
    return f"{100 * value:.1f}" if by == "accuracy" else f"{value:.4g}"
