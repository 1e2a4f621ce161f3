"""Ask sites that have data of their own for sums over these, before the first round."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from fedbn_flower.strategies import Participation, PseudoGradientStrategy, ReplyRefused
from fedbn_flower.strategies.messages.gate import answers, numbers_of
from fedbn_flower.strategies.messages.npy import encoded
from fedbn_flower.strategies.messages.validation import MAX_WEIGHT

from ..config.making import config_at_site
from ..core.errors import RunFailed, not_allowed
from ..core.ground.columns import TRAIN, VALIDATION
from ..core.ground.wire import FEATURE_MEAN, FEATURE_STD, MOMENTS, QUERY_MOMENTS
from ..core.partition_id import partition_id_of
from ..data.images.moments import Scale
from ..data.scales import SiteMoments, median_scale, notable, pooled_scale, received
from ..job.inputs import RunInputs
from ..job.tasks import rows_of
from ..privacy.floors import refuse_statistics
from ..site.inputs import inputs_at
from ..site.privacy import SitePrivacy, refusals_in_one_line

LOGGER = logging.getLogger("flwr.fedbn")
SHOWN = 8
"""Values of a mean that the log shows."""
MOST_ARRAYS = 8
"""Arrays of a site's moments."""

T = TypeVar("T")


def answers_of_sites(
    query: str,
    inputs: RunInputs,
    strategy: PseudoGradientStrategy,
    grid: Grid,
    read: Callable[[RecordDict], T],
    all_of_them: bool = False,
    who: Participation | None = None,
) -> dict[int, T]:
    """Return what ``read`` makes of the nodes' answers to a query, by partition or node id.

    The nodes are those connected that take part, by default in the rounds. One whose answer cannot be used,
    or does not come within ``round-timeout`` seconds, is left out, with a warning that names it. So a site
    costs only itself: it may still train, by what the others have told.

    Raises
    ------
    RunFailed
        When no answer can be used, or one cannot and ``all_of_them`` are needed.
    """
    nodes = strategy.node_directory
    members, _ = nodes.taking_part(who or strategy.node_participation, 1)
    messages = [Message(RecordDict(), node, query) for node in members]
    replies = grid.send_and_receive(messages, timeout=inputs.config.round_timeout)
    found: dict[int, T] = {}
    lines: list[str] = []
    silent = set(members)
    for node, answer in answers(messages, replies, read):
        silent.discard(node)
        if isinstance(answer, ReplyRefused):
            lines.append(f"{query}: {nodes.name(node)}: {answer}")
        else:
            found[nodes.partition(node)] = answer
    if silent:
        missing = ", ".join(nodes.name(node) for node in sorted(silent, key=nodes.rank))
        lines.append(f"{query}: no answer within {inputs.config.round_timeout:g} s from {missing}")
    if not found or (lines and all_of_them):
        raise RunFailed("; ".join(lines[:SHOWN]) or f"{query}: no site takes part")
    for line in lines:
        LOGGER.warning("%s: left out", line)
    return dict(sorted(found.items()))


def sites_scale(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> dict[str, list[float]]:
    """Return mean and deviation over the training examples of all sites, as sites get them.

    They are by channel of images, by column of tables, and by the first axis of other numbers: of all values,
    or of the median site with ``normalize`` ``median``. Sites that stand out are named in a warning.

    Empty without ``normalize``, and where the server has the data.

    Raises
    ------
    UserError
        When the data are text.
    RunFailed
        When no site answers with the moments of at least one example of such data.
    """
    config, spec = inputs.config, inputs.dataset.spec
    if not config.normalize or inputs.dataset.has_examples:
        return {}
    if spec.predicts == "characters":
        raise not_allowed("normalize", config.normalize, f"false, since the data are {spec}")
    most = (strategy._max_weight_ or MAX_WEIGHT) * math.prod(spec.shape[1:])

    def read(content: RecordDict) -> SiteMoments:
        try:
            return received(numbers_of(content, MOMENTS, MOST_ARRAYS, spec.shape[0]), spec.shape[0], most)
        except ValueError as error:
            raise ReplyRefused(str(error)) from None

    sites = _of_one_kind(answers_of_sites(QUERY_MOMENTS, inputs, strategy, grid, read))
    by_median = config.normalize == "median"
    names = {f"site {site}": moments for site, moments in sites.items()}
    for line in () if by_median else notable(names):
        LOGGER.warning("normalize: %s; normalize 'median' goes by the median site", line)
    scale = (median_scale if by_median else pooled_scale)(list(sites.values()))
    means, stds = (", ".join(f"{value:.4g}" for value in values[:SHOWN]) for values in scale)
    more = ", ..." if len(scale.mean) > SHOWN else ""
    over = "medians" if by_median else "over the training examples"
    told = (f"{means}{more}", f"{stds}{more}", over, len(sites))
    LOGGER.info("normalize: mean %s, deviation %s, %s of %d sites", *told)
    return {FEATURE_MEAN: list(scale.mean), FEATURE_STD: list(scale.std)}


def _of_one_kind(sites: Mapping[int, SiteMoments]) -> dict[int, SiteMoments]:
    """Return the sites whose moments are of the kind that most have: images, or numbers."""
    ((kind, _),) = Counter(map(type, sites.values())).most_common(1)
    for site, moments in sites.items():
        if type(moments) is not kind:
            LOGGER.warning(
                "%s: site %s: data of another kind than the others': left out", QUERY_MOMENTS, site
            )
    return {site: moments for site, moments in sites.items() if type(moments) is kind}


def received_scale(config: ConfigRecord) -> Scale | None:
    """Return what `sites_scale` gives, from the configuration of a message; None if it has none."""
    if FEATURE_MEAN not in config:
        return None
    return Scale(*(tuple(map(float, config[name])) for name in (FEATURE_MEAN, FEATURE_STD)))  # type: ignore[arg-type]


@refusals_in_one_line
def answer_moments(message: Message, context: Context) -> Message:
    """Tell the moments of a site's training examples, without those of the fold that is tested on."""
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
