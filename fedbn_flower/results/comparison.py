"""A grid of runs: one table with the mean and the sample standard deviation over the seeds."""

from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from ..config import RunConfig
from ..files import csv_text, write_atomically
from ..registry import short
from . import report
from .plots import save_figure
from .progress import LISTED_CLIENTS, cell_name

Cell = tuple[str, str, str]
MEANS = "Mean over examples: every held-out example counts alike; mean over clients: every client."


class Comparison:
    """Collects the runs of a grid and writes ``grid.csv``, ``grid.md`` and ``grid.png`` after each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[dict[str, object]] = []
        self.compared_by = "accuracy"
        self.values: dict[Cell, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, config: RunConfig, summary: dict[str, Any] | None, problem: str = "") -> None:
        """Add a run by its summary, or what went wrong if it has none."""
        cell = (short(config.strategy), short(config.client), short(config.objective))
        if config.reference != "none":
            cell = (f"(reference: {config.reference})", "", "")
        figures: dict[str, float] = {}
        if summary:
            clients = summary["clients"] if len(summary["clients"]) <= LISTED_CLIENTS else {}
            models = {
                "global": summary["global"],
                "mean over examples": summary["mean"],
                "mean over clients": summary["client-mean"],
            } | {f"client {i}": client for i, client in clients.items()}
            by = self.compared_by = summary["compared-by"]
            figures = {n: m[by] for n, m in models.items() if m and m[by] is not None}
        for name, value in figures.items():
            self.values[cell][name].append(value)
        self.rows.append(
            {
                **dict(zip(("strategy", "client", "objective"), cell, strict=True)),
                "seed": config.seed,
                "status": problem or "ok",
                "seconds": summary["seconds"] if summary else "",
                "failures": summary["failures"] if summary else "",
                **{f"{self.compared_by}: {name}": value for name, value in figures.items()},
                "folder": cell_name(config),
            }
        )
        columns = list(dict.fromkeys(key for row in self.rows for key in row))
        write_atomically(self.folder / "grid.csv", csv_text(columns, self.rows))
        write_atomically(self.folder / "grid.md", self.markdown())

    def _table(self) -> tuple[list[str], list[list[str]]]:
        names = list(dict.fromkeys(n for figures in self.values.values() for n in figures))
        header = ["strategy", "client", "objective", *names]
        rows = [
            [*cell, *(_mean_and_deviation(figures.get(name, []), self.compared_by) for name in names)]
            for cell, figures in self.values.items()
        ]
        return header, rows

    def markdown(self) -> str:
        """The table in Markdown, and under it what its figures are."""
        header, rows = self._table()
        lines = [header, ["---"] * len(header), *rows]
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        return f"{table}\n{self._title().capitalize()}.\n{MEANS}\n"

    def _title(self) -> str:
        seeds = len({row["seed"] for row in self.rows})
        deviation = f", mean +- sample standard deviation (n - 1) over {seeds} seeds" if seeds > 1 else ""
        unit = " in %" if self.compared_by == "accuracy" else ""
        return f"{self.compared_by}{unit}{deviation}"

    def table(self) -> Table:
        """The table for the terminal."""
        header, rows = self._table()
        table = Table(title=self._title())
        for column in header:
            table.add_column(column)
        for row in rows:
            table.add_row(*row)
        return table

    def plot(self) -> None:
        """The figure by round as ``grid.png``, a line a cell, the mean over its seeds: of the clients where
        they evaluate, else of the global model; and the report."""
        save_figure(report.sweep_figure(self.folder), self.folder / "grid.png")
        report.write_report(self.folder)


def _mean_and_deviation(values: list[float], name: str) -> str:
    if not values:
        return ""
    factor, digits = (100, 1) if name == "accuracy" else (1, 4)
    deviation = f" +- {factor * stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{factor * mean(values):.{digits}f}{deviation}"
