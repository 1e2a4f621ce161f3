"""What is said of a sweep: which rows differ, gains over training alone, sites left out, ranks and folds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.run_config import RunConfig
from ..core.errors import UserError
from ..core.files import csv_text, write_atomically
from ..core.stored import damage_as_user_errors, rows_of
from ..records.metrics import POOLED
from ..records.summary import Summary
from ..results.plotting.comparison_plots import by_site_plot
from ..results.plotting.plots import save_figure
from ..results.rare_event import why_by_accuracy
from ..results.report.html import gallery, section
from ..results.report.runs_by_seed import SEED, Group, Marks, Sweep, Verdicts, common_metric
from ..results.report.sections.results import with_note
from ..results.report.tables import Table
from ..results.run_reader import Run
from .comparisons.best_cells import (
    DIFFERENCE,
    NOT_TOLD,
    P_VALUE,
    TOGETHER,
    Verdict,
    shown_difference,
    verdict,
)
from .comparisons.folds import FOLDS, OF, Folds, PooledFolds, out_of_fold_table, told_out_of_fold
from .comparisons.folds import method_of as method_of_folds
from .comparisons.gain import GAIN_FILE, gain_rows, gain_section, gains_of
from .comparisons.over_blocks import (
    NOT_TOLD_BY_RANK,
    RANK,
    Ranking,
    intervals_left_out,
    left_out_table,
    method_of,
    ranking,
    sites_table,
    values_left_out,
)
from .figures import critical_difference_diagram

if TYPE_CHECKING:
    from ..results.plotting.svg_figure import InlineFigure

OF_DIFFERENCES = (DIFFERENCE, f"{DIFFERENCE}, low", f"{DIFFERENCE}, high", P_VALUE)
OF_RANKS = (RANK, NOT_TOLD_BY_RANK)
RANKS = "ranks.png"


class OfSweep(Verdicts):
    """What is said of a sweep."""

    columns = (NOT_TOLD, *OF_DIFFERENCES, *OF_RANKS)

    def __init__(self, folder: Path, keys: Sequence[str] = ()) -> None:
        super().__init__(folder, keys)
        self._folds = PooledFolds(folder, keys)
        self._told: Verdict[int] = Verdict()
        self._ranks: Ranking | None = None
        self._groups: Sequence[Group] = ()
        self._metric = ""

    def add(self, config: RunConfig, folder: Path, summary: Summary) -> None:
        if config.folds:
            self._folds.add(config, folder, summary)

    def compare(
        self, groups: Sequence[Group], metric: str, datasets: Collection[str], at_end: bool = True
    ) -> Marks[int]:
        self._groups, self._metric = groups, metric
        self._told = best_groups(groups, metric, datasets, at_end)
        self._ranks = ranking(rows(groups), metric) if at_end else None
        return self._told

    def values(self, number: int) -> dict[str, object]:
        found: dict[str, object] = {}
        if self._told.sentence:
            numbers = self._told.differences.get(number, ())
            found = {NOT_TOLD: self._told.of(number), **dict(zip(OF_DIFFERENCES, numbers, strict=False))}
        if ranks := self._ranks:
            method = method_of(self._groups[number].names, rows(self._groups), ranks)
            if method in ranks.methods:
                found |= {RANK: ranks.rank_of(method), NOT_TOLD_BY_RANK: ranks.of(method)}
        return found

    def tables(self, at_end: bool = True) -> Mapping[str, Table]:
        of = (rows(self._groups), self._metric)
        found = {
            **(
                {"sites left out": sites_table(*of), "over all sites left out": left_out_table(*of)}
                if at_end
                else {}
            ),
            **({self._ranks.title: self._ranks.table()} if self._ranks else {}),
            "out of fold": self._folds.table(at_end),
        }
        return {title: table for title, table in found.items() if table}

    def write(self) -> None:
        """Write ``folds.csv``, ``gain.csv`` and ``ranks.png``, of sweeps that have them."""
        self._folds.write(at_end=True)
        with damage_as_user_errors("report", str(self.folder)):
            groups = Sweep.read(self.folder, "report").groups
            gains = gain_rows(gains_of(groups, common_metric(groups)))
        if gains:
            write_atomically(self.folder / GAIN_FILE, csv_text(list(gains[0]), gains))
        if figure := rank_figure(self._ranks):
            save_figure(figure, self.folder / RANKS)

    def sections(self, sweep: Sweep, metric: str) -> tuple[Sequence[str], Sequence[Table]]:
        of = (rows(sweep.groups), metric)
        left_out = [table for table in (sites_table(*of), left_out_table(*of)) if table]
        folds = folds_table(sweep, metric)
        parts = [
            section("Gain over training alone", *gain_section(gains_of(sweep.groups, metric))),
            section("Sites left out", *(part for one in left_out for part in with_note(one))),
            *rank_sections(self._ranks),
            section("Out of fold", *(with_note(folds) if folds else ())),
        ]
        ranks = self._ranks and self._ranks.table()
        return parts, [table for table in (*left_out, ranks, folds) if table]

    @staticmethod
    def figure(groups: Sequence[Group], metric: str, title: str) -> InlineFigure | None:
        of = ([(group.names, group.runs) for group in groups], metric)
        values, ends = values_left_out(*of), intervals_left_out(*of)
        known = any(one for of_site in ends.values() for one in of_site.values())
        what = f"sites left out{', with 95 % intervals' if known else ''}"
        return by_site_plot(values, metric, f"{title}: {what}".lstrip(": "), ends)


def rows(groups: Sequence[Group]) -> list[tuple[Mapping[str, str], list[Run]]]:
    """Return each group's values by key, and its complete runs."""
    return [(group.names, [run for run in group.runs if run.summary.rounds]) for group in groups]


