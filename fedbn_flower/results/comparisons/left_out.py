"""Methods over the sites that were left out in turn: each site's value, and their mean with its interval."""

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import mean, stdev

from ...records.metrics import PERCENT, percent
from ...statistics.intervals import LEVEL
from ..report.tables import Table
from ..summary import LEFT_OUT, metrics_by_group, name_of_left_out
from .over_blocks import LEFT_OUT_KEY, Rows, label_of

METHOD, SITES, MEAN, INTERVAL = "method", "sites left out", "mean over them", "95 % interval"
Values = Mapping[str, Mapping[str, float]]
"""A value by method and site, the mean over the seeds; sites in the order of the clients."""


def values_left_out(rows: Rows, metric: str) -> dict[str, dict[str, float]]:
    """Return the metric of each site left out, by method; empty of other sweeps.

    Parameters
    ----------
    rows : Rows
        The values of each cell by key, and its complete runs.
    metric : str
        The metric.
    """
    found: dict[str, dict[str, list[float]]] = {}
    methods = [{k: v for k, v in names.items() if k != LEFT_OUT_KEY} for names, _ in rows]
    differ = {key for one in methods for key in one if len({other.get(key) for other in methods}) > 1}
    every = [
        (label_of({k: v for k, v in names.items() if k in differ}) or run.algorithms, run)
        for names, (_, runs) in zip(methods, rows, strict=True)
        for run in runs
        if run.summary.new_clients_as_received
    ]
    for method, run in sorted(every, key=lambda one: int(str(one[1].config.get(LEFT_OUT_KEY)))):
        value = metrics_by_group(run.summary)[LEFT_OUT].get(metric)
        if value is not None:
            of_method = found.setdefault(method, {})
            of_method.setdefault(name_of_left_out(run.summary), []).append(float(value))
    return {method: {site: mean(v) for site, v in of.items()} for method, of in found.items()}


def interval_of_mean(values: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's 95 % interval of the mean over sites; None of a single one.

    It is of new sites like these: it holds how sites differ, and not only how few cases each has.
    """
    from scipy.stats import t  # takes a second

    if len(values) < 2:
        return None
    half = float(t.ppf((1 + LEVEL) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return mean(values) - half, mean(values) + half


def left_out_table(rows: Rows, metric: str) -> Table | None:
    """Return a row for each method over all sites left out; None of other sweeps."""
    found = values_left_out(rows, metric)
    if not found:
        return None
    factor, form = percent(metric), ".1f" if metric in PERCENT else ".4g"
    lines = []
    for method, of in found.items():
        ends = interval_of_mean([*of.values()])
        shown = f"{factor * ends[0]:{form}} to {factor * ends[1]:{form}}" if ends else "one site only"
        lines.append([method, str(len(of)), f"{factor * mean(of.values()):{form}}", shown])
    note = "Student's interval of the mean over sites: each is tested on all of its cases, none trained on."
    return Table([METHOD, SITES, MEAN, INTERVAL], lines, note=note)
