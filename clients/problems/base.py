"""The base of every learning problem; how a network is evaluated on images larger than it trains on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from copy import copy
from typing import ClassVar, Self

from numpy.typing import NDArray

from ..modules.lazy_torch import nn, torch
from .metrics import Metric, Predicted
from .metrics.base import CLASSES

WIDTH = 1 / 8
"""Standard deviation of the weights, in sides of a window."""
LEAST = 1e-3
"""Weight of the corners, which would otherwise be rounded off."""


def in_windows(model: nn.Module, inputs: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Return a network's outputs of windows, averaged where these overlap by half.

    A window counts most at its centre, by a Gaussian, as in nnU-Net (Isensee et al. 2021, supplementary note
    4). The last windows end with the image.

    Parameters
    ----------
    model : nn.Module
        Maps (b, channels, *sizes) to (b, outputs, *sizes).
    inputs : Tensor
        (b, channels, ...), at least as large as a window along each axis.
    sizes : Sequence[int]
        Of a window.

    Returns
    -------
    Tensor
        (b, outputs, ...), as large as the inputs.
    """
    weights = _weights(sizes).to(inputs.device)
    total = torch.zeros(())
    counted = torch.zeros(inputs.shape[2:], device=inputs.device)
    pairs = zip(inputs.shape[2:], sizes, strict=True)
    for starts in itertools.product(*(_starts(size, window) for size, window in pairs)):
        place = tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))
        output = model(inputs[(slice(None), slice(None), *place)])
        if not total.dim():
            total = output.new_zeros((*output.shape[:2], *inputs.shape[2:]))
        total[(slice(None), slice(None), *place)] += output * weights
        counted[place] += weights
    return total / counted


