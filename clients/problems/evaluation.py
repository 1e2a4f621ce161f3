"""Evaluation of a model on held-out examples: sums over batches, and the metrics that follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.core.ground.wire import CASES, CLASS_EXAMPLES, CLASS_HITS, STATES

from ..examples import Examples
from ..modules.first_values import begin_anew
from ..modules.lazy_torch import nn, torch
from ..modules.rng import seeded
from ..modules.surroundings import usual_surroundings
from ..returned import WrongResult
from .base import Problem, shape_of
from .metrics import Metric
from .segmentation import SCORES, SLICES, TARGETS
from .surfaces import shown_cases

if TYPE_CHECKING:
    from ..losses import Loss

EVALUATION_BATCH = 1000
PREDICTIONS = "predictions"
ROWS, SHOWN = "rows", "shown"
"""What is kept of each held-out case, (n, ...) each: its row, what was predicted, and its target. Of masks
also the numbers of the cases with a shown slice, and the prediction in that slice."""

Sums = Mapping[str, NDArray]
"""What is added up over batches, by name: the one mechanism of all metrics of examples.

- Sums over predictions, float64 of shape (): the loss and the problem's scores.
- ``predictions``: their number, int64 of shape ().
- Counts by class, int64 (classes,), if they were asked for: see `Problem.by_class`.
- The states of the run's further metrics: see `metrics.Metric`.
"""
Predictions = dict[str, NDArray]
"""The scores and the targets of a batch, see `Problem.predicted`; or `Problem.of_each_case`."""
NOTHING_KEPT: Mapping[str, list[Predictions]] = MappingProxyType({})


def evaluate_splits(
    model: nn.Module,
    examples: Mapping[str, Examples],
    splits: str,
    problem: Problem,
    classes: int = 0,
    cases_of: str = "",
) -> dict[str, Any]:
    """Evaluate a model on comma-separated splits; see `metrics_of_splits`.

    If ``cases_of`` is one of the splits, ``held-out-cases`` has the row, the scores and the target of each of
    its examples, as `Problem.predicted` or `Problem.of_each_case` returns them. Of several, separated by
    commas, the last one has plain names, and the others' names begin with ``SPLIT-``.
    """
    kept: dict[str, list[Predictions]] = {split: [] for split in cases_of.split(",")}
    batches = evaluate_share(model, examples, splits, problem, classes, kept=kept)
    metrics = metrics_of_splits(batches, model, problem)
    cases: dict[str, NDArray] = {}
    for split, parts in kept.items():
        prefix = "" if split == list(kept)[-1] else f"{split}-"
        if parts:
            found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            if SLICES in found:
                shown = shown_cases(found[SCORES][:, 0])
                found |= {SHOWN: shown, SLICES: found[SLICES][shown]}
            found |= {ROWS: examples[split].rows}
            cases |= {prefix + name: array for name, array in found.items()}
    return {**metrics, CASES: cases} if cases else metrics


def evaluate_share(
    model: nn.Module,
    examples: Mapping[str, Examples],
    splits: str,
    problem: Problem,
    classes: int,
    share: tuple[int, int] = (0, 1),
    kept: Mapping[str, list[Predictions]] = NOTHING_KEPT,
) -> dict[str, list[Sums]]:
    """Return the sums of a share of each split's batches; see `evaluate_batches`."""
    names = filter(None, splits.split(","))
    return {
        name: evaluate_batches(model, examples[name], problem, classes, share, kept.get(name))
        for name in names
    }


def metrics_of_splits(
    batches: Mapping[str, Iterable[Sums]], model: nn.Module, problem: Problem
) -> dict[str, Any]:
    """Return the metrics of each split's batches.

    The first split's metrics have their plain names (``loss``, ``accuracy``), and ``eval-examples`` is the
    number of predictions. The other splits' are ``SPLIT-loss``, ... and ``SPLIT-examples``. Counts by class
    are lists. A metric that is undefined on these examples is left out. With further metrics, ``states`` has
    their states, whose names have the same prefixes.

    Raises
    ------
    FloatingPointError
        When a mean loss is not finite.
    """
    metrics: dict[str, Any] = {}
    states: dict[str, NDArray] = {}
    for i, (split, found) in enumerate(batches.items()):
        prefix = f"{split}-" if i else ""
        total = added(found)
        metrics |= {prefix + name: value for name, value in _metrics_of(total, model, problem).items()}
        metrics[f"{split if i else 'eval'}-examples"] = int(total[PREDICTIONS])
        states |= {prefix + metric.state: total[metric.state] for metric in problem.chosen.values()}
    return metrics | ({STATES: states} if problem.chosen else {})


