"""Methods over the sites that were left out in turn: each site's value, and their mean, with intervals."""

from statistics import mean

from ...records.metrics import PERCENT, decimals, percent, shown
from ...records.summary import NewClients
from ...results.plotting.comparison_plots import Ends
from ...results.report.sections.intervals import with_interval
from ...results.report.tables import Table
from ...results.run_reader import Run
from ...results.summary import name_of_left_out
from ..statistics.intervals import LEVEL
from .over_blocks import LEFT_OUT_KEY, SITES_LEFT_OUT, Rows, by_block, values_by_block

MOST_METHODS, MOST_SITES = 6, 40
OF_CASES = "In brackets: 95 % intervals of a site's cases; they do not cover how training varies over seeds."
HEADER = ("method", "sites left out", "mean over them", "95 % interval")


def values_left_out(rows: Rows, metric: str) -> dict[str, dict[str, list[float]]]:
    """Return the metric of each site left out under each seed, by method; empty of other sweeps.

    Parameters
    ----------
    rows : Rows
        The values of each cell by key, and its complete runs.
    metric : str
        The metric.
    """
    return values_by_block(_in_order(rows), metric, SITES_LEFT_OUT)


def intervals_left_out(rows: Rows, metric: str) -> dict[str, dict[str, Ends]]:
    """Return the interval of each such value, of the site's cases; None with several seeds, or none."""
    found = by_block(
        _in_order(rows), SITES_LEFT_OUT, lambda run: [(name_of_left_out(run.summary), _ends(run, metric))]
    )
    return {
        method: {site: ends[0] if len(ends) == 1 else None for site, ends in of.items()}
        for method, of in found.items()
    }


def _ends(run: Run, metric: str) -> Ends:
    summary = run.summary
    found = (summary.left_out or NewClients()).intervals or {}
    low, high = found.get("clients", {}).get(name_of_left_out(summary), {}).get(metric) or (None, None)
    return None if low is None or high is None else (low, high)


def _in_order(rows: Rows) -> Rows:
    """Return the rows of runs that leave out a site, by its number."""
    found = [row for row in rows if any(run.summary.left_out for run in row[1])]
    return sorted(found, key=lambda row: int(str(row[1][0].config.get(LEFT_OUT_KEY))))


def sites_table(rows: Rows, metric: str) -> Table | None:
    """Return a row for each site left out, with a column for each method; None of many, and of other sweeps.

    A value is the mean over seeds or, of one seed, has the interval of the site's cases.
    """
    found, ends = values_left_out(rows, metric), intervals_left_out(rows, metric)
    sites = list(dict.fromkeys(site for of in found.values() for site in of))
    if not found or len(found) > MOST_METHODS or len(sites) > MOST_SITES:
        return None
    digits = decimals(metric, (value for of in found.values() for seeds in of.values() for value in seeds))

    def cell(method: str, site: str) -> str:
        seeds, interval = found[method].get(site), ends.get(method, {}).get(site)
        return with_interval(metric, shown(metric, mean(seeds), digits), interval, digits) if seeds else ""

    return Table(
        ["site left out", *found],
        [[site, *(cell(method, site) for method in found)] for site in sites],
        note=OF_CASES if any(one for of in ends.values() for one in of.values()) else "",
    )


def left_out_table(rows: Rows, metric: str) -> Table | None:
    """Return a row for each method over all sites left out, with Student's interval of the mean over sites.

    It is of new sites like these: it holds how sites differ, and not only how few cases each has. None of
    other sweeps.
    """
    found = values_left_out(rows, metric)
    if not found:
        return None
    from scipy.stats import sem, t  # takes a second

    factor, form = percent(metric), ".1f" if metric in PERCENT else ".4g"
    lines = []
    for method, of in found.items():
        means = [mean(seeds) for seeds in of.values()]
        shown = "one site only"
        if len(means) > 1:
            half = float(t.ppf((1 + LEVEL) / 2, len(means) - 1) * sem(means))
            shown = " to ".join(f"{factor * (mean(means) + end):{form}}" for end in (-half, half))
        lines.append([method, str(len(of)), f"{factor * mean(means):{form}}", shown])
    note = "Student's interval of the mean over sites: each is tested on all of its cases, none trained on."
    return Table(HEADER, lines, note=note)
