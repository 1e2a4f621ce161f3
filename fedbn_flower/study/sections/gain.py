"""What clients gain over training alone, in the page of a sweep or a comparison."""

from collections.abc import Iterator, Sequence

from ...records.metrics import heading, percent, spelt
from ...results.report.html import gallery, paragraph
from ...results.report.tables import Table
from ..comparisons.gain import Gain, OfClient
from ..plots import gain_plot

MOST_DRAWN = 9  # markers
HEADER = ("clients", "worse off than alone", "at 95 %", "mean gain", "least gain")
WORDS = (
    "A client is worse off if its {metric} is worse than that of the model that it trains alone, on the same "
    "held-out cases; a gain is more than 0 if training together is better. At 95 %: how many clients may "
    "truly be worse off, by a paired bootstrap of each client's cases, Bonferroni over clients and seeds."
)
WITHOUT = " Without held-out cases that both runs have kept, and enough of them, it is not known how many."


def gain_table(gains: Sequence[Gain]) -> Table:
    """Return a row for each group of runs."""
    rows = []
    for gain in gains:
        found = gain.worse_off
        rows.append(
            [
                gain.group,
                str(found.clients),
                f"{found.worse} ({100 * found.worse / found.clients:.0f} %)",
                f"{found.least} to {found.most}" if gain.has_intervals else "not known",
                _points(gain.metric, gain.mean),
                f"{_points(gain.metric, gain.least.gain)} ({_named(gain, gain.least)})",
            ]
        )
    metric = spelt(gains[0].metric) if gains else ""
    lacking = "" if all(gain.has_intervals for gain in gains) else WITHOUT
    return Table(["together", *HEADER], rows, note=WORDS.format(metric=metric) + lacking)


def gain_section(gains: Sequence[Gain]) -> Iterator[str]:
    """Yield the table and the scatter, if any run has clients that also trained alone."""
    if not gains:
        return
    table = gain_table(gains)
    yield table.html()
    yield paragraph(table.note, "note")
    points = {gain.group: [(one.alone, one.together) for one in gain.clients] for gain in gains[:MOST_DRAWN]}
    metric = gains[0].metric
    yield gallery({f"{heading(metric)} of each client, alone and with the others": gain_plot(points, metric)})


def _points(metric: str, value: float) -> str:
    return f"{100 * value:+.1f} points" if percent(metric) == 100 else f"{value:+.4g}"


def _named(gain: Gain, one: OfClient) -> str:
    seeds = {other.seed for other in gain.clients}
    return f"client {one.client}, seed {one.seed}" if len(seeds) > 1 else f"client {one.client}"
