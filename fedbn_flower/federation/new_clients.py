"""Clients that never train: how the model does at a site that it has not seen."""

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict

from fedbn_flower.strategies import PhaseReport, PseudoGradientStrategy
from fedbn_flower.strategies.messages.replies import Replies
from fedbn_flower.strategies.messages.validation import check_metrics
from fedbn_flower.strategies.messages.wire import ARRAYS, CONFIG, NUM_EXAMPLES, SERVER_ROUND

from ..config.run_config import RunConfig
from .exchange import Exchange
from .strategy import participation


def evaluate_new(
    config: RunConfig,
    strategy: PseudoGradientStrategy,
    exchange: Exchange,
    server_round: int,
    arrays: ArrayRecord,
    told: ConfigRecord,
) -> PhaseReport:
    """What the model comes to at the clients held out: all of them, whoever else is asked.

    A client without a memory estimates its own BatchNorm statistics, if it has any, on its training examples
    (AdaBN). The strategy's rule and its means have no part in it.
    """
    nodes = strategy.node_directory
    held_out = participation(config).held_out
    connected = nodes.connected(exchange.grid, 1, "holdout-clients")
    content = RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord({**told, SERVER_ROUND: server_round})})
    messages = [
        Message(content, node, MessageType.EVALUATE)
        for node in connected
        if nodes.partition(node) in held_out
    ]
    replies, phase = Replies(nodes), "new clients"
    replies.expect(phase, server_round, messages)
    answers = exchange.answers(MessageType.EVALUATE, messages)

    def read(content: RecordDict) -> MetricRecord:
        _, metrics = check_metrics(content, NUM_EXAMPLES)
        strategy.expected_metrics.check(metrics)
        return metrics

    for _, partition, metrics in replies.usable(phase, server_round, answers, read):
        replies.report.metrics[partition] = metrics
    return replies.report
