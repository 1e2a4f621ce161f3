"""A site's answers to the queries before the first round, as far as its owner and the run permit them."""

from __future__ import annotations

import json
import logging

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedbn_flower.strategies.messages.npy import encoded

from ..config.making import config_at_site
from ..core.errors import UserError, not_allowed
from ..core.ground.columns import TRAIN, VALIDATION
from ..core.ground.wire import COUNTS, FEATURE_MEAN, FEATURE_STD, MOMENTS, NAMES, SIZES
from ..core.partition_id import partition_id_of
from ..data.images.moments import Scale
from ..job.inputs import RunInputs
from ..job.site_facts import SiteCounts, digest_of, names_of, shown_names, told_names
from ..job.tasks import rows_of
from ..privacy.floors import Refused, refuse_statistics
from .inputs import inputs_at
from .privacy import SitePrivacy, refusals_in_one_line

LOGGER = logging.getLogger("flwr.fedbn")


def received_scale(config: ConfigRecord) -> Scale | None:
    """Return the result of `sites_scale` from a message's configuration; None if it has none."""
    if FEATURE_MEAN not in config:
        return None
    return Scale(*(tuple(map(float, config[name])) for name in (FEATURE_MEAN, FEATURE_STD)))  # type: ignore[arg-type]


@refusals_in_one_line
def answer_moments(message: Message, context: Context) -> Message:
    """Report the moments of a site's training examples, excluding the fold that is tested on."""
    config = config_at_site(context)
    SitePrivacy.of(config, context)
    refuse_statistics(config, "moments")
    inputs = inputs_at(config, context.node_config)
    kind = inputs.dataset.kind
    if config.folds and inputs.data_path:
        rows = rows_of(inputs, partition_id_of(context) or 0)
        kind = kind.of_rows(np.sort(np.concatenate([rows[TRAIN], rows[VALIDATION]])))
    moments = kind.moments() if inputs.dataset.has_examples else {}
    if not moments:
        wanted = "a data-path in the node config, to images or numbers"
        raise not_allowed("data-path", context.node_config.get("data-path", ""), wanted)
    record = ArrayRecord({name: encoded(array) for name, array in moments.items()})
    return Message(RecordDict({MOMENTS: record}), reply_to=message)


@refusals_in_one_line
def answer_counts(message: Message, context: Context) -> Message:
    """Report the counts of a site's data."""
    config = config_at_site(context)
    SitePrivacy.of(config, context)
    refuse_statistics(config, "counts")
    inputs = inputs_at(config, context.node_config)
    if not inputs.dataset.has_examples:
        raise not_allowed("data-path", "", "a data-path in the node config")
    counts = SiteCounts.of(inputs, partition_id_of(context) or 0)
    return Message(RecordDict({COUNTS: ConfigRecord({COUNTS: counts.model_dump_json()})}), reply_to=message)


@refusals_in_one_line
def answer_sizes(message: Message, context: Context) -> Message:
    """Report a site's number of training examples, with ``dp`` example only, where it is public.

    With ``dp-unit`` it is the number of privacy units.
    """
    config = config_at_site(context)
    SitePrivacy.of(config, context)
    if config.dp != "example":
        raise Refused(f"privacy: with dp {config.dp!r} this site does not tell how many examples it has")
    inputs = inputs_at(config, context.node_config)
    rows, units = rows_of(inputs, partition_id_of(context) or 0)[TRAIN], inputs.protected_units
    count = len(rows if units is None else np.unique(units[rows]))
    return Message(RecordDict({SIZES: ConfigRecord({TRAIN: count})}), reply_to=message)


@refusals_in_one_line
def answer_names(message: Message, context: Context) -> Message:
    """Report the names of a site's classes; with ``dp`` or secure aggregation only their digest."""
    config = config_at_site(context)
    SitePrivacy.of(config, context)
    names = names_of(inputs_at(config, context.node_config))
    for what, several in names.items():
        numbered = [f"{number} {name!r}" for number, name in enumerate(several)]
        LOGGER.info("%s here: %s", what, ", ".join(numbered))
    told = json.dumps(told_names(config, names))
    return Message(RecordDict({NAMES: ConfigRecord({NAMES: told})}), reply_to=message)


def check_names_here(inputs: RunInputs, digests: str) -> None:
    """Refuse a site whose class names differ from those of the run's first sites, which have these digests.

    Raises
    ------
    UserError
        When they differ, with the site's own names, or their digest if names may not leave.
    """
    first = json.loads(digests)
    for what, names in told_names(inputs.config, names_of(inputs)).items():
        if digest_of({what: names}) != first.get(what, digest_of({what: names})):
            told = "expected those of the sites that the run began with, in the same order"
            raise UserError(f"data-path: the {what} are {shown_names(names)} here; {told}")
