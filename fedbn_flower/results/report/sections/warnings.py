"""What is to be seen first: the warnings of a run, and the answers that were not used."""

from collections.abc import Iterator

from ...manifest import WARNINGS
from ...run_reader import Run
from ..html import paragraph
from ..tables import Table


def warnings(run: Run) -> Iterator[str]:
    """Yield a run's warnings, and what it does not say by itself."""
    yield from map(paragraph, (*run.config.get(WARNINGS, ()), *run.missed_in_silence))


def failures(run: Run) -> Iterator[str]:
    """Yield which answers were not used, and why."""
    rows = [[client, reason, str(count)] for client, count, reason in run.failures()]
    if rows:
        yield Table(["client", "why the answer was not used", "count"], rows, words=2).html()
    elif run.summary.failures:
        yield paragraph(f"{run.summary.failures} answers were not used; the reasons were not recorded.")