@usual_surroundings()
def evaluate_batches(
    model: nn.Module,
    examples: Examples,
    problem: Problem,
    classes: int,
    share: tuple[int, int],
    kept: list[Predictions] | None,
) -> list[Sums]:
    """Return the sums of each batch, in evaluation mode.

    Parameters
    ----------
    classes : int
        The number of classes; 0 for no counts by class.
    share : tuple[int, int]
        The number of the share and of all shares: ``(0, 1)`` for all batches. For a model that is neither
        stateful nor random, shares are bit-identical to the whole evaluation. A model that is random in
        evaluation mode gets the same seed each time.
    kept : list, optional
        The predictions of each batch are appended to it.
    """
    batches = list(examples.batches(evaluation_batch(examples, problem)))
    first, last = (len(batches) * i // share[1] for i in (share[0], share[0] + 1))
    found: list[Sums] = []
    by_state = {metric.state: metric for metric in problem.chosen.values()}
    begin_anew(model)
    model.eval()
    with torch.inference_mode(), seeded(0):
        for inputs, targets in examples.load(batches[first:last]):
            output = problem.outputs_of(model, inputs)
            sums = _own_sums(problem, output, targets)
            if classes:
                counts = problem.by_class(output, targets, classes)
                sums |= {name: count.cpu().numpy() for name, count in counts.items()}
            if kept is not None:
                kept.append(_of_each(problem, output, targets))
            if by_state:
                predicted = _predicted(problem, output, targets)
                sums |= {name: _state(metric, *predicted) for name, metric in by_state.items()}
            found.append(sums)
    return found


@usual_surroundings()
def mean_loss(model: nn.Module, examples: Examples, loss: Loss) -> float:
    """Return the mean of a training loss over all predictions of some examples, in evaluation mode.

    Raises
    ------
    FloatingPointError
        When it is not finite.
    """
    problem, total, predictions = loss.problem, 0.0, 0.0
    model.eval()
    with torch.inference_mode(), seeded(0):
        for inputs, targets in examples.load(examples.batches(evaluation_batch(examples, problem))):
            count = float(predictions_of(problem, targets).sum())
            total += count * loss(problem.outputs_of(model, inputs), targets).item()
            predictions += count
    if not math.isfinite(total):
        raise FloatingPointError(f"the loss of the model before training is {total}")
    return total / predictions


def _own_sums(problem: Problem, output: torch.Tensor, targets: torch.Tensor) -> dict[str, NDArray]:
    """Return the sums of a batch that every problem has: its loss, its scores, its predictions."""
    values = {"loss": problem.loss(output, targets, "sum"), **scores_of(problem, output, targets)}
    sums = {name: np.array(value.sum().item(), np.float64) for name, value in values.items()}
    return {**sums, PREDICTIONS: np.array(int(predictions_of(problem, targets).sum()))}


def metrics_of_scores(
    scores: NDArray, targets: NDArray, problem: Problem
) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the metrics of cases with these scores in place of a model's, and the states of further ones.

    Parameters
    ----------
    scores : NDArray
        Probabilities of classes or labels, float64 (n, k), none of which is 0 or 1 to the last bit.
    targets : NDArray
        Targets as stored with cases, with the event as 1.
    problem : Problem
        One whose outputs are logits: a `Classification` or a `MultiLabel`.
    """
    problem = problem.with_events(())
    probability, truth = torch.from_numpy(scores), torch.from_numpy(targets)
    if truth.ndim == 1:
        output, goal = probability.log(), truth
    else:
        output, goal = probability.logit(), truth.double()
    states = {m.state: _state(m, *_predicted(problem, output, goal)) for m in problem.chosen.values()}
    means = _means(_own_sums(problem, output, goal))
    further = value_of_each(states, problem)
    return {**means, **derived_of(problem, means), **further, "examples": len(scores)}, states


def scores_of(problem: Problem, output: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return `Problem.scores`, (b,) each.

    Raises
    ------
    WrongResult
        For another shape: a mean over the batch, for example, would be added as a sum.
    """
    scores: object = problem.scores(output, targets)
    shape = (len(targets),)
    if not isinstance(scores, dict) or any(shape_of(score) != shape for score in scores.values()):
        raise WrongResult(problem, "scores", scores, f"a dict of tensors of shape {shape}")
    return scores


def predictions_of(problem: Problem, targets: torch.Tensor) -> torch.Tensor:
    """Return `Problem.predictions`, (b,).

    Raises
    ------
    WrongResult
        For another shape.
    """
    found: object = problem.predictions(targets)
    if shape_of(found) != (len(targets),):
        raise WrongResult(problem, "predictions", found, f"a tensor of shape {(len(targets),)}")
    return found  # type: ignore[return-value]


def derived_of(problem: Problem, means: Mapping[str, float]) -> Mapping[str, float]:
    """Return `Problem.derived`.

    Raises
    ------
    WrongResult
        Where it is no mapping of numbers.
    """
    return _numbers(problem, "derived", problem.derived(means))


def _numbers(problem: Problem, method: str, found: object) -> Mapping[str, float]:
    if not isinstance(found, Mapping) or any(isinstance(value, str) for value in found.values()):
        raise WrongResult(problem, method, found, "a dict of numbers by name")
    return found


def _predicted(
    problem: Problem, output: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    found: object = problem.predicted(output, targets)
    both = isinstance(found, tuple) and len(found) == 2 and all(isinstance(t, torch.Tensor) for t in found)
    if not both:
        raise WrongResult(problem, "predicted", found, "(scores, targets), two tensors")
    return problem.toward_events(*found)  # type: ignore[misc]


def _of_each(problem: Problem, output: torch.Tensor, targets: torch.Tensor) -> Predictions:
    if problem.case_metrics:
        return problem.of_each_case(output, targets)
    count, predicted = len(targets), _predicted(problem, output, targets)
    scores, truth = predicted
    if scores.ndim != 2 or not len(scores) == len(truth) == count:
        raise WrongResult(problem, "predicted", predicted, f"scores and targets of each of {count} examples")
    return {SCORES: scores.cpu().numpy(), TARGETS: truth.cpu().numpy()}


def _state(metric: Metric, scores: torch.Tensor, targets: torch.Tensor) -> NDArray:
    found: object = metric.batch(scores, targets)
    if not isinstance(found, np.ndarray):
        raise WrongResult(metric, "batch", found, "a NumPy array")
    return found


def evaluation_batch(examples: Examples, problem: Problem) -> int:
    """Return the number of examples evaluated at a time."""
    limit = problem.values_at_once
    return min(EVALUATION_BATCH, max(1, limit // examples.width)) if limit else EVALUATION_BATCH


def added(parts: Iterable[Sums]) -> dict[str, NDArray]:
    """Add sums of the same names, in their order; integer sums are exact, float64 ones to rounding."""
    total: dict[str, NDArray] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total


def value_of_each(states: Mapping[str, NDArray], problem: Problem, prefix: str = "") -> dict[str, float]:
    """Return the run's further values, of sums whose names have the prefix; without the undefined ones."""
    found: dict[str, float] = {}
    for name, metric in problem.chosen.items():
        found |= metric.by_column(name, states[prefix + metric.state])
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _metrics_of(total: Sums, model: nn.Module, problem: Problem) -> dict[str, Any]:
    """Return the metrics of the sums of a whole split.

    Raises
    ------
    FloatingPointError
        When the mean loss is not finite.
    """
    means = _means(total)
    if not math.isfinite(means["loss"]):
        raise FloatingPointError(f"evaluation diverged: the loss is {means['loss']}")
    with torch.inference_mode():
        of_model = _numbers(problem, "of_model", problem.of_model(model.eval()))
    counts = {name: total[name].tolist() for name in (CLASS_HITS, CLASS_EXAMPLES) if name in total}
    further = value_of_each(total, problem)
    return {**means, **derived_of(problem, means), **of_model, **further, **counts}


def _means(total: Sums) -> dict[str, float]:
    predictions = int(total[PREDICTIONS])
    return {
        n: float(value) / predictions for n, value in total.items() if not value.ndim and n != PREDICTIONS
    }
