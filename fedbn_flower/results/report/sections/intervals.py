"""Intervals in a report: beside the values of its tables, as a figure by site, and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ....records.cases import SITE, TARGET, predictions_of
from ....records.metrics import heading, shown
from ....records.summary import CALIBRATION, NOTE
from ...held_out import CASES, events_column
from ...plotting.comparison_plots import forest_plot
from ...plotting.drawer import drawn
from ...rare_event import led_by_rare_event
from ...run_reader import Run
from ..html import gallery, paragraph
from ..tables import Table

if TYPE_CHECKING:
    from ...plotting.drawer import DrawnApart
    from ...plotting.svg_figure import InlineFigure

MOST_SITES = 40
BRACKETS = "In brackets: 95 % intervals."
WORDS = (
    f"{BRACKETS} They say how far chance in which cases were held out "
    "may have moved a value, not how much training varies over seeds (docs/statistics.md)."
)


NOT_BELOW = (
    "The ECE has no interval: of few cases it is above 0 even if every probability is right. Beside it is "
    "what it would be on these cases if the model were calibrated."
)


class Beside(NamedTuple):
    """What stands beside a row's metrics: their intervals, and the numbers of its cases and events."""

    intervals: Mapping[str, Any]
    counts: Sequence[str]


NOTHING_BESIDE: Mapping[str, Beside] = {}


@dataclass(frozen=True)
class Intervals:
    """The intervals of a run, and how many cases they are of.

    Parameters
    ----------
    pooled, mean : Mapping
        By metric, of all cases in one place, and of the mean over clients.
    clients : Mapping
        By site and metric.
    cases : Mapping
        By site, the number of cases, and of events if there are two classes.
    note : str
        What is missing, and why.
    event : str
        What an event is.
    """

    pooled: Mapping[str, Any]
    mean: Mapping[str, Any]
    clients: Mapping[str, Mapping[str, Any]]
    cases: Mapping[str, tuple[int, ...]]
    note: str = ""
    event: str = ""

    @classmethod
    def of(cls, run: Run, new: bool = False) -> Intervals | None:
        """Return those of a run, or of its ``new`` clients; None if it has none, as of earlier versions."""
        part = run.summary.new_clients if new else run.summary
        found = part and part.intervals
        if not found:
            return None
        clients = found.get("clients", {})
        cases = _counts(run, new) if clients else {}
        return cls(
            found.get("pooled", {}), found.get("mean", {}), clients, cases, found.get(NOTE, ""), run.event
        )

    @property
    def header(self) -> list[str]:
        """The columns of the counts: the cases of a site and, of two classes, how many are events."""
        return [CASES, events_column(self.event)][: max(map(len, self.cases.values()), default=0)]

    def beside(self, site: str) -> Beside:
        """Return what stands beside a site's metrics."""
        counts = [f"{count:,}" for count in self.cases.get(site, ())]
        return Beside(self.clients.get(site, {}), counts or [""] * len(self.header))

    @property
    def beside_pooled(self) -> Beside:
        """What stands beside the metrics of all cases."""
        whole = (
            [f"{sum(column):,}" for column in zip(*self.cases.values(), strict=True)] if self.pooled else []
        )
        return Beside(self.pooled, whole or [""] * len(self.header))

    @property
    def beside_mean(self) -> Beside:
        """What stands beside the means over clients."""
        return Beside(self.mean, [""] * len(self.header))


def _counts(run: Run, new: bool) -> dict[str, tuple[int, ...]]:
    table = predictions_of(run.folder, TARGET, new)
    if table is None:
        return {}
    targets = table.groupby(SITE, sort=False)[TARGET]
    cases = targets.size()
    if run.binary_cases is None:
        return {str(site): (int(n),) for site, n in cases.items()}
    return {str(s): (int(n), int(e)) for (s, n), e in zip(cases.items(), targets.sum(), strict=True)}


def with_interval(
    name: str, text: str, interval: Sequence[float | None] | None, digits: int | None = None
) -> str:
    """Return a value's text with its interval: ``91.0 % (87.2 to 94.0)``; alone if there is none.

    ``digits`` is the number of decimals; by default there are four digits.
    """
    if not text or not interval or None in interval:
        return text
    low, high = (shown(name, end, digits).removesuffix(" %") for end in interval if end is not None)
    return f"{text} ({low} to {high})"


def in_words(run: Run) -> Iterator[str]:
    """Yield what the intervals are, what is missing, and the figure by site."""
    found = Intervals.of(run)
    if found is None or run.summary.by_case:  # of which another table has them
        return
    yield from below(found)
    for one in (led_by_rare_event(run), run):
        if figure := _figure(one, found):
            yield gallery({f"{heading(one.main_metric)} by site": figure})
            break
    if tested := (run.summary.intervals or {}).get(CALIBRATION):
        yield _of_calibration(tested).html()
        yield paragraph(NOT_BELOW, "note")


def below(found: Intervals | None) -> Iterator[str]:
    """Yield what stands below a table with intervals: what they are, and what is missing."""
    if found and any([found.pooled, found.mean, *found.clients.values()]):
        yield paragraph(WORDS, "note")
    if found and found.note:
        yield paragraph(found.note, "note")


def _of_calibration(found: Mapping[str, Any]) -> Table:
    """Return a row for each site: its ECE, and that of a calibrated model."""
    rows = {**found["clients"], **({"all sites pooled": found["pooled"]} if "pooled" in found else {})}
    header = ["site", "ECE", "if calibrated, mean", "if calibrated, 95 % below", "p (calibrated)"]
    keys = ("ece", "expected", "most", "p_value")
    return Table(header, [[site, *(f"{of[key]:.3f}" for key in keys)] for site, of in rows.items()])


def _figure(run: Run, found: Intervals) -> InlineFigure | DrawnApart | None:
    """Draw the main metric of each site, of all of them pooled, and their mean."""
    metric, summary = run.main_metric, run.summary
    clients = summary.clients
    if len(clients) > MOST_SITES:
        return None
    names = {run.client_names.get(int(partition), partition): of for partition, of in clients.items()}
    rows = [(site, values, found.beside(site)) for site, values in names.items()]
    rows.append(("all sites pooled", summary.pooled or summary.mean or {}, found.beside_pooled))
    rows.append(("mean over sites", summary.client_mean or {}, found.beside_mean))
    found_rows = [
        (_label(name, beside.counts, run.event), values[metric], *beside.intervals[metric])
        for name, values, beside in rows
        if values.get(metric) is not None and None not in beside.intervals.get(metric, [None])
    ]
    return drawn(forest_plot, found_rows, metric) if found_rows else None


def _label(site: str, counts: Sequence[str], event: str) -> str:
    cases, *events = [n for n in counts if n] or [""]
    words = f"{event}: {events[0]} of {cases}" if events else f"n {cases}"
    return f"{site} ({words})" if cases else site
