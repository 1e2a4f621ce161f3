"""Methods over the sites that were left out in turn: each site's value, and their mean with its interval."""

from statistics import mean

from ...records.metrics import PERCENT, percent
from ...statistics.intervals import LEVEL
from ..report.tables import Table
from .over_blocks import LEFT_OUT_KEY, SITES_LEFT_OUT, Rows, values_by_block

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
    of_sites = [row for row in rows if any(run.summary.new_clients_as_received for run in row[1])]
    in_order = sorted(of_sites, key=lambda row: int(str(row[1][0].config.get(LEFT_OUT_KEY))))
    return values_by_block(in_order, metric, SITES_LEFT_OUT)


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
