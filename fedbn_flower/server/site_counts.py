"""Ask sites that have data of their own what these are: counts, and nothing of any one example."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from fedbn_flower.strategies import PseudoGradientStrategy, ReplyRefused
from fedbn_flower.strategies.messages.gate import printable, text_of
from fedbn_flower.strategies.messages.validation import MAX_WEIGHT

from ..config.making import config_at_site
from ..core.errors import not_allowed
from ..core.ground.columns import TEST, TRAIN, VALIDATION
from ..core.ground.wire import COUNTS, QUERY_COUNTS
from ..core.partition_id import partition_id_of
from ..data import Dataset
from ..data.statistics import Feature, class_counts, class_pixels, features
from ..job.inputs import RunInputs
from ..job.tasks import rows_of
from ..privacy.floors import refuse_statistics
from ..site.inputs import inputs_at
from ..site.privacy import SitePrivacy, refusals_in_one_line
from .questions import answers_of_sites

LOGGER = logging.getLogger("flwr.fedbn")
LONGEST = 2**24
"""Characters of a site's answer."""

Name = Annotated[str, Field(max_length=200), AfterValidator(printable)]


class _Counts(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")


class FeatureCounts(_Counts):
    """A feature of one site's training examples, see `Feature`."""

    name: Name
    edges: list[float]
    counts: list[NonNegativeInt]
    missing: NonNegativeInt
    values: tuple[Name, ...]


class SiteCounts(_Counts):
    """What a site tells of its data.

    Parameters
    ----------
    train, val, test : int
        Numbers of examples.
    classes : list[int]
        How many training examples have each class, or how many pixels of their masks; empty without classes.
    features : list[FeatureCounts]
        Intensities of images, categories of tables, and how many values are missing.
    """

    train: int = Field(ge=1)
    val: NonNegativeInt
    test: NonNegativeInt
    classes: list[NonNegativeInt]
    features: list[FeatureCounts]

    @classmethod
    def of(cls, inputs: RunInputs, partition_id: int) -> SiteCounts:
        """Return what a site with these inputs tells."""
        dataset, rows = inputs.dataset, rows_of(inputs, partition_id)
        described = features(dataset, [rows[TRAIN]], inputs.config.feature_shift, by_range=False)
        return cls(
            train=len(rows[TRAIN]),
            val=len(rows[VALIDATION]),
            test=len(rows[TEST]),
            classes=_classes(dataset, rows[TRAIN]),
            features=[
                FeatureCounts(
                    name=feature.name,
                    edges=feature.edges.tolist(),
                    counts=feature.counts[0].tolist(),
                    missing=int(feature.missing[0]),
                    values=feature.values,
                )
                for feature in described
            ],
        )

    def check(self, inputs: RunInputs, most: float) -> None:
        """Raise ValueError where classes are not those of the run, or examples are more than ``most``."""
        if max(self.train, self.val, self.test) > most:
            raise ValueError(f"{max(self.train, self.val, self.test)} examples, at most {most:.16g}")
        spec, dataset = inputs.dataset.spec, inputs.dataset
        known = dataset.has_classes or dataset.has_masks
        if len(self.classes) != (spec.outputs if known else 0):
            raise ValueError(f"{len(self.classes)} classes are counted")
        if dataset.has_classes and sum(self.classes) != self.train:
            raise ValueError(f"{sum(self.classes)} examples have a class, of {self.train}")
        if any(len(feature.edges) != len(feature.counts) + 1 for feature in self.features):
            raise ValueError("a feature has not a count for each bin")
        counted = [
            *self.classes,
            *(n for feature in self.features for n in (*feature.counts, feature.missing)),
        ]
        if max(counted, default=0) > MAX_WEIGHT:
            raise ValueError("a count is above 2^53")
        if any(not a <= b for f in self.features for a, b in pairwise(f.edges)):
            raise ValueError("the edges of a feature do not ascend")


def _classes(dataset: Dataset, rows: NDArray[np.int64]) -> list[int]:
    counted = class_counts if dataset.has_classes else class_pixels if dataset.has_masks else None
    found: list[int] = counted(dataset, [rows])[0].tolist() if counted else []
    return found


@refusals_in_one_line
def answer_counts(message: Message, context: Context) -> Message:
    """Tell the counts of a site's data."""
    config = config_at_site(context)
    SitePrivacy.of(config, context)
    refuse_statistics(config, "counts")
    inputs = inputs_at(config, context.node_config)
    if not inputs.dataset.has_examples:
        raise not_allowed("data-path", "", "a data-path in the node config")
    counts = SiteCounts.of(inputs, partition_id_of(context) or 0)
    return Message(RecordDict({COUNTS: ConfigRecord({COUNTS: counts.model_dump_json()})}), reply_to=message)


def sites_counts(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> dict[int, SiteCounts]:
    """Return the counts of every connected site, by partition or node id.

    A site whose answer cannot be used, or that has other features than most have, is left out with a warning.

    Raises
    ------
    RunFailed
        When no site's answer can be used.
    """
    most = strategy._max_weight_ or MAX_WEIGHT

    def read(content: RecordDict) -> SiteCounts:
        try:
            counts = SiteCounts.model_validate_json(text_of(content, COUNTS, COUNTS, LONGEST))
            counts.check(inputs, most)
        except ValidationError as error:
            first = error.errors()[0]
            raise ReplyRefused(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        except ValueError as error:
            raise ReplyRefused(str(error)) from None
        return counts

    found = answers_of_sites(QUERY_COUNTS, inputs, strategy, grid, read)
    ((described, _),) = Counter(map(_described, found.values())).most_common(1)
    for site, counts in found.items():
        if _described(counts) != described:
            LOGGER.warning("%s: site %s: it has other features than the others: left out", QUERY_COUNTS, site)
    return {site: counts for site, counts in found.items() if _described(counts) == described}


def _described(counts: SiteCounts) -> tuple[tuple[object, ...], ...]:
    return tuple((f.name, tuple(f.edges), f.values) for f in counts.features)


def features_of_sites(sites: Mapping[int, SiteCounts]) -> list[Feature]:
    """Return the features by site; means and deviations do not leave a site and are NaN."""
    unknown = np.full(len(sites), np.nan)
    return [
        Feature(
            same[0].name,
            np.array(same[0].edges),
            np.array([feature.counts for feature in same]),
            unknown,
            unknown,
            np.array([feature.missing for feature in same]),
            same[0].values,
        )
        for same in zip(*(site.features for site in sites.values()), strict=True)
    ]
