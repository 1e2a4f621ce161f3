"""Evaluate the global model: on the server's examples, and on clients that never train."""

from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from torch import nn

from fedbn_flower.clients import evaluate_splits, load_entries
from fedbn_flower.strategies import PhaseReport, PseudoGradientStrategy
from fedbn_flower.strategies.messages.replies import Replies
from fedbn_flower.strategies.messages.validation import check_metrics
from fedbn_flower.strategies.messages.wire import ARRAYS, CONFIG, NUM_EXAMPLES, SERVER_ROUND

from ..config.run_config import RunConfig
from .divergence import first_to_diverge
from .exchange import Exchange
from .inputs import RunInputs
from .strategy import participation


def evaluate_global(
    inputs: RunInputs,
    model: nn.Module,
    arrays: ArrayRecord,
    splits: str,
    classes: int = 0,
    report: PhaseReport | None = None,
) -> tuple[dict[str, Any] | None, str]:
    """Return the global model's metrics, and who found that the model is no longer finite.

    Parameters
    ----------
    inputs : RunInputs
        The run's.
    model : nn.Module
        A model to load ``arrays`` into.
    splits : str
        Held-out splits, with commas; nothing is evaluated without one.
    classes : int
        How many classes are counted by themselves; 0 for none.
    report : PhaseReport, optional
        What the clients found. It decides where the server cannot evaluate.

    Returns
    -------
    tuple
        The metrics, or None where the server cannot evaluate; and a reason, or an empty string.
    """
    if not splits:
        return None, ""
    if not inputs.server_evaluates:
        of_received = inputs.config.eval_model != "local"
        at_least = min(2, inputs.config.num_training)
        return None, first_to_diverge(report, at_least) if report and of_received else ""
    load_entries(model.state_dict(), {name: array.numpy() for name, array in arrays.items()})
    held_out = {split: inputs.whole_split(split) for split in splits.split(",")}
    try:
        return evaluate_splits(model, held_out, splits, inputs.dataset.problem, classes), ""
    except FloatingPointError as error:
        return None, f"server: {error}"


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
    held_out = participation(config).held_out_clients
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
