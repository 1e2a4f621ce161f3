"""What the server expects of its clients' reports, before any has arrived."""

from __future__ import annotations

from fedbn_flower.clients import Problem
from fedbn_flower.clients.modules.head import features
from fedbn_flower.clients.modules.lazy_torch import torch
from fedbn_flower.strategies import ExpectedMetrics, Range
from fedbn_flower.strategies.expected import LARGEST
from fedbn_flower.strategies.messages.validation import MAX_WEIGHT
from fedbn_flower.strategies.messages.wire import (
    CLASS_EXAMPLES,
    CLASS_HITS,
    LOCAL_STEPS,
    LOSS,
    NUM_EXAMPLES,
    SENT_BYTES,
    TRAIN_EXAMPLES,
)
from fedbn_flower.strategies.settings import declared

from ...config.client_unions import parts
from ...config.registry import CLIENT, OBJECTIVE
from ...config.run_config import RunConfig
from ...records.columns import (
    CLIENT_COLUMNS,
    CLIENT_MEAN,
    COSTS,
    DEVIATION,
    GLOBAL,
    POOLED,
    PRIVACY,
    RATES,
    ROUND_COLUMNS,
    SIMULATED_SECONDS,
    STALENESS,
    STALENESS_OF_ROUND,
    TEST,
    WORST,
    WORST_TENTH,
)
from ..inputs import RunInputs

FURTHER, LONGEST = 100, 10_000
"""How many further metrics a client may report in one reply, and how many numbers their lists may hold."""
ROUNDING = 1e-6  # relative error of a mean over many examples


def known_beforehand(inputs: RunInputs, rule: type) -> dict[str, int]:
    """Return the settings of a rule that say which sizes to expect in replies (classes, features, steps).

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


def expected_metrics(problem: Problem, classes: int) -> ExpectedMetrics:
    """Return the ranges of the metrics of a problem, with ``classes`` classes or 0.

    The training loss may be any number: objectives add terms to it.
    """
    held_out = {name: Range(0.0) for name in problem.metrics}
    for name, (low, high) in problem.ranges.items():
        held_out[name] = Range(max(low - abs(low) * ROUNDING, -LARGEST), high + abs(high) * ROUNDING)
    prefixes = ("", f"{TEST}-")
    ranges = {prefix + name: known for prefix in prefixes for name, known in held_out.items()}
    ranges |= {f"train-{name}": Range() if name == LOSS else known for name, known in held_out.items()}
    ranges[NUM_EXAMPLES] = Range(1, MAX_WEIGHT, whole=True)
    for name in (TRAIN_EXAMPLES, "eval-examples", f"{TEST}-examples"):
        ranges[name] = Range(0, MAX_WEIGHT, whole=True)
    ranges[LOCAL_STEPS] = Range(0, MAX_WEIGHT)
    if classes:
        counts = Range(0, MAX_WEIGHT, whole=True, length=classes)
        ranges |= {prefix + name: counts for prefix in prefixes for name in (CLASS_HITS, CLASS_EXAMPLES)}
    return ExpectedMetrics(
        ranges,
        frozenset(
            {*ROUND_COLUMNS, *COSTS, *RATES, *PRIVACY, *CLIENT_COLUMNS, *STALENESS_OF_ROUND}
            | {SIMULATED_SECONDS, STALENESS, SENT_BYTES}
        ),
        (GLOBAL, CLIENT_MEAN, POOLED, WORST, WORST_TENTH, DEVIATION),
        FURTHER,
        LONGEST,
        {prefix + metric.state: metric.zeros() for prefix in prefixes for metric in problem.chosen.values()},
    )
