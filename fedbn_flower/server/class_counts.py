"""How many examples of each class each client has, for rules that weigh clients by it."""

from __future__ import annotations

import logging

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedbn_flower.data.statistics import class_counts
from fedbn_flower.strategies import PseudoGradientStrategy
from fedbn_flower.strategies.aggregation.rule_state import CLASS_COUNTS

from ..core.text import listed
from ..job.inputs import RunInputs
from ..job.what_is_learnt import MAX_SHOWN
from .questions import sites_counts

LOGGER = logging.getLogger("flwr.fedbn")


def learn_class_counts(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> None:
    """Give a rule that is about classes the counts of all clients, once: they are in its state from then on.

    The server counts where it has the data; sites that have their own are asked. One whose counts cannot be
    used has zeros, with a warning.

    Raises
    ------
    RunFailed
        When no site's counts can be used.
    """
    if type(strategy).of_classes and CLASS_COUNTS not in strategy.rule_state.vectors:
        strategy.rule_state.vectors[CLASS_COUNTS] = _counts(inputs, strategy, grid)


def _counts(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> NDArray[np.float64]:
    if inputs.dataset.has_examples:
        return class_counts(inputs.dataset, inputs.partitions.train).astype(np.float64)
    found = sites_counts(inputs, strategy, grid)
    counts = np.zeros((inputs.config.num_clients, inputs.dataset.spec.outputs))
    for partition in found.keys() & range(len(counts)):
        counts[partition] = found[partition].classes
    if missing := [str(partition) for partition in range(len(counts)) if partition not in found]:
        LOGGER.warning(
            "strategy %r: no counts of classes from partition %s: what it answers weighs nothing",
            *(inputs.config.strategy, listed(missing, MAX_SHOWN)),
        )
    return counts
