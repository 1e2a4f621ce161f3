"""Mean and deviation of several sites: pooled, the median site's, or known without looking at the rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import not_allowed, unknown_name
from .column_text import Feature, numeric, split_words
from .images.moments import Moments, Scale
from .numeric import FeatureMoments

SiteMoments = Moments | FeatureMoments

FAR = 3.0
"""Typical deviations of a site from which on its mean is far from that of the median site."""
WIDE = 10.0
"""The same of its deviation, as a multiple of the median one."""

FORM = "COLUMN=MEAN:DEVIATION with commas, such as age=50:20,bmi=25:5"


class OwnScale(NamedTuple):
    """A site's number of values, their mean and their deviation, by feature; NaN where it has no value."""

    counts: NDArray[np.float64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]

    @classmethod
    def of(cls, moments: SiteMoments) -> OwnScale:
        """Return what a site's moments come to. A deviation is 0 where all its values are equal."""
        counts, mean, std = moments.by_feature()
        return cls(counts, np.where(counts > 0, mean, np.nan), np.where(counts > 0, std, np.nan))


def received(arrays: Mapping[str, NDArray], features: int, most: float) -> SiteMoments:
    """Return the moments that a site sent, of images or of numbers, of at most ``most`` values a feature.

    Raises
    ------
    ValueError
        When nothing has such moments.
    """
    kind: type[Moments] | type[FeatureMoments] = Moments if "sums" in arrays else FeatureMoments
    return kind.received(arrays, features, most)


def pooled_scale(sites: Sequence[SiteMoments]) -> Scale:
    """Return mean and deviation over all values of all sites, which are of one kind."""
    total: SiteMoments = reduce(add, sites)
    return total.scale()


def median_scale(sites: Sequence[SiteMoments]) -> Scale:
    """Return, by feature, the median of the sites' means and the median of their deviations.

    Each site with a value of the feature counts once, so less than half of them cannot move it beyond what
    the others have. The deviation is 1 where the median one is 0, and 0 where no site has a value.
    """
    mean, std = _medians([OwnScale.of(site) for site in sites])
    std = np.where(std > 0, std, np.where(np.isnan(std), 0.0, 1.0))
    return Scale(tuple(np.nan_to_num(mean).tolist()), tuple(std.tolist()))


def notable(sites: Mapping[str, SiteMoments]) -> Iterator[str]:
    """Yield a line for each site, by name, that decides the pooled scale, or is far from the others.

    It decides with over half of all values; one of two sites nearly always has these, so of two with over
    nine tenths. It is far from at least two others by `FAR` and `WIDE`.
    """
    own = {name: OwnScale.of(site) for name, site in sites.items()}
    sizes = {name: float(scale.counts.max()) for name, scale in own.items()}
    limit = 0.5 if len(sites) > 2 else 0.9
    for name, size in sizes.items():
        if len(sites) > 1 and size > limit * sum(sizes.values()):
            yield f"{name} has {size / sum(sizes.values()):.1%} of all values"
    if len(sites) < 3:
        return
    mean, std = _medians(list(own.values()))
    for name, scale in own.items():
        with np.errstate(invalid="ignore", divide="ignore"):
            far = (abs(scale.mean - mean) > FAR * std) | (scale.std > WIDE * std)
        if (found := np.flatnonzero(far & (std > 0))).size:
            one = found[0]
            yield (
                f"{name} is far from the others: feature {one} has mean {scale.mean[one]:.4g} and deviation "
                f"{scale.std[one]:.4g} there, and {mean[one]:.4g} and {std[one]:.4g} at the median site"
            )


def _medians(own: Sequence[OwnScale]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the medians of means and of deviations by feature, of the sites that have values of it."""
    return _median([scale.mean for scale in own]), _median([scale.std for scale in own])


def _median(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the median by column, NaN left out; NaN where there is nothing else."""
    columns = np.array(rows).T
    return np.array([np.median(some) if len(some := c[~np.isnan(c)]) else np.nan for c in columns])


def public_scale(text: str, columns: Sequence[Feature]) -> Scale:
    """Return means and deviations by encoded column; 0 and 1 where the text names none.

    Parameters
    ----------
    text : str
        The key ``dp-scale``.
    columns : Sequence[Feature]
        How the table is encoded.

    Raises
    ------
    UserError
        When it names what is no column of numbers, or has another form.
    """
    places = {name: place for place, name in numeric(columns)}
    width = sum(feature.width for feature in columns)
    mean, std = [0.0] * width, [1.0] * width
    for word in split_words(text) if text else []:
        name, _, values = word.rpartition("=")
        if name not in places:
            raise unknown_name("dp-scale", name or word, places)
        try:
            center, deviation = map(float, values.split(":"))
        except ValueError:
            raise not_allowed("dp-scale", text, FORM) from None
        if not (math.isfinite(center) and 0 < deviation < math.inf):
            raise not_allowed("dp-scale", text, FORM)
        mean[places[name]], std[places[name]] = center, deviation
    return Scale(tuple(mean), tuple(std))
