"""The table of a sweep's runs, with mean and sample standard deviation over the seeds."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from ..config.run_config import RunConfig
from ..core.files import csv_text, write_atomically
from ..core.stored import GRID
from ..core.text import joined
from ..names import short
from ..records.metrics import PERCENT, percent, spelt
from ..records.summary import Summary, tested_on
from ..results import report
from ..results.composition import Private, added_up
from ..results.held_out import CASES, compared_cases_table, divided_otherwise, without_a_value
from ..results.plotting.plots import save_figure
from ..results.progress import cell_name, values_of
from ..results.rare_event import Candidate, led_together
from ..results.report.runs_by_seed import MARK, Group, Marks, verdicts
from ..results.report.tables import Table
from ..results.run_reader import Run
from ..results.summary import (
    JAIN_OF_CLIENTS,
    TO_TARGET,
    metrics_by_group,
    name_of_left_out,
    over_labels,
    seeds_text,
    to_target,
)

Cell = tuple[str, ...]
AXES = ("strategy", "client", "objective")
MEANS = (
    "Mean over examples: every held-out example counts alike; mean over clients: every client that has a "
    "value."
)


class Comparison:
    """Collects the runs of a sweep and writes ``grid.csv`` and ``grid.md`` after each.

    Parameters
    ----------
    folder : Path
        The sweep's folder.
    keys : Sequence[str]
        The swept keys besides strategy, client, objective and seed; each is a column.
    order : Iterable[str]
        The names of the runs' folders in the order of the rows. Other runs follow in the order of `add`.
    """

    def __init__(self, folder: Path, keys: Sequence[str] = (), order: Iterable[str] = ()) -> None:
        self.folder = folder
        self.keys = tuple(keys)
        self.axes = tuple(dict.fromkeys((*AXES, *keys)))
        self._order = {name: position for position, name in enumerate(order)}
        self._rows: dict[str, dict[str, object]] = {}
        self._candidates: dict[str, Candidate] = {}
        self._runs: dict[str, Run] = {}
        self._metrics: dict[str, dict[str, float]] = {}
        self._privacy: dict[str, Private] = {}
        self._told: Marks[int] = Marks()
        self.verdicts = verdicts()(folder, keys)

    def add(
        self, config: RunConfig, summary: Summary | None, problem: str = "", name: str = ""
    ) -> Summary | None:
        """Add a run with its summary, or with the error message of a failed one.

        ``name`` is that of its folder, `cell_name` by default. Returns the summary by which the run is
        compared; see `led_together`.
        """
        name = name or cell_name(config, self.keys)
        if summary:
            self.verdicts.add(config, self.folder / name, summary)
            self._candidates[name] = Candidate.of(Run.read(self.folder / name))
        trained = summary or Summary.read(self.folder / name, "run-dir")
        if trained:  # one that failed has spent its privacy, too
            self._privacy[name] = config.dataset, trained.privacy or {}
        axes = (short(config.strategy), short(config.client), short(config.objective))
        self._rows[name] = {
            **dict(zip(AXES, axes, strict=True)),
            **values_of(config, self.keys),  # full names where short ones are ambiguous
            **({"left-out": name_of_left_out(summary)} if summary and config.left_out >= 0 else {}),
            "seed": config.seed,
            "status": problem or "ok",
            "seconds": summary.seconds if summary else "",
            "failures": summary.failures if summary else "",
            "folder": name,
        }
        self._write(at_end=False)
        return self.summaries[name]

    def _lead(self) -> None:
        """Take the runs as they are compared, with their metrics."""
        led = led_together(list(self._candidates.values()))
        self._runs = dict(zip(self._candidates, led, strict=True))
        self._metrics = {name: _metrics_of(run.summary) for name, run in self._runs.items()}

    def _write(self, at_end: bool) -> None:
        """Write both files; what takes longer, on cases and over sites, is compared ``at_end``."""
        self._lead()
        leading = [*self.axes, "seed", "status", "seconds", "failures"]
        columns = dict.fromkeys([*leading, *self._names(), "folder", *self.verdicts.columns])
        self._compare(at_end)
        rows = [
            row | (self.verdicts.values(number) if row["status"] == "ok" else {})
            for number, members in enumerate(self._groups().values())
            for row in members
        ]
        order = {str(row["folder"]): position for position, row in enumerate(self.rows)}
        rows.sort(key=lambda row: order[str(row["folder"])])
        write_atomically(self.folder / GRID, csv_text(columns, rows))
        write_atomically(self.folder / "grid.md", self.markdown(at_end))

    def _run_of(self, row: Mapping[str, object]) -> list[Run]:
        name = str(row["folder"])
        return [self._runs[name]] if name in self._runs else []

    def _position(self, name: str) -> int:
        return self._order.get(name, len(self._order))

    @property
    def rows(self) -> list[dict[str, object]]:
        """The rows of ``grid.csv``, in order."""
        names = sorted(self._rows, key=self._position)
        return [self._rows[name] | self._metrics.get(name, {}) for name in names]

    def _names(self) -> list[str]:
        """The names of all metrics in order of appearance, clients by number; a run may lack some."""
        names = dict.fromkeys(
            n for name in sorted(self._metrics, key=self._position) for n in self._metrics[name]
        )
        kinds = list(dict.fromkeys(re.sub(r"\d+$", "", name) for name in names))
        return sorted(names, key=lambda n: (kinds.index(re.sub(r"\d+$", "", n)), len(n), n))

    def _groups(self) -> dict[Cell, list[dict[str, object]]]:
        """Return the rows grouped by everything but the seed."""
        groups: dict[Cell, list[dict[str, object]]] = defaultdict(list)
        for row in self.rows:
            groups[tuple(str(row.get(key, "")) for key in self.axes)].append(row)
        return groups

    @property
    def summaries(self) -> dict[str, Summary | None]:
        """The summaries of all runs as they are compared, by their folders' names; None of failed ones."""
        return {name: self._runs[name].summary if name in self._runs else None for name in self._rows}

    @property
    def compared_by(self) -> str:
        """The metric by which all runs are compared, or the first of several."""
        return self._compared_by()[0]

    @property
    def _alike(self) -> bool:
        """Whether all runs are compared by one metric."""
        return len(self._compared_by()) == 1

    def _compare(self, at_end: bool) -> None:
        """Compare the cells, unless the metrics differ, which is said."""
        groups = self._groups() if self._alike else {}
        different = [len(set(column)) > 1 for column in zip(*groups, strict=True)]
        rows = [
            Group(
                {key: v for key, v, differs in zip(self.axes, cell, different, strict=True) if differs},
                [run for row in members for run in self._run_of(row)],
            )
            for cell, members in groups.items()
        ]
        datasets = [self._privacy[name][0] for name in self._runs]
        self._told = self.verdicts.compare(rows, self.compared_by, datasets, at_end)
        if not self._alike and len(self._groups()) > 1:
            metrics = joined(self._compared_by())
            sentence = f"Runs whose main metrics differ ({metrics}) are not compared with each other."
            self._told = Marks(sentence=sentence)

    @property
    def sentence(self) -> str:
        """Which cells cannot be told from the best, in words; empty for a single cell."""
        return self._told.sentence

    def _table(self) -> tuple[list[str], list[list[str]], list[str]]:
        """Return header, rows, and for each row its failed runs and their errors."""
        names = self._names()
        prefix = f"{self.compared_by}: " if self._alike else ""
        header = [*self.axes, *(name.removeprefix(prefix) for name in names), *self._told.header]
        marked = f"{self.compared_by}: {self._told.column}"
        rows, problems = [], []
        for number, (cell, members) in enumerate(self._groups().items()):
            found = [self._metrics.get(str(row["folder"]), {}) for row in members]
            values = [
                _cell([m[name] for m in found if name in m], name, members)
                + (MARK if name == marked and number in self._told.alike else "")
                for name in names
            ]
            rows.append([*cell, *values, *self._told.shown(number, self.compared_by)])
            seeds = defaultdict(list)
            for row in members:
                if row["status"] != "ok":
                    seeds[row["status"]].append(f"seed {row['seed']}")
            problems.append("; ".join(f"{', '.join(failed)}: {error}" for error, failed in seeds.items()))
        return header, rows, problems

    def markdown(self, at_end: bool = True) -> str:
        """Return the table in Markdown, followed by a description of its numbers.

        What is compared over folds, and the cases of each site, follow ``at_end``.
        """
        header, rows, problems = self._table()
        if any(problems):
            header = [*header, "failed"]
            rows = [[*row, problem] for row, problem in zip(rows, problems, strict=True)]
        lines = [header, ["---"] * len(header), *([text.replace("|", r"\|") for text in row] for row in rows)]
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        together = "".join(f"\n{line}\n" for line in self.privacy_together)
        words = f"{sentence}\n" if (sentence := self.sentence) else ""
        counts = compared_cases_table(list(self._runs.values())) if at_end else None
        held_out = f"\n{CASES.capitalize()} by site:\n\n{counts.markdown()}" if counts else ""
        title = self._title()
        below = f"{title[:1].upper()}{title[1:]}.\n{MEANS}\n{words}{together}"
        further = "".join(
            f"\n{title[:1].upper()}{title[1:]}:\n\n{found.markdown()}"
            for title, found in self.verdicts.tables(at_end).items()
        )
        return f"{table}\n{below}{further}{held_out}"

    @property
    def privacy_together(self) -> list[str]:
        """What the private runs on the same data come to together."""
        return added_up(self._privacy.values())

    def _title(self) -> str:
        runs = [sum(row["status"] == "ok" for row in members) for members in self._groups().values()]
        seeds = seeds_text(runs)
        deviation = f", mean +- sample standard deviation (n - 1) over {seeds} seeds" if seeds else ""
        metrics = (f"{spelt(by)} in %" if by in PERCENT else spelt(by) for by in self._compared_by())
        tested = tested_on(run.summary for run in self._runs.values())
        labels = over_labels(run.config.get("problem") for run in self._runs.values())
        divided, lacking = divided_otherwise(self._runs.values()), without_a_value(self._runs.values())
        return "; ".join(filter(None, [f"{', '.join(metrics)}{deviation}", tested, divided, lacking, labels]))

    def _compared_by(self) -> list[str]:
        """The metrics that the runs are compared by; several if their problems differ."""
        found = (name.partition(": ")[0] for name in self._names() if not name.startswith(TO_TARGET))
        return list(dict.fromkeys(found)) or [run.main_metric for run in self._runs.values()][-1:] or [""]

    def table(self) -> Table:
        """Return the table for a terminal: common values are in the `title`, errors below it.

        What is compared is the first column; the differences, too wide for many, are in the sentence.
        """
        header, rows, problems = self._table()
        kept = range(len(header) - len(self._told.header))
        order = sorted(kept, key=lambda i: i >= len(self.axes) and header[i] != self._told.column)
        header, rows = [header[i] for i in order], [[row[i] for i in order] for row in rows]
        notes = [f"[{number}] {problem}" for number, problem in enumerate(filter(None, problems), 1)]
        if notes:
            numbers = iter(range(1, len(notes) + 1))
            header = [*header, "failed"]
            rows = [
                [*row, f"[{next(numbers)}]" if problem else ""]
                for row, problem in zip(rows, problems, strict=True)
            ]
        table = Table(header, rows, len(self.axes), note="\n".join(notes))
        return table.without_common(len(AXES)) if len(rows) > 1 else table

    def further_tables(self) -> dict[str, Table]:
        """Return what follows the table in a terminal, by title."""
        return {
            title: table.without_common(table.words - 1) for title, table in self.verdicts.tables().items()
        }

    @property
    def title(self) -> str:
        """What the table's numbers are, after the values that all rows have in common."""
        columns = list(zip(*self._groups(), strict=True))[: len(AXES)]
        common = " ".join(column[0] for column in columns if len(column) > 1 and len(set(column)) == 1)
        return f"{common}: {self._title()}" if common else self._title()

    def plot(self) -> None:
        """Write ``grid.png`` and the report.

        The figure has a line per cell: the metric by round, averaged over the seeds, of the clients if they
        evaluate, else of the global model.
        """
        self._write(at_end=True)
        save_figure(report.sweep_figure(self.folder), self.folder / "grid.png")
        self.verdicts.write()
        report.write_report(self.folder)


def _metrics_of(summary: Summary) -> dict[str, float]:
    """Return the columns of a run: the metric by which it is compared, and what it took to a target."""
    by = summary.compared_by
    found = {model: values.get(by) for model, values in metrics_by_group(summary).items()}
    metrics = {f"{by}: {model}": value for model, value in found.items() if value is not None}
    return metrics | to_target(summary)


def _cell(values: list[float], name: str, members: Sequence[Mapping[str, object]]) -> str:
    """Return mean and deviation, with the number of values if some completed runs have none."""
    if not values:
        return ""
    metric, _, of = name.partition(": ")
    if of == JAIN_OF_CLIENTS:
        factor, form = 1, ".3f"
    else:
        factor = percent(metric)
        form = ".1f" if metric in PERCENT or name.startswith(TO_TARGET) else ".4g"
    deviation = f" +- {factor * stdev(values):{form}}" if len(values) > 1 else ""
    completed = sum(row["status"] == "ok" for row in members)
    some = f" ({len(values)} of {completed})" if len(values) < completed else ""
    return f"{factor * mean(values):{form}}{deviation}{some}"
