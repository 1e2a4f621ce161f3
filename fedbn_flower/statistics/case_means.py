"""Means over cases that have a number each, such as a Dice coefficient, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .case_metrics import Mean
from .cases import ID, SITE, Cases
from .intervals import Interval, intervals_of_cases

if TYPE_CHECKING:
    from pandas import DataFrame

SHARE, LENGTH = (0.0, 1.0), (0.0, math.inf)
"""Bounds of a metric."""


def means_of_cases(table: DataFrame, bounds: Mapping[str, tuple[float, float]], seed: int) -> dict[str, Any]:
    """Return the mean of each column: ``pooled`` (all cases), ``mean`` (over sites), ``clients`` (by site).

    A case without a number, NaN, counts in no mean of that column: ``left-out`` has how many these are, by
    site and column; ``cases`` has how many cases each site has. Where several sites have the same cases,
    these are not independent: only each site by itself has intervals.

    Parameters
    ----------
    table : DataFrame
        A row for each case: ``site``, ``id``, perhaps ``group``, and the columns.
    bounds : Mapping
        The least and the greatest value of each column, by its name.
    seed : int
        Of the draws.
    """
    shared = has_shared_cases(table)
    sites = {str(site): part for site, part in table.groupby(SITE, sort=False)}
    found: dict[str, Any] = {"pooled": {}, "mean": {}, "clients": {site: {} for site in sites}}
    for name, ends in bounds.items():
        if table[name].isna().all():
            continue
        of_one = _of_each_alone(table, name, ends, seed) if shared else _of_all(table, name, ends, seed)
        found["pooled"][name], found["mean"][name] = of_one["pooled"], of_one["mean"]
        for site, interval in of_one["clients"].items():
            found["clients"][site][name] = interval
    missing = {site: part[[*bounds]].isna().sum() for site, part in sites.items()}
    return {
        "cases": {site: len(part) for site, part in sites.items()},
        "left-out": {
            site: {str(name): int(count) for name, count in counts.items() if count}
            for site, counts in missing.items()
            if counts.any()
        },
        **found,
    }


def has_shared_cases(table: DataFrame) -> bool:
    """Return whether several sites have the same cases."""
    return bool(table[ID].duplicated().any())


def _of_all(table: DataFrame, name: str, bounds: tuple[float, float], seed: int) -> dict[str, Any]:
    metric = Mean(lambda cases: cases.scores, bounds=bounds)
    found: dict[str, Any] = intervals_of_cases(Cases.of_values(table, name), {name: metric}, seed)
    clients = {site: of[name] for site, of in found["clients"].items()}
    return {"pooled": found["pooled"][name], "mean": found["mean"][name], "clients": clients}


def _of_each_alone(table: DataFrame, name: str, bounds: tuple[float, float], seed: int) -> dict[str, Any]:
    """Return the intervals of each site by itself; the others are values only."""
    parts = [part for _, part in table.groupby(SITE, sort=False) if part[name].notna().any()]
    clients = {s: of for part in parts for s, of in _of_all(part, name, bounds, seed)["clients"].items()}
    values = {
        "pooled": float(table[name].mean()),
        "mean": sum(of.value for of in clients.values()) / len(clients),
    }
    return {**{k: Interval(v, math.nan, math.nan, "") for k, v in values.items()}, "clients": clients}
