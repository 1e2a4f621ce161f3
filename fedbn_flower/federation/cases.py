"""Which runs keep what was predicted of each held-out case, and how these are called."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fedbn_flower.clients.problems.metrics.base import CLASSES
from fedbn_flower.strategies import PhaseReport
from fedbn_flower.strategies.messages.nodes import NodeDirectory
from fedbn_flower.strategies.messages.npy import viewed

from ..core.errors import not_allowed
from ..core.ground.columns import VALIDATION
from ..extensions.predictions import MOST_SCORES
from ..records.cases import CaseColumns, Cases, predictions_file
from ..records.events import RoundResult
from .inputs import RunInputs


def keeps_cases(inputs: RunInputs) -> bool:
    """Return whether a run keeps the predictions of its clients.

    Raises
    ------
    UserError
        When ``predictions`` is on, and an example has more than one prediction or none that is known; with
        ``subgroups`` also when it has more than one target.
    """
    config, dataset = inputs.config, inputs.dataset
    if config.predictions == "off" or config.dp != "none":
        return False
    stated = bool(config.subgroups) or config.predictions == "on"
    reason = ""
    if dataset.spec.predicts not in ("classes", "numbers"):
        reason = f"data of {dataset.spec.predicts} have many predictions a case"
    elif not dataset.problem.predicts:
        reason = f"problem {config.problem!r} does not say what it predicts"
    elif config.subgroups and len(case_columns(inputs, "").targets) > 1:
        reason = "a case has several labels or numbers"
    if config.subgroups and reason:
        raise not_allowed("subgroups", config.subgroups, f"none: {reason}")
    if config.predictions == "on" and reason:
        raise not_allowed("predictions", "on", f"'auto' or 'off': {reason}")
    return not reason and (stated or _scores(inputs) <= MOST_SCORES)


def _scores(inputs: RunInputs) -> int:
    """Return how many scores the clients' held-out cases have; 0 where only sites know."""
    dataset = inputs.dataset
    times = 1 if inputs.evaluates_locally else inputs.config.num_training
    return len(dataset.test) * times * dataset.spec.outputs


def case_columns(inputs: RunInputs, split: str) -> CaseColumns:
    """Return the columns of the table of a split's cases."""
    dataset = inputs.dataset
    rows = dataset.train if split == VALIDATION else dataset.test
    one_of = dataset.problem.predicts == CLASSES
    config = inputs.config
    return CaseColumns(dataset.output_names, one_of, config.seed, rows.units, config.fold, rows.subgroups)


def cases_used(
    sent: Mapping[int, ArrayRecord], nodes: NodeDirectory, report: PhaseReport
) -> dict[int, dict[str, NDArray]]:
    """Return the cases of the clients whose answers were used, by partition, in its order."""
    by_partition = {nodes.partition(node): record for node, record in sent.items()}
    return {
        partition: {name: np.array(viewed(array)) for name, array in record.items()}
        for partition, record in sorted(by_partition.items())
        if partition in report.metrics
    }


def file_of_cases(result: RoundResult, inputs: RunInputs) -> bytes:
    """Return the content of ``predictions.parquet`` after a round; empty if no client has sent its cases."""
    if not result.cases:
        return b""
    names = inputs.client_names
    sites: dict[str, Cases] = {
        names[partition] if names else str(partition): found for partition, found in result.cases.items()
    }
    return predictions_file(sites, case_columns(inputs, result.splits.split(",")[-1]))
