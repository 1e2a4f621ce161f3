"""Whether a study fits the sites of a consortium, each of which brings its data and has bounds."""

import os
import re
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import tomli_w

from ..config.keys import RUN_KEYS
from ..config.making import run_config
from ..config.named_algorithms import NOT_GIVEN
from ..config.run_config import EMBEDDED, RunConfig
from ..core.errors import UserError, not_allowed
from ..core.files import path_of
from ..core.partition_id import NODE_KEYS, name_of_data
from ..data.column_text import split_words
from ..models import InputSpec
from ..privacy.accounts import Release, composed_epsilon
from ..privacy.floors import Floors, Refused
from ..privacy.local_privacy import noise_of
from ..privacy.site_metrics import metrics_noise
from ..site.inputs import inputs_at
from ..site.ledger import SiteLedger, path_of_ledger
from .agreement import BOUNDS, Value
from .findings import Finding

NOTHING_KNOWN = {"state-dir": os.devnull, "data-path": os.devnull}
"""Of a site's data and ledger, at the operator."""


def study_config(keys: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a study whose sites bring their data.

    Raises
    ------
    UserError
        As `run_config` and `inputs_at`; for a site's own key, and where ``dataset`` does not say what the
        sites' data are.
    """
    if others := (keys.keys() & {*NODE_KEYS}) - RUN_KEYS.keys():
        raise UserError(f"{min(others)}: a site sets it in its node config, or a kit has it; no study does")
    if (dataset := keys.get("dataset", "")) in ("", *EMBEDDED):
        wanted = "shape:SIZES:OUTPUTS, which says what the sites' data are, as shape:4:2 or shape:1x28x28:10"
        raise not_allowed("dataset", dataset, wanted)
    config, shape = run_config(keys), InputSpec.parse(str(dataset))
    inputs_at(config, NOTHING_KNOWN)
    if shape and config.columns != NOT_GIVEN:
        if len(shape.shape) > 1 or shape.predicts == "characters":
            wanted = f"'auto' with dataset {dataset!r}, or the dataset of a table, shape:COLUMNS:OUTPUTS"
            raise not_allowed("columns", config.columns, wanted)
        width = sum(re.sub(r"\\.", "", word).count("|") + 1 for word in split_words(config.columns))
        if shape.size != width:
            wanted = f"shape:{width}:..., as many columns as there are once encoded, of {config.columns!r}"
            raise not_allowed("dataset", dataset, wanted)
    return config


def of_bounds(config: RunConfig, site: dict[str, Value]) -> Iterator[Finding]:
    """Compare a study with each bound in the node config of a site."""
    for key in filter(BOUNDS.__contains__, site):
        why = ""
        try:
            _check_bound(config, key, NOTHING_KNOWN | site)
        except UserError as error:
            why = str(error)
        yield Finding("bound", tomli_w.dumps({key: site[key]}).strip(), why)


def _check_bound(config: RunConfig, key: str, site: Mapping[str, Value]) -> None:
    """Refuse a study that a site would not answer because of one of its bounds, whatever its data."""
    beside = ("dp-max-delta", "state-dir") if key == "dp-max-epsilon" else ()
    floors = Floors.checked({name: site[name] for name in (key, *beside) if name in site}, config)
    floors.check_noise(min(_noises(config), default=inf))
    if floors.dp_max_epsilon and config.dp == "local" and config.fraction_train == 1:
        run = Release(noise_of(config) / 2, count=config.rounds)
        ledger = path_of_ledger(path_of(str(site["state-dir"])), name_of_data(str(site["data-path"])))
        before = (entry.release for entry in SiteLedger(ledger).entries())
        epsilon = composed_epsilon([*before, run], floors.dp_max_delta)
        if epsilon > floors.dp_max_epsilon:
            raise Refused(f"{key}: with the rounds of this run, epsilon would be {epsilon:.3f} over all runs")


def _noises(config: RunConfig) -> Iterator[float]:
    """Yield the noise of what leaves a site, as far as it does not depend on how many examples sites have."""
    if config.dp == "local":
        yield noise_of(config)
    if config.dp == "example" and config.dp_noise:
        yield config.dp_noise
    if config.dp_metrics and config.clients_evaluate:
        yield metrics_noise(config)
