"""Which runs keep the predictions of each held-out case, and the names of their columns and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.problems.evaluation import ROWS, SHOWN
from fedbn_flower.clients.problems.metrics.base import CLASSES
from fedbn_flower.clients.problems.segmentation import SCORES, SLICES, TARGETS, slice_numbers
from fedbn_flower.clients.problems.surfaces import thinned

from ..config.run_config import RunConfig
from ..core.errors import Conflict, refuse
from ..core.ground.columns import TEST, TRAIN, VALIDATION
from ..data.dataset import Split
from ..extensions.evaluating import MOST_SCORES
from ..records.cases import (
    DICE,
    IMAGE,
    PREDICTION,
    REFERENCE,
    CaseColumns,
    Cases,
    in_8_bits,
    overlays_file,
    predictions_file,
)
from ..records.events import RoundResult
from .inputs import RunInputs
from .tasks import of_every_split, rows_of


def keeps_cases(inputs: RunInputs) -> bool:
    """Return whether a run keeps the predictions of its clients.

    Raises
    ------
    UserError
        When ``predictions`` is on, and an example has several predictions or an unknown number; with
        ``subgroups``, also when it has several targets.
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
    elif config.subgroups and len(case_columns(inputs, TEST).targets) > 1:
        reason = "a case has several labels or numbers"
    if reason:
        refuse(_of_cases(config, reason))
    return not reason and (stated or _scores(inputs) <= MOST_SCORES)


def _of_cases(config: RunConfig, reason: str) -> Iterator[Conflict]:
    """Yield the keys that need single cases, in a run that has none for this reason."""
    if config.subgroups:
        yield Conflict("subgroups", config.subgroups, f"none: {reason}")
    if config.predictions == "on":
        yield Conflict("predictions", "on", f"'auto' or 'off': {reason}")


def _scores(inputs: RunInputs) -> int:
    """Return how many scores the clients' held-out cases have; 0 if only sites know."""
    dataset = inputs.dataset
    times = 1 if inputs.evaluates_locally else inputs.config.num_clients
    of_masks = dataset.problem.case_metrics and len(case_columns(inputs, TEST).scores)
    cases, left_out = len(dataset.test) * times, inputs.config.left_out
    if dataset.has_examples and left_out >= 0:
        cases += len(of_every_split(rows_of(inputs, left_out))[0])
    return cases * (of_masks or dataset.spec.outputs)


def case_columns(inputs: RunInputs, split: str) -> CaseColumns:
    """Return the columns of the table of a split's cases."""
    dataset = inputs.dataset
    rows = dataset.test if split == TEST else dataset.train
    problem, names, config = dataset.problem, dataset.named_here.outcomes, inputs.config
    of_masks = problem.case_columns(names) if problem.case_metrics else None
    one_of = problem.predicts == CLASSES
    of_rows = rows.subgroups, of_masks, rows.unit_names, rows.origins, split
    return CaseColumns(names, one_of, config.seed, rows.units, config.fold, *of_rows)


def file_of_cases(result: RoundResult, inputs: RunInputs) -> bytes:
    """Return the content of ``predictions.parquet`` after a round; empty if no client has sent its cases."""
    found = {**result.evaluate.cases, **(result.new.cases if result.new else {})}
    if not found:
        return b""
    names = inputs.client_names
    by_name = {partition: names[partition] if names else str(partition) for partition in found}
    return predictions_file(*case_parts(found, by_name, inputs, result.splits.split(",")[-1]))


def case_parts(
    cases: Mapping[int, Cases], names: Mapping[int, str], inputs: RunInputs, split: str
) -> Iterator[tuple[dict[str, Cases], CaseColumns]]:
    """Yield the parts of the file of cases: clients that train, held-out ones, and one that is left out.

    Parameters
    ----------
    cases : Mapping
        Cases by partition; -1 for a site that does not know its partition.
    names : Mapping
        The sites' names, by partition.
    inputs : RunInputs
        The run's.
    split : str
        The split that was asked for. A client that is left out has all of its examples instead.
    """
    columns, left_out = case_columns(inputs, split), inputs.config.left_out
    new = [partition for partition in cases if partition in inputs.held_out_clients]
    yield {names[p]: cases[p] for p in cases if p not in new}, columns
    yield {names[p]: cases[p] for p in new if p != left_out}, replace(columns, new=True)
    if left_out in new:
        found, (kept, tested) = cases[left_out], of_every_split(rows_of(inputs, left_out))
        is_kept = found[ROWS] < len(kept)
        for name, which, rows in ((TRAIN, is_kept, kept), (TEST, ~is_kept, tested)):
            part = {key: found[key][which] for key in (SCORES, TARGETS)} | {ROWS: rows}
            yield {names[left_out]: part}, replace(case_columns(inputs, name), new=True)


def file_of_overlays(result: RoundResult, inputs: RunInputs) -> bytes:
    """Return the content of ``overlays.safetensors`` after a round; empty unless clients sent slices."""
    dataset = inputs.dataset
    split = dataset.train if result.splits.split(",")[-1] == VALIDATION else dataset.test
    return overlays_file(
        {
            partition: _overlays(found, split)
            for partition, found in result.evaluate.cases.items()
            if SHOWN in found
        }
    )


def _overlays(found: Cases, split: Split) -> dict[str, NDArray]:
    """Return the slices of a client's cases, as `records.cases.Overlays`."""
    shown = found[SHOWN]
    rows = found[ROWS][shown]
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
