"""Doubts about units: numbers of a column that are at one site a multiple of what they are at another."""

from collections.abc import Iterator, Sequence

import numpy as np

from ....core.listing import listed
from ...dataset import Dataset
from ...partition.shares import Shares
from ...statistics import columns_of
from .doubts import LEAST, MAX_SHOWN
from .kind import Table

LEAST_FACTOR = 2.0
SPREAD = 0.05, 0.5, 0.95
"""The quantiles between which a site's numbers spread."""
MOST_CELLS = 2**24
"""Cells of a table that is looked at."""


def of_site_units(dataset: Dataset, shares: Shares, names: Sequence[str]) -> Iterator[str]:
    """Yield a warning of columns whose medians differ between clients as units do.

    Their factor is greater than `LEAST_FACTOR`, and than the square of how far, as a factor, the numbers of
    any client spread. All numbers are positive but few, and a client has at least `LEAST` of them.
    """
    kind = dataset.kind
    if not isinstance(kind, Table) or kind.train["x"].size > MOST_CELLS:
        return
    import pandas as pd

    columns = {name: at.start for name, words, at in columns_of(kind) if not words}
    rows = np.concatenate([np.empty(0, np.int64), *(shares[i] for i in range(len(shares)))])
    table = pd.DataFrame(kind.train["x"][np.ix_(rows, list(columns.values()))], columns=list(columns))
    by_client = table.groupby(np.repeat(np.arange(len(shares)), shares.sizes))
    enough = by_client.count() >= LEAST
    low, middle, high = (by_client.quantile(q).where(enough) for q in SPREAD)
    spread = (high / low.where(low > 0)).where(high > low)
    middle = middle.where(spread.notna())
    factor = middle.max() / middle.min()
    found = factor[(factor > LEAST_FACTOR) & (factor > spread.max() ** 2)]
    if len(found):
        of_columns = []
        for name in found.index:
            least, most = middle[name].idxmin(), middle[name].idxmax()
            said = [f"{middle[name][i]:.3g} at {_called(names, i)}" for i in (least, most)]
            of_columns.append(f"{name!r} has a median of {' and one of '.join(said)}")
        yield (
            f"columns: units? {listed(of_columns, MAX_SHOWN)}, far more than the numbers of each site "
            "spread; if the units differ, write all sites' numbers in one"
        )


def _called(names: Sequence[str], client: int) -> str:
    return names[client] if names else f"client {client}"
