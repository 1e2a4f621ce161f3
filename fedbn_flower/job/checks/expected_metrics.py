"""The ranges and sizes that the server expects in its clients' reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from flwr.app import MetricRecord
from numpy.typing import NDArray

from fedbn_flower.clients import PROBLEMS, Problem
from fedbn_flower.clients.modules.head import features
from fedbn_flower.clients.modules.lazy_torch import torch
from fedbn_flower.strategies import ExpectedMetrics, Range
from fedbn_flower.strategies.messages.validation import LARGEST, MAX_WEIGHT

from ...config.run_config import RunConfig
from ...core.ground import columns, wire
from ...core.ground.settings import declared
from ...names import CLIENT, OBJECTIVE, parts
from ..inputs import RunInputs

FURTHER, LONGEST = 100, 10_000
"""The most further metrics in a client's reply, and the most numbers in their lists."""
COUNT_OF = {prefix: f"{prefix or 'eval-'}examples" for prefix in columns.HELD_OUT}
"""The name of a split's number of predictions, by the prefix of its metrics."""
ROUNDING = 1e-6  # relative error of a mean over many examples


def known_beforehand(inputs: RunInputs, rule: type) -> dict[str, int]:
    """Return the settings of a rule that state expected sizes in replies (classes, features, steps).

    The number of local steps is known only for built-in clients and objectives.
    """
    config, (model, _) = inputs.config, inputs.model()
    known = {"num_clients": config.num_training}
    wanted = declared(rule).keys()
    if wanted & {"num_classes", "num_features"}:
        model.eval()
        with torch.no_grad():
            batch = inputs.initial().spec.zeros(2, config.device)
            if "num_features" in wanted:
                z, output = features(model, batch)
                known["num_features"] = z.shape[1]
            else:
                output = model(batch)
        known["num_classes"] = output.shape[1]
    if "local_epochs" in wanted and _trains_as_built_in(config):
        head_epochs = config.settings_for(CLIENT.find(config.client)).get("head_epochs", 0)
        known |= {"local_epochs": max(config.local_epochs, head_epochs), "batch_size": config.batch_size}
    return {name: value for name, value in known.items() if name in wanted}


def _trains_as_built_in(config: RunConfig) -> bool:
    custom = {*parts(config.client)} - CLIENT.names.keys()
    return not custom and config.objective in OBJECTIVE.names


def most_predictions(inputs: RunInputs, most_examples: float) -> float:
    """Return the cap on the numbers of examples and predictions that a client may report.

    It is ``max-num-examples``, times the characters of a text or the pixels of a mask, and at least the
    held-out examples if the server has them; `MAX_WEIGHT` without that key.
    """
    if not most_examples:
        return MAX_WEIGHT
    dataset = inputs.dataset
    if dataset.has_examples:
        most_examples = max(most_examples, len(dataset.test), len(inputs.partitions.val_rows))
    shape, predicts = dataset.spec.shape, dataset.spec.predicts
    each = math.prod(shape[1:]) if predicts == "masks" else shape[0] if predicts == "characters" else 1
    return min(most_examples * each, MAX_WEIGHT)


