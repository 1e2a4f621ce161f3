"""The page that compares runs: configurations, metrics, costs and curves."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ..records.stored import RUN, SEARCH, SWEEP, checked_kind
from ..records.summary import Summary
from ..results.composition import privacy_of_runs
from ..results.held_out import CASES, compared_cases_table
from ..results.report.html import page, paragraph, section, without_folders
from ..results.report.reference import compared
from ..results.report.runs_by_seed import FOLDER, Group, Sweep, legend, metrics_table
from ..results.report.sections.closing import for_a_paper
from ..results.report.sections.costs import size
from ..results.report.sections.results import means
from ..results.report.sweep_page import curves, with_note
from ..results.report.tables import Table
from ..results.run_reader import Run
from .comparisons.best_cells import Verdict
from .comparisons.gain import Gain
from .comparisons.over_blocks import ranking
from .sections.all_metrics import side_by_side
from .sections.gain import gain_section
from .sweeps import best_groups, rank_sections, rows

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

    Raises
    ------
    UserError
        When a folder is not of a run, a sweep or a search.
    """
    found = []
    for folder in folders:
        name = _names(folders)[folder]
        kind = checked_kind(folder, "compare", RUN, SWEEP, SEARCH)
        if kind == SWEEP:
            groups = Sweep.read(folder, "compare").groups
            found += [Group({FOLDER: name, **g.names}, g.runs) for g in groups if g.runs]
        else:
            run = Run.read(folder / "best" if kind == SEARCH else folder, "compare")
            found.append(Group({FOLDER: name}, [run]))
    return found


def _names(folders: Sequence[Path]) -> dict[Path, str]:
    """Return each folder's label: its last name, or the whole path if another has the same name."""
    names = [folder.resolve().name for folder in folders]
    return {f: n if names.count(n) == 1 else str(f) for f, n in zip(folders, names, strict=True)}


def differences(groups: Sequence[Group]) -> Table:
    """Return the keys, versions and data in which the groups differ: a row per key, a column per group."""
    configs = [compared(group.runs[0]) for group in groups]
    every = dict.fromkeys(key for config in configs for key in config)
    keys = [key for key in every if len({config.get(key, "") for config in configs}) > 1]
    header = ["key", *(group.label for group in groups)]
    rows = [[key, *(config.get(key, "") for config in configs)] for key in keys]
    return Table(header, rows, words=len(header))


def data_warning(groups: Sequence[Group]) -> str:
    """Return a warning if the groups' runs use different examples, else an empty string.

    Data that are drawn at random may differ between seeds.
    """
    runs = [run.config for group in groups for run in group.runs]
    by_seed: dict[object, set[object]] = {}
    for config in runs:
        by_seed.setdefault(config.get("seed"), set()).update({config.get("data")} - {None})
    datasets = {config.get("dataset") for config in runs}
    digests = {config.get("data") or config.get("dataset") for config in runs}
    same = all(len(found) < 2 for found in by_seed.values())
    if same and (len(digests) == 1 or len(datasets) == 1):
        return ""
    names = list(dict.fromkeys(run.dataset for group in groups for run in group.runs))
    data = ", ".join(names) if len(names) > 1 else f"{names[0]} with different examples"
    return f"The runs use different data ({data}), so their metrics cannot be compared."


def privacy_together(groups: Sequence[Group]) -> list[str]:
    """Return what the private runs on the same data come to together, a sentence for each."""
    return privacy_of_runs([run for group in groups for run in group.runs])


def costs(groups: Sequence[Group]) -> Table:
    """Return the costs of each group: means over the runs that recorded them."""
    lines = []
    for group in groups:
        summaries = [run.summary for run in group.runs if run.summary.rounds]
        row = [group.label]
        for name, cost_of in COSTS.items():
            values = [value for summary in summaries if (value := cost_of(summary)) is not None]
            mean = sum(values) / len(values) if values else None
            row.append("" if mean is None else size(mean) if name in IN_BYTES else f"{mean:.4g}")
        lines.append(row)
    return Table(["", *COSTS], lines)


def held_out_of(groups: Sequence[Group]) -> Table | None:
    """Return the held-out cases of each site; None of runs on different data, or that have not counted."""
    return (
        None
        if data_warning(groups)
        else compared_cases_table([run for group in groups for run in group.runs])
    )


def in_common(groups: Sequence[Group]) -> str:
    """Return what all runs have in common, in words: data, partition, clients, algorithms, rounds, seed."""
    runs = [run for group in groups for run in group.runs]
    told = [
        (*run.where, *(f"{key} {without_folders(str(run.config.get(key)))}" for key in SAID)) for run in runs
    ]
    same = [values[0] for values in zip(*told, strict=True) if len(set(values)) == 1]
    return f"All {', '.join(same)}." if same else ""


def compare_page(
    groups: Sequence[Group], metric: str, gains: Sequence[Gain] = (), pairs: Table | None = None
) -> str:
    """Return the page, without curves of runs whose metrics cannot be compared."""
    warning = data_warning(groups)
    table = metrics_table(groups, metric, told=Verdict() if warning else best_groups(groups, metric))
    ranks = ranking(rows(groups), metric)
    held_out = held_out_of(groups)
    different = differences(groups)
    beside = {} if warning else side_by_side(groups, metric)
    runs = [run for group in groups for run in group.runs]
    explanation = f"{legend(groups, metric)} {means(runs)} {table.note}".rstrip()
    warnings = [paragraph(warning, "note")] if warning else []
    drawn = [] if warning else [section("Metrics by round", curves(groups, metric))]
    together = [paragraph(line, "note") for line in privacy_together(groups)]
    return page(
        "Comparison",
        paragraph(", ".join(dict.fromkeys(group.names[FOLDER] for group in groups)))
        + paragraph(in_common(groups)),
        [
            section("Results", *warnings, table.html(), paragraph(explanation, "note"), *together),
            section("All pairs", *(with_note(pairs) if pairs else ())),
            *(section(name, *with_note(found)) for name, found in beside.items()),
            section(
                "Differences", different.html() if different.rows else paragraph("Only the seeds differ.")
            ),
            section("Gain over training alone", *gain_section(gains)),
            *rank_sections(ranks),
            section(f"{CASES.capitalize()} by site", *(with_note(held_out) if held_out else ())),
            section("Costs", costs(groups).html()),
            *drawn,
            section(
                "For a paper",
                *for_a_paper(
                    [run.config for run in runs],
                    table,
                    *(one for one in (pairs, *beside.values(), ranks and ranks.table(), held_out) if one),
                ),
            ),
        ],
    )
