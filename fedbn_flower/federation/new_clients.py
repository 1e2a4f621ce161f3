"""Evaluate the model on clients that never train."""

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
    config_record: ConfigRecord,
) -> PhaseReport:
    """Evaluate the model on every held-out client.

    A client without a memory estimates its BatchNorm statistics, where they are local, on its training
    examples (AdaBN). The strategy neither samples these clients nor averages their metrics.
    """
    nodes = strategy.node_directory
    held_out = participation(config).held_out
    connected = nodes.connected(exchange.grid, 1, "holdout-clients")
    content = RecordDict(
        {ARRAYS: arrays, CONFIG: ConfigRecord({**config_record, SERVER_ROUND: server_round})}
    )
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