def expected_metrics(problem: Problem, classes: int, most: float = MAX_WEIGHT) -> ExpectedMetrics:
    """Return the ranges of the metrics of a problem, with ``classes`` classes or 0.

    ``most`` bounds every number of examples. The training loss may be any number: objectives add terms to it.
    """
    held_out = {name: Range(0.0) for name in problem.metrics}
    for name, (low, high) in problem.ranges.items():
        held_out[name] = Range(max(low - abs(low) * ROUNDING, -LARGEST), high + abs(high) * ROUNDING)
    prefixes = columns.HELD_OUT
    ranges = {prefix + name: known for prefix in prefixes for name, known in held_out.items()}
    ranges |= {f"train-{name}": Range() if name == wire.LOSS else known for name, known in held_out.items()}
    ranges[wire.NUM_EXAMPLES] = Range(1, most, whole=True)
    ranges[wire.TRAIN_EXAMPLES] = Range(0, MAX_WEIGHT, whole=True)
    ranges |= dict.fromkeys(COUNT_OF.values(), Range(0, most, whole=True))
    ranges[wire.LOCAL_STEPS] = Range(0, MAX_WEIGHT)
    ranges[wire.START_LOSS] = Range()
    ranges[wire.LOCAL_LENGTH] = Range(0)
    if classes:
        counts = Range(0, most, whole=True, length=classes)
        ranges |= {
            prefix + name: counts for prefix in prefixes for name in (wire.CLASS_HITS, wire.CLASS_EXAMPLES)
        }
    return ExpectedMetrics(
        ranges,
        frozenset(
            {
                *columns.ROUND_COLUMNS,
                *columns.COSTS,
                *columns.RATES,
                *columns.PRIVACY,
                *columns.CLIENT_COLUMNS,
                columns.SITE,
                *columns.STALENESS_OF_ROUND,
            }
            | {columns.SIMULATED_SECONDS, columns.STALENESS, wire.SENT_BYTES}
            | {columns.ATTACKER, columns.ATTACKERS, columns.ATTACK_SUCCESS}
        ),
        (
            columns.GLOBAL,
            columns.CLIENT_MEAN,
            columns.CLIENT_MEDIAN,
            columns.HONEST,
            columns.POOLED,
            columns.WORST,
            columns.WORST_TENTH,
            columns.DEVIATION,
        ),
        FURTHER,
        LONGEST,
        {prefix + metric.state: metric.zeros() for prefix in prefixes for metric in problem.chosen.values()},
        partial(disagreement, problem),
    )


def disagreement(problem: Problem, metrics: MetricRecord, states: Mapping[str, NDArray]) -> str:
    """Return why an answer's counts and states contradict its number of predictions; "" if they agree.

    For each evaluated split the states of the run's further metrics must be present, each over as many
    predictions as the answer reports. That number is capped, so a state weighs no more than any other report.
    """
    for prefix, key in COUNT_OF.items():
        count = metrics.get(key)
        if reason := _of_classes(problem, metrics, prefix, key):
            return reason
        if not any(prefix + name in metrics for name in problem.metrics) or not problem.chosen:
            continue
        if not isinstance(count, int | float):
            return f"{key!r} is missing, the number of predictions of the states"
        by_state = {prefix + metric.state: metric for metric in problem.chosen.values()}
        if missing := by_state.keys() - states.keys():
            return f"the state {min(missing)!r} of the run's metrics is missing"
        for name, metric in ((prefix + metric.state, metric) for metric in problem.chosen.values()):
            if _counts_as_built_in(problem) and (reason := metric.misfit(states[name], count)):
                return f"{name}: {reason}"
    return ""


def _of_classes(problem: Problem, metrics: MetricRecord, prefix: str, key: str) -> str:
    """Return why counts by class are impossible; "" if they are not, or are missing."""
    hits, examples = metrics.get(prefix + wire.CLASS_HITS), metrics.get(prefix + wire.CLASS_EXAMPLES)
    if not (isinstance(hits, list) and isinstance(examples, list)):
        return ""
    if any(hit > number for hit, number in zip(hits, examples, strict=True)):
        return f"{prefix + wire.CLASS_HITS!r} is above {prefix + wire.CLASS_EXAMPLES!r}"
    count = metrics.get(key)
    if _counts_as_built_in(problem) and isinstance(count, int | float) and sum(examples) != count:
        return f"{prefix + wire.CLASS_EXAMPLES!r} sums to {sum(examples)}, and {key!r} is {count}"
    return ""


def _counts_as_built_in(problem: Problem) -> bool:
    """Whether a problem predicts and counts as a built-in one."""
    own = (type(problem).predictions, type(problem).predicted, type(problem).by_class)
    return any(own == (cls.predictions, cls.predicted, cls.by_class) for cls in PROBLEMS.values())
