"""The metrics of each class."""

from collections.abc import Iterator

from ....records.metrics import shown
from ...run_reader import Run
from ..html import paragraph
from ..tables import Table
from .client_tables import metrics_by_class

MAX_CLASSES = 30  # rows in the table of classes


def classes(run: Run) -> Iterator[str]:
    """Yield the accuracy of each class, and the metrics by class."""
    yield from _accuracies(run)
    yield from metrics_by_class(run)


def _accuracies(run: Run) -> Iterator[str]:
    found = {"clients": run.summary.per_class, "global model": run.summary.global_per_class}
    columns = {name: table for name, table in found.items() if table}
    if not columns:
        return
    first = next(iter(columns.values()))
    rows = [
        [str(name), f"{examples:,}", *(shown("accuracy", column.accuracy[i]) for column in columns.values())]
        for i, (name, examples) in enumerate(zip(first.names, first.examples, strict=True))
    ]
    header = ["class", "held-out examples", *(f"accuracy, {name}" for name in columns)]
    note = ""
    if len(rows) > MAX_CLASSES:
        order = sorted(range(len(rows)), key=lambda i: (first.accuracy[i] is None, first.accuracy[i] or 0.0))
        note = f"The {MAX_CLASSES} of {len(rows)} classes with the lowest accuracy."
        rows = [rows[i] for i in order[:MAX_CLASSES]]
    yield Table(header, rows).html()
    yield paragraph(note, "note") if note else ""
