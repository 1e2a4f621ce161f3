"""The main metric of a run by site, or of a sweep by cell: the table that a paper shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import not_allowed
from ...records.metrics import decimals, shown, spelt
from ...records.summary import OfClient
from ..held_out import ALL_SITES, held_out_table
from ..rare_event import LEADING, is_led, led_by_rare_event, main_first
from ..run_reader import Run
from .runs_by_seed import Sweep, common_metric, metrics_table, verdicts
from .sections.intervals import Intervals
from .tables import Table

CROSS_FITTED, NEW, THAT_TRAINED = ", cross-fitted", ", not trained on", " that trained"


def results_table(found: Run | Sweep) -> Table:
    """Return a row for each site of a run and for all of them, or for each cell of a sweep.

    Raises
    ------
    UserError
        For a sweep of which no run has ended.
    """
    if isinstance(found, Run):
        return _of_run(found)
    groups = [group for group in found.groups if group.runs]
    if not groups:
        raise not_allowed("export", str(found.folder), "a sweep of which a run has ended")
    metric = common_metric(groups)
    told = verdicts()(found.folder).compare(groups, metric, [run.dataset for run in found.runs])
    return metrics_table(groups, metric, told=told)


def _of_run(run: Run) -> Table:
    """Return the main metric of each site and of all, with its interval and how many cases it is of.

    Of a rare event the `LEADING` metrics stand beside it. Sites that did not train follow on the others.
    """
    metric, found, counted = run.main_metric, Intervals.of(run), held_out_table([run])
    summary = led_by_rare_event(run).summary
    names = main_first(summary, metric, [metric, *(LEADING if is_led(summary) else ())])
    header, counts = [], {}
    if counted:
        header, counts = [*counted.header[1:]], {site: numbers for site, *numbers in counted.rows}
    if counted and (of_others := held_out_table([run], new=True)):
        counts |= {site + NEW: numbers for site, *numbers in of_others.rows}
    digits = {name: decimals(name, (of.get(name) for of in summary.clients.values())) for name in names}

    def row(site: str, values: OfClient, intervals: Mapping[str, Any]) -> list[str]:
        cells = [site]
        for name in names:
            cells.append(shown(name, values.get(name), digits[name]))
            if name == metric:
                cells.append(_ends(metric, intervals.get(metric), digits[name]))
        counted_as = site.removesuffix(CROSS_FITTED).removesuffix(THAT_TRAINED)
        return [*cells, *counts.get(counted_as, [""] * len(header))]

    rows = [
        row(name := str(client.get("name", number)), client, found.beside(name).intervals if found else {})
        for number, client in summary.clients.items()
    ]
    whole = summary.pooled or summary.mean or summary.global_ or {}
    every = ALL_SITES + THAT_TRAINED * bool(summary.new_clients)
    rows.append(row(every, whole, found.beside_pooled.intervals if found else {}))
    if halves := summary.cross_fitted:
        rows.append(row(every + CROSS_FITTED, halves.pooled or halves.mean or {}, {}))
    if new := summary.new_clients:
        of_new = Intervals.of(run, new=True)
        for number, client in new.clients.items():
            name = str(client.get("name", number))
            rows.append(row(name + NEW, client, of_new.beside(name).intervals if of_new else {}))
    columns = (column for name in names for column in [spelt(name), *["95 % interval"] * (name == metric)])
    return Table(["site", *columns, *header], rows)


def _ends(metric: str, interval: Sequence[float | None] | None, digits: int) -> str:
    if interval is None or None in interval:
        return ""
    return " to ".join(shown(metric, end, digits) for end in interval)
