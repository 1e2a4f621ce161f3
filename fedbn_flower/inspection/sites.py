"""Look at the data of SuperNodes, under ``flwr run`` with the key ``inspect``."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from flwr.serverapp import Grid

from ..core.errors import os_errors_as_user_errors
from ..core.files import write_atomically
from ..core.ground.columns import TEST, VALIDATION
from ..data.statistics import Counts, Feature, Numbers
from ..job.site_facts import SiteCounts
from ..results.run_directory import prepare_run_folder
from ..runtime.server_app import folder_of
from ..server.checks import check_nodes
from ..server.federation import Federation
from ..server.questions import sites_counts
from .page import EXAMPLES, PAGE, Inspection, inspect_page
from .skew import shares_of

LOGGER = logging.getLogger("flwr.fedbn")


@dataclass(frozen=True, eq=False)
class SitesInspection(Inspection):
    """What is to be said of data that stay at the sites, from their counts by partition or node id."""

    sites: Mapping[int, SiteCounts] = field(default_factory=dict)

    @property
    def division(self) -> str:
        return "SuperNodes"

    @cached_property
    def names(self) -> list[str]:
        return list(map(str, self.sites))

    @cached_property
    def sizes(self) -> dict[str, list[int]]:
        sites = self.sites.values()
        test = [site.test for site in sites]
        return {EXAMPLES: [s.train for s in sites], VALIDATION: [s.val for s in sites], TEST: test}

    @property
    def examples(self) -> tuple[int, int]:
        return sum(self.sizes[EXAMPLES]), sum(self.sizes[TEST])

    @property
    def lead(self) -> str:
        return f"The data of {len(self.names)} SuperNodes, by counts; nothing else has left them."

    @cached_property
    def counts(self) -> Counts | None:
        found = np.array([site.classes for site in self.sites.values()])
        return found if self.inputs.dataset.has_classes else None

    @cached_property
    def shares(self) -> Numbers | None:
        if not self.inputs.dataset.has_masks:
            return None
        return shares_of(np.array([site.classes for site in self.sites.values()]))

    @cached_property
    def features(self) -> list[Feature]:
        """Their means and deviations do not leave a site and are NaN."""
        unknown = np.full(len(self.sites), np.nan)
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
            for same in zip(*(site.features for site in self.sites.values()), strict=True)
        ]

    @cached_property
    def warnings(self) -> list[str]:
        return []


def inspect_sites(grid: Grid, federation: Federation) -> None:
    """Write the page of the sites' data, or of the data that the server has, into the run's folder."""
    config, inputs, strategy = federation.config, federation.inputs, federation.strategy
    check_nodes(strategy, grid, config.num_clients)
    found = Inspection(inputs)
    if not inputs.dataset.has_examples:
        found = SitesInspection(inputs, sites_counts(inputs, strategy, grid))
    prepare_run_folder(folder := folder_of(config))
    with os_errors_as_user_errors("run-dir", f"write to {str(folder)!r}"):
        write_atomically(folder / PAGE, inspect_page(found))
    for name, value in found.facts().items():
        LOGGER.info("%s: %s", name, value)
    LOGGER.info("the page is %s", folder / PAGE)
