"""Evaluation of a model on held-out examples: sums over batches, and the metrics that follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..examples import Examples
from ..modules.lazy_torch import nn, torch
from ..modules.rng import seeded
from .base import Problem

EVALUATION_BATCH = 1000


class BatchSums(NamedTuple):
    """What is added up over the batches of an evaluation."""

    sums: dict[str, float]
    """The loss and the problem's scores, by name, summed over the batch's predictions."""
    predictions: int
    counts: dict[str, torch.Tensor]
    """See `Problem.by_class`."""


def evaluate_splits(
    model: nn.Module, examples: Mapping[str, Examples], splits: str, problem: Problem, classes: int = 0
) -> dict[str, Any]:
    """Evaluate a model on comma-separated splits; see `metrics_of_splits`."""
    return metrics_of_splits(evaluate_share(model, examples, splits, problem, classes), model, problem)


def evaluate_share(
    model: nn.Module,
    examples: Mapping[str, Examples],
    splits: str,
    problem: Problem,
    classes: int = 0,
    share: tuple[int, int] = (0, 1),
) -> dict[str, list[BatchSums]]:
    """Return the sums of a share of each split's batches; see `evaluate_batches`."""
    names = filter(None, splits.split(","))
    return {name: evaluate_batches(model, examples[name], problem, classes, share) for name in names}


def metrics_of_splits(
    batches: Mapping[str, Iterable[BatchSums]], model: nn.Module, problem: Problem
) -> dict[str, Any]:
    """Return the metrics of each split's batches.

    The first split's metrics have their plain names (``loss``, ``accuracy``), and ``eval-examples`` is the
    number of predictions. The other splits' are ``SPLIT-loss``, ... and ``SPLIT-examples``. Counts by class
    are lists.

    Raises
    ------
    FloatingPointError
        When a mean loss is not finite.
    """
    metrics: dict[str, Any] = {}
    for i, (split, found) in enumerate(batches.items()):
        prefix = f"{split}-" if i else ""
        of_split, predictions = metrics_of(found, model, problem)
        metrics |= {prefix + name: value for name, value in of_split.items()}
        metrics[f"{split if i else 'eval'}-examples"] = predictions
    return metrics


def evaluate_batches(
    model: nn.Module, examples: Examples, problem: Problem, classes: int = 0, share: tuple[int, int] = (0, 1)
) -> list[BatchSums]:
    """Return the sums of each batch, in evaluation mode.

    Parameters
    ----------
    classes : int
        The number of classes; 0 for no counts by class.
    share : tuple[int, int]
        Which share of the batches, and of how many: ``(0, 1)`` for all. The shares of a model that neither
        remembers nor is random are those of the whole evaluation, bit for bit. One that is random in
        evaluation mode has the same seed each time.
    """
    batches = list(examples.batches(EVALUATION_BATCH))
    first, last = (len(batches) * i // share[1] for i in (share[0], share[0] + 1))
    found = []
    model.eval()
    with torch.inference_mode(), seeded(0):
        for inputs, targets in examples.load(batches[first:last]):
            output = model(inputs)
            values = {"loss": problem.loss(output, targets, "sum"), **problem.scores(output, targets)}
            sums = {name: value.sum().item() for name, value in values.items()}
            counts = problem.by_class(output, targets, classes) if classes else {}
            found.append(BatchSums(sums, int(problem.predictions(targets).sum()), counts))
    return found


def metrics_of(
    batches: Iterable[BatchSums], model: nn.Module, problem: Problem
) -> tuple[dict[str, Any], int]:
    """Return the metrics of all batches, and the number of predictions; sums are added in their order.

    Raises
    ------
    FloatingPointError
        When the mean loss is not finite.
    """
    sums: dict[str, float] = {}
    counts: dict[str, torch.Tensor] = {}
    predictions = 0
    for batch in batches:
        sums |= {name: sums.get(name, 0.0) + value for name, value in batch.sums.items()}
        counts |= {name: counts[name] + n if name in counts else n for name, n in batch.counts.items()}
        predictions += batch.predictions
    means = {name: value / predictions for name, value in sums.items()}
    if not math.isfinite(means["loss"]):
        raise FloatingPointError(f"evaluation diverged: the loss is {means['loss']}")
    with torch.inference_mode():
        of_model = problem.of_model(model.eval())
    lists = {name: counted.tolist() for name, counted in counts.items()}
    return {**means, **problem.derived(means), **of_model, **lists}, predictions
