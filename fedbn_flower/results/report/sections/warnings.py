"""What is to be seen first: the warnings of a run, and the answers that were not used."""

from collections.abc import Iterator

from .... import annexes
from ...manifest import WARNINGS
from ...run_reader import Run
from ..html import paragraph
from ..tables import Table


def warnings(run: Run) -> Iterator[str]:
    """Yield a run's warnings, and what it does not say by itself."""
    yield from map(paragraph, (*run.config.get(WARNINGS, ()), *doubts(run)))


def doubts(run: Run) -> Iterator[str]:
    """Yield what is to be doubted of a complete run, a line each."""
    for lines in annexes.brought("doubts").values():
        yield from lines(run)


def failures(run: Run) -> Iterator[str]:
    """Yield which answers were not used, and why."""
    rows = [[client, reason, str(count)] for client, count, reason in run.failures()]
    if rows:
        yield Table(["client", "why the answer was not used", "count"], rows, words=2).html()
    elif run.summary.failures:
        yield paragraph(f"Unused answers: {run.summary.failures}; the reasons were not recorded.")
