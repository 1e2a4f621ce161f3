"""Ask sites with data of their own how many training examples they have, where that number is public."""

from __future__ import annotations

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from fedbn_flower.strategies import PseudoGradientStrategy, ReplyRefused
from fedbn_flower.strategies.messages.gate import record_of
from fedbn_flower.strategies.messages.validation import MAX_WEIGHT

from ..config.making import config_at_site
from ..core.ground.columns import TRAIN
from ..core.ground.wire import QUERY_SIZES, SIZES
from ..core.partition_id import partition_id_of
from ..job.inputs import RunInputs
from ..job.tasks import rows_of
from ..privacy.floors import Refused
from ..site.inputs import inputs_at
from ..site.privacy import SitePrivacy, refusals_in_one_line
from .questions import answers_of_sites


@refusals_in_one_line
def answer_sizes(message: Message, context: Context) -> Message:
    """Tell how many training examples a site has, with ``dp`` example: there the number is public.

    It is that of units where all examples of one are protected.
    """
    config = config_at_site(context)
    SitePrivacy.of(config, context)
    if config.dp != "example":
        raise Refused(f"privacy: with dp {config.dp!r} this site does not tell how many examples it has")
    inputs = inputs_at(config, context.node_config)
    rows, units = rows_of(inputs, partition_id_of(context) or 0)[TRAIN], inputs.protected_units
    count = len(rows if units is None else np.unique(units[rows]))
    return Message(RecordDict({SIZES: ConfigRecord({TRAIN: count})}), reply_to=message)


def sites_sizes(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> dict[int, int]:
    """Return what every connected site says is its number of examples or units, by partition or node id.

    Raises
    ------
    RunFailed
        When a site does not answer with a positive whole number: the run's epsilon would not be its.
    """

    def read(content: RecordDict) -> int:
        count = record_of(content, SIZES, ConfigRecord).get(TRAIN)
        if type(count) is not int or not 0 < count <= MAX_WEIGHT:
            what = "units" if inputs.config.dp_unit else "training examples"
            raise ReplyRefused(f"{count!r} {what}, not a whole number in [1, {MAX_WEIGHT}]")
        return count

    return answers_of_sites(QUERY_SIZES, inputs, strategy, grid, read, all_of_them=True)
