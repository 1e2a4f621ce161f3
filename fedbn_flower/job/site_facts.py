"""What a site reports about its data before the first round, defined for both ends: counts and names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt

from fedbn_flower.strategies.messages.gate import printable
from fedbn_flower.strategies.messages.validation import MAX_WEIGHT

from ..config.run_config import RunConfig
from ..core.ground.columns import TEST, TRAIN, VALIDATION
from ..core.text import quoted
from ..data import Dataset
from ..data.labels import same_word
from ..data.statistics import class_counts, class_pixels, features
from .inputs import RunInputs
from .tasks import rows_of

Name = Annotated[str, Field(max_length=200), AfterValidator(printable)]


class _Counts(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")


class FeatureCounts(_Counts):
    """The counts of one feature of a site's training examples; see `Feature`."""

    name: Name
    edges: list[float]
    counts: list[NonNegativeInt]
    missing: NonNegativeInt
    values: tuple[Name, ...]


class SiteCounts(_Counts):
    """The counts that a site reports.

    Parameters
    ----------
    train, val, test : int
        Numbers of examples.
    classes : list[int]
        Training examples by class, or pixels of their masks by class; empty without classes.
    features : list[FeatureCounts]
        Intensities of images, categories of tables, and numbers of missing values.
    """

    train: int = Field(ge=1)
    val: NonNegativeInt
    test: NonNegativeInt
    classes: list[NonNegativeInt]
    features: list[FeatureCounts]

    @classmethod
    def of(cls, inputs: RunInputs, partition_id: int) -> SiteCounts:
        """Return the counts of a site with these inputs."""
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
        """Raise ValueError if classes differ from the run's, or there are more than ``most`` examples."""
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


CLASSES, TOKENS = "classes", "tokens"


Names = Mapping[str, Sequence[str]]
"""By kind (classes, tokens), the names in their order, or a single digest if names may not leave."""


def names_of(inputs: RunInputs) -> Names:
    """Return the names that a site's data number by themselves: of classes, of tokens, if they have any."""
    dataset = inputs.dataset
    vocabulary = dataset.kind.facts.get("vocabulary")
    found = {CLASSES: list(dataset.names_here), TOKENS: [vocabulary] if vocabulary else []}
    return {what: names for what, names in found.items() if names}


def digest_of(names: Names) -> str:
    """Return a digest of names, ignoring case and blanks; empty without names."""
    same = {what: [same_word(name) for name in several] for what, several in names.items()}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest() if names else ""


def told_names(config: RunConfig, names: Names) -> Names:
    """Return the names as they may leave a site: with ``dp`` or secure aggregation a digest of each list."""
    if config.dp == "none" and config.secagg != "on":
        return names
    return {what: [digest_of({what: several})] for what, several in names.items()}


def shown_names(names: Sequence[str]) -> str:
    """Return the first ten names, for a message."""
    return quoted([printable(name) for name in names], MOST_SHOWN)


MOST_SHOWN = 10
"""The most names that a message shows."""