def _starts(size: int, window: int) -> list[int]:
    last = size - window
    return sorted({*range(0, last, max(1, window // 2)), last})


def _weights(sizes: Sequence[int]) -> torch.Tensor:
    weights = torch.ones(tuple(sizes))
    for axis, size in enumerate(sizes):
        away = (torch.arange(size) - (size - 1) / 2) / (WIDTH * size)
        weights = weights * torch.exp(-(away**2) / 2).reshape(
            [-1 if a == axis else 1 for a in range(len(sizes))]
        )
    return weights.clamp(min=LEAST)


class Problem:
    """A learning problem: the loss and the metrics of predictions.

    An example may have several predictions (the characters of a text); a metric is a mean over predictions.
    """

    learns: ClassVar[str] = ""
    """The targets that it learns: ``classes``, ``numbers``, ``characters`` or ``masks``; "" for any."""
    metrics: tuple[str, ...] = ("loss",)
    """The names of all metrics of held-out examples, the loss first."""
    compared_by: str = "loss"
    """The headline: the metric by which runs are compared."""
    higher_is_better: frozenset[str] = frozenset()
    """The metrics that are better when higher; the others are better when lower."""
    ranges: Mapping[str, tuple[float, float]] = {}
    """Minimum and maximum of metrics of held-out examples, by name; the others are >= 0."""
    predicts: ClassVar[str] = ""
    """What `predicted` gives, as `metrics.Predicted` says; "" if nothing: there are no further metrics."""
    background: ClassVar[bool] = False
    """Whether class 0 is the background, which metrics of the confusion matrix leave out."""
    values_at_once: ClassVar[int] = 0
    """How many values of held-out examples are evaluated at a time; 0 for any number."""
    windows: tuple[int, ...] = ()
    """The sizes of the windows by which images are evaluated; none for whole ones."""
    case_metrics: ClassVar[tuple[str, ...]] = ()
    """The metrics of each held-out case that `of_each_case` gives; none where a case has one prediction."""
    spacing: tuple[float, ...] = ()
    """Millimetres between the values of an example along each axis; none where that is not known."""
    tolerance: float = 1.0
    """Up to which distance two surfaces are the same: in millimetres with a `spacing`, else in pixels."""
    chosen: Mapping[str, Metric] = {}
    """The further metrics of this run, by name; see `with_metrics`."""
    events: tuple[int, ...] = ()
    """The event of two classes, or of each label, 0 or 1; by default 1. See `toward_events`."""
    further: tuple[str, ...] = ()
    """The names of all their values: those of the metrics, and those by class."""

    @classmethod
    def misfit_of_targets(cls, kind: str, targets: NDArray) -> str:
        """Return a description of the required targets if these do not fit; "" if they fit.

        ``kind`` is ``classes``, ``numbers``, ``characters`` or ``masks``. ``targets`` are those of all
        training examples, (N, ...); empty where they are not visible.
        """
        return "" if cls.learns in ("", kind) else f"{cls.learns}, not {kind}"

    def outputs_for(self, targets: int) -> int:
        """Return how many outputs a prediction has, of that many classes, numbers or characters."""
        return targets

    def outputs_of(self, model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of a model that is evaluated, (b, ...), of inputs (b, ...)."""
        output: torch.Tensor = in_windows(model, inputs, self.windows) if self.windows else model(inputs)
        return output

    def loss(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        """Return the loss of a batch, from the model's output, (b, ...), and the targets, (b, ...).

        ``reduction`` is as in PyTorch: ``mean`` and ``sum`` over the batch's predictions give a scalar;
        ``none`` gives the mean over each example's predictions, shape (b,).
        """
        raise NotImplementedError

    def scores(self, output: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return further metrics by name: for each example the sum over its predictions, shape (b,)."""
        return {}

    def predictions(self, targets: torch.Tensor) -> torch.Tensor:
        """Return the number of predictions of each example, float32 (b,)."""
        return targets.new_ones(len(targets), dtype=torch.float32)

    def derived(self, means: Mapping[str, float]) -> dict[str, float]:
        """Return metrics that are functions of the mean loss and scores, by name."""
        return {}

    def by_class(self, output: torch.Tensor, targets: torch.Tensor, classes: int) -> dict[str, torch.Tensor]:
        """Return counts by class of a batch, int64 (classes,): ``class-hits`` and ``class-examples``.

        It is empty if the problem has no classes.
        """
        return {}

    def predicted(self, output: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scores and targets of each prediction of a batch, as `metrics.Metric.batch` takes them."""
        raise NotImplementedError

    def usual_metrics(self, predicted: Predicted) -> dict[str, Metric]:
        """Return metrics by name that every run has in addition to `metrics`, for these predictions."""
        return {}

    def with_metrics(self, chosen: Mapping[str, Metric], compared_by: str = "") -> Self:
        """Return this problem with further metrics, by name, and perhaps with another headline."""
        problem = copy(self)
        problem.chosen = chosen
        columns = {column: metric for name, metric in chosen.items() for column in metric.columns(name)}
        problem.further = tuple(columns)
        problem.metrics = (*self.metrics, *columns)
        problem.compared_by = compared_by or self.compared_by
        higher = (column for column, metric in columns.items() if metric.higher_is_better)
        problem.higher_is_better = self.higher_is_better.union(higher)
        problem.ranges = {**self.ranges, **{column: metric.range for column, metric in columns.items()}}
        return problem

    def of_each_case(self, output: torch.Tensor, targets: torch.Tensor) -> dict[str, NDArray]:
        """Return the stored values of each example of a batch, (b, ...), by name; with `case_metrics` only.

        Scores float64 and targets int64, (b, k) each, are columns of a table.
        """
        raise NotImplementedError

    def case_columns(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the columns of the scores and of the targets that `of_each_case` returns.

        ``names`` are those of all classes.
        """
        raise NotImplementedError

    def with_distances(self, spacing: tuple[float, ...], tolerance: float | None) -> Self:
        """Return this problem with a `spacing`, and a `tolerance`: None for that of one value."""
        usual = max(spacing, default=1.0)
        return self._with(spacing=spacing, tolerance=usual if tolerance is None else tolerance)

    def _with(self, **values: object) -> Self:
        problem = copy(self)
        vars(problem).update(values)
        return problem

    def with_events(self, events: tuple[int, ...]) -> Self:
        """Return this problem with these `events`."""
        return self._with(events=events)

    def toward_events(self, scores: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the result of `predicted` with the event as class 1, or label 1, for metrics and cases."""
        if 0 not in self.events:
            return scores, targets
        if self.predicts == CLASSES:
            return scores[:, [1, 0, *range(2, scores.shape[1])]], 1 - targets
        turned = torch.tensor(self.events) == 0
        return torch.where(turned, 1 - scores, scores), torch.where(turned, 1 - targets, targets)

    def with_windows(self, sizes: tuple[int, ...]) -> Self:
        """Return this problem, evaluated by windows of these sizes."""
        return self._with(windows=sizes)

    @property
    def metrics_of_all_classes(self) -> tuple[str, ...]:
        """The names in `metrics` without those by class."""
        return tuple(name for name in self.metrics if name in self.chosen or name not in self.further)

    def of_model(self, model: nn.Module) -> dict[str, float]:
        """Return metrics of the model itself, independent of the examples, by name."""
        return {}

    def misfit(self, model: nn.Module, inputs: torch.Tensor, output: object, outputs: int) -> str:
        """Return a description of the required model if this one does not fit; "" if it fits.

        ``output`` is the model's output for two inputs. ``outputs`` is the number of outputs per prediction,
        see `outputs_for`.
        """
        raise NotImplementedError


def shape_of(output: object) -> tuple[int, ...]:
    """Return the shape of a tensor; () for anything else."""
    return tuple(output.shape) if isinstance(output, torch.Tensor) else ()


def wrong_shape(expected: tuple[int, ...], output: object) -> str:
    """Describe the required model: its output for two examples has the expected shape."""
    found = shape_of(output) or f"a {type(output).__name__}"
    return f"one whose output for two examples has the shape {expected}, not {found}"
