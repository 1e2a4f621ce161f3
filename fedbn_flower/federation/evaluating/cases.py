"""Which runs keep what was predicted of each held-out case, and how these are called."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fedbn_flower.clients.problems.evaluation import ROWS as CASE_ROWS
from fedbn_flower.clients.problems.evaluation import SHOWN
from fedbn_flower.clients.problems.metrics.base import CLASSES
from fedbn_flower.clients.problems.segmentation import SCORES, SLICES, slice_numbers
from fedbn_flower.clients.problems.surfaces import thinned
from fedbn_flower.strategies import PhaseReport
from fedbn_flower.strategies.messages.nodes import NodeDirectory
from fedbn_flower.strategies.messages.npy import viewed

from ...core.errors import not_allowed
from ...core.ground.columns import TEST, VALIDATION
from ...data.dataset import Split
from ...extensions.predictions import MOST_SCORES
from ...records.cases import CaseColumns, Cases, predictions_file
from ...records.events import RoundResult
from ...records.overlays import DICE, IMAGE, PREDICTION, REFERENCE, ROWS, in_8_bits, overlays_file
from ..inputs import RunInputs


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
    if dataset.spec.predicts not in ("classes", "numbers") and not dataset.problem.case_metrics:
        reason = f"data of {dataset.spec.predicts} have many predictions a case"
    elif not dataset.problem.predicts:
        reason = f"problem {config.problem!r} does not say what it predicts"
    elif config.subgroups and dataset.problem.case_metrics:
        reason = "a case is a mask"
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
    of_masks = dataset.problem.case_metrics and len(case_columns(inputs, TEST).scores)
    return len(dataset.test) * times * (of_masks or dataset.spec.outputs)


def case_columns(inputs: RunInputs, split: str) -> CaseColumns:
    """Return the columns of the table of a split's cases."""
    dataset = inputs.dataset
    rows = dataset.train if split == VALIDATION else dataset.test
    problem, names, config = dataset.problem, dataset.named_here.outcomes, inputs.config
    of_masks = problem.case_columns(names) if problem.case_metrics else None
    one_of = problem.predicts == CLASSES
    of_rows = rows.subgroups, of_masks, rows.unit_names, rows.origins
    return CaseColumns(names, one_of, config.seed, rows.units, config.fold, *of_rows)


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


def file_of_overlays(result: RoundResult, inputs: RunInputs) -> bytes:
    """Return the content of ``overlays.safetensors`` after a round; empty unless clients sent slices."""
    dataset = inputs.dataset
    split = dataset.train if result.splits.split(",")[-1] == VALIDATION else dataset.test
    return overlays_file(
        {partition: _overlays(found, split) for partition, found in result.cases.items() if SHOWN in found}
    )


def _overlays(found: Cases, split: Split) -> dict[str, NDArray]:
    """Return the slices of a client's cases, as `records.overlays.Overlays`."""
    shown = found[SHOWN]
    rows = found[CASE_ROWS][shown]
    images, masks = np.asarray(split.columns["x"][rows]), np.asarray(split.columns["y"][rows])
    places = slice_numbers(masks)
    if places is not None:
        numbers = np.arange(len(rows))
        images, masks = images[numbers, :, places], masks[numbers, places]
    return {
        IMAGE: in_8_bits(thinned(images)),
        REFERENCE: thinned(masks).astype(np.uint8),
        PREDICTION: found[SLICES],
        ROWS: rows,
        DICE: found[SCORES][shown, 0],
    }