def best_groups(
    groups: Sequence[Group], metric: str, datasets: Collection[str] | None = None, on_cases: bool = True
) -> Verdict[int]:
    """Return which groups, by their indices, cannot be told from the best; see `verdict`.

    Where they are compared by the accuracy of a rare event, it says so, if cases are read (``on_cases``).
    """
    runs = {number: members for number, (_, members) in enumerate(rows(groups))}
    labels = {number: group.label for number, group in enumerate(groups)}
    if datasets is None:
        datasets = [run.dataset for group in groups for run in group.runs]
    told = verdict(runs, metric, labels, datasets, on_cases)
    if not on_cases or metric != "accuracy":
        return told
    warning = why_by_accuracy(run for members in runs.values() for run in members)
    return replace(told, sentence=f"{told.sentence} {warning}".strip())


def pairs_table(groups: Sequence[Group], metric: str, told: Verdict[int]) -> Table:
    """Return a row for each pair of groups: the first less the second, its interval, and p.

    Raises
    ------
    UserError
        When nothing is known of them; the message says why.
    """
    if told.pairs is None:
        raise UserError(f"pairs: {told.sentence or 'no two rows have ended'}")
    lines = [
        [groups[first].label, groups[second].label, *shown_difference(found, metric)]
        for (first, second), found in told.pairs.every().items()
    ]
    return Table(["", "less", "difference", P_VALUE], lines, words=2, note=TOGETHER)


def folds_table(sweep: Sweep, metric: str) -> Table | None:
    """Return the out-of-fold results of ``folds.csv``; None of a sweep without folds."""
    lines = list(rows_of(sweep.folder / FOLDS))
    if not lines:
        return None
    metric = metric if any(row.get(metric) for row in lines) else "accuracy"  # all folds are no rare event
    keys = list(lines[0])[: list(lines[0]).index(OF)]
    methods: dict[str, list[Folds]] = {}
    for row in lines:
        if row[OF] == POOLED:
            runs = [run for group in sweep.groups for run in group.runs if _is_of(group, run, row)]
            value = float(row[metric]) if row.get(metric) else None
            methods.setdefault(method_of_folds(row, keys), []).append(Folds(row[SEED], value, runs))
    higher = any(run.higher_is_better(metric) for run in sweep.runs)
    return out_of_fold_table(lines, keys, metric, told_out_of_fold(methods, metric, higher))


def _is_of(group: Group, run: Run, row: Mapping[str, str]) -> bool:
    """Return whether a run is one of the folds that a row of ``folds.csv`` is of."""
    same = all(row.get(key, value) == value for key, value in group.names.items())
    return same and str(run.config.get("seed")) == row[SEED]


def rank_sections(found: Ranking | None) -> Iterator[str]:
    """Yield how methods compare over sites or data sets: the table, in words, and the diagram."""
    if found is None:
        return
    figure = rank_figure(found)
    yield section(
        found.title[:1].upper() + found.title[1:],
        *with_note(found.table()),
        gallery({"Mean ranks, and which are not told apart": figure}, wide=True) if figure else "",
    )


def rank_figure(found: Ranking | None) -> InlineFigure | None:
    """Draw the critical-difference diagram of three or more methods; None of others."""
    if found is None or found.best is None or not found.critical_difference:
        return None
    return critical_difference_diagram(found.methods, found.mean_ranks.tolist(), found.critical_difference)
