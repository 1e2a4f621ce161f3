"""Ask sites that have data of their own for sums over these, before the first round."""

from __future__ import annotations

import logging
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from fedbn_flower.strategies import PseudoGradientStrategy
from fedbn_flower.strategies.messages.npy import encoded
from fedbn_flower.strategies.messages.wire import FEATURE_MEAN, FEATURE_STD, MOMENTS, QUERY_MOMENTS

from ...config.run_config import RunConfig
from ...core.errors import RunFailed, not_allowed
from ...data.images.moments import Moments, Scale
from ...data.numeric import FeatureMoments
from ...privacy.site import SitePrivacy, refusals_in_one_line, refuse_statistics
from ..inputs import RunInputs
from ..tasks import inputs_at

LOGGER = logging.getLogger("flwr.fedbn")
SHOWN = 8
"""Values of a mean that the log shows."""


def answers_of_sites(
    query: str, inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid
) -> dict[int, RecordDict]:
    """Return the answers of the connected nodes that take part to a query, by partition or node id.

    Raises
    ------
    RunFailed
        When one of them cannot answer, or does not within ``round-timeout`` seconds.
    """
    nodes = strategy.node_directory
    members, _ = nodes.taking_part(strategy.node_participation, 1)
    messages = [Message(RecordDict(), node, query) for node in members]
    replies = grid.send_and_receive(messages, timeout=inputs.config.round_timeout)
    asked = {message.metadata.message_id: message.metadata.dst_node_id for message in messages}
    found: dict[int, RecordDict] = {}
    for reply in replies:
        node = asked.pop(reply.metadata.reply_to_message_id, None)
        if node is None:
            continue
        if reply.has_error():
            raise RunFailed(f"{query}: {nodes.name(node)}: {reply.error.reason}")
        found[nodes.partition(node)] = reply.content
    if asked:
        missing = ", ".join(nodes.name(node) for node in sorted(asked.values(), key=nodes.rank))
        raise RunFailed(f"{query}: no answer within {inputs.config.round_timeout:g} s from {missing}")
    return dict(sorted(found.items()))


def sites_scale(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> dict[str, list[float]]:
    """Return mean and deviation over the training examples of all sites, as sites get them.

    They are by channel of images, by column of tables, and by the first axis of other numbers.

    Empty without ``normalize``, and where the server has the data.

    Raises
    ------
    UserError
        When the data are text.
    RunFailed
        When a site does not answer with the moments of at least one example of such data.
    """
    config, spec = inputs.config, inputs.dataset.spec
    if not config.normalize or inputs.dataset.has_examples:
        return {}
    if spec.predicts == "characters":
        raise not_allowed("normalize", True, f"false, since the data are {spec}")
    found: Any = None
    answers = answers_of_sites(QUERY_MOMENTS, inputs, strategy, grid)
    for site, content in answers.items():
        arrays = {name: array.numpy() for name, array in content.array_records[MOMENTS].items()}
        kind = type(found) if found else Moments if "sums" in arrays else FeatureMoments
        try:
            here = kind.received(arrays, spec.shape[0])
        except ValueError as error:
            raise RunFailed(f"{QUERY_MOMENTS}: site {site}: {error}") from None
        found = found + here if found else here
    scale = found.scale()
    means, stds = (", ".join(f"{value:.4g}" for value in values[:SHOWN]) for values in scale)
    more = ", ..." if len(scale.mean) > SHOWN else ""
    told = (f"{means}{more}", f"{stds}{more}", len(answers))
    LOGGER.info("normalize: mean %s, deviation %s, over the training examples of %d sites", *told)
    return {FEATURE_MEAN: list(scale.mean), FEATURE_STD: list(scale.std)}


def received_scale(config: ConfigRecord) -> Scale | None:
    """Return what `sites_scale` gives, from the configuration of a message; None if it has none."""
    if FEATURE_MEAN not in config:
        return None
    return Scale(*(tuple(map(float, config[name])) for name in (FEATURE_MEAN, FEATURE_STD)))  # type: ignore[arg-type]


@refusals_in_one_line
def answer_moments(message: Message, context: Context) -> Message:
    """Tell the moments of a site's training examples."""
    config = RunConfig.of(context.run_config)
    SitePrivacy.of(config, context)
    refuse_statistics(config, "moments")
    dataset = inputs_at(config, context.node_config).dataset
    moments = dataset.kind.moments() if dataset.has_examples else {}
    if not moments:
        wanted = "a data-path in the node config, to images or numbers"
        raise not_allowed("data-path", context.node_config.get("data-path", ""), wanted)
    record = ArrayRecord({name: encoded(array) for name, array in moments.items()})
    return Message(RecordDict({MOMENTS: record}), reply_to=message)
