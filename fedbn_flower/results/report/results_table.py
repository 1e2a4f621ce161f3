"""The main metric of a run by site, or of a sweep by cell: the table that a paper shows."""

from collections.abc import Sequence

from ...core.errors import not_allowed
from ...records.metrics import decimals, shown, spelt
from ..held_out import ALL_SITES, held_out_table
from ..run_reader import Run
from .runs_by_seed import Sweep, common_metric, metrics_table
from .sections.intervals import Intervals
from .tables import Table
from .verdicts import verdicts


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
    """Return the main metric of each site and of all, with its interval and how many cases it is of."""
    metric, found, counted = run.main_metric, Intervals.of(run), held_out_table([run])
    header, counts = [], {}
    if counted:
        header, counts = [*counted.header[1:]], {site: numbers for site, *numbers in counted.rows}
    none = [""] * len(header)
    rows = []
    digits = decimals(metric, (client.get(metric) for client in run.summary.clients.values()))
    for number, client in run.summary.clients.items():
        name = str(client.get("name", number))
        beside = found.beside(name).intervals if found else {}
        rows.append(
            [
                name,
                shown(metric, client.get(metric), digits),
                _ends(metric, beside.get(metric), digits),
                *counts.get(name, none),
            ]
        )
    whole = run.summary.pooled or run.summary.mean or run.summary.global_ or {}
    beside = found.beside_pooled.intervals if found else {}
    text, ends = shown(metric, whole.get(metric), digits), _ends(metric, beside.get(metric), digits)
    rows.append([ALL_SITES, text, ends, *counts.get(ALL_SITES, none)])
    if halves := run.summary.cross_fitted:
        value = (halves.pooled or halves.mean or {}).get(metric)
        rows.append(
            [f"{ALL_SITES}, cross-fitted", shown(metric, value, digits), "", *counts.get(ALL_SITES, none)]
        )
    return Table(["site", spelt(metric), "95 % interval", *header], rows)


def _ends(metric: str, interval: Sequence[float | None] | None, digits: int) -> str:
    if interval is None or None in interval:
        return ""
    return " to ".join(shown(metric, end, digits) for end in interval)
