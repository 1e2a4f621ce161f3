"""Whose metric decides: what patience, a target, a search and a comparison go by."""

from collections.abc import Mapping
from typing import Any

from ..core.ground.columns import CLIENT_MEAN, CLIENT_MEDIAN, GLOBAL, POOLED

DECIDING: Mapping[str, tuple[str, ...]] = {
    "pooled": (POOLED, ""),
    "mean": (CLIENT_MEAN,),
    "median": (CLIENT_MEDIAN,),
    "server": (GLOBAL,),
}
"""The prefixes of the metrics that decide, by ``decide-by``; the first that there is."""


def deciding(metrics: Mapping[str, Any], name: str, by: str) -> Any:
    """Return the value of a metric by which rounds and runs are compared; None if there is none.

    ``by`` is one of `DECIDING`. Pooled is over all clients' examples; without states, the mean over them.
    """
    found = (metrics.get(prefix + name) for prefix in DECIDING[by])
    return next((value for value in found if value not in (None, "")), None)
