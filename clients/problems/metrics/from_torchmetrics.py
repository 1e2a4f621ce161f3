"""Metrics of torchmetrics, by the names of their classes: those whose states add.

``cohen-kappa`` is ``MulticlassCohenKappa``, ``MultilabelCohenKappa`` or, of two classes,
``BinaryCohenKappa``; ``explained-variance`` is ``ExplainedVariance``. Arguments have torchmetrics' defaults.
"""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...modules.lazy_torch import torch
from .base import CLASSES, NUMBERS, Metric, Predicted
from .scores import thresholds


def class_named(name: str, predicted: Predicted) -> type | None:
    """Return torchmetrics' class of a name in kebab case, for these predictions; None if there is none."""
    import torchmetrics.classification
    import torchmetrics.regression

    words = name.replace("-", "")
    if predicted.kind == NUMBERS:
        return _listed(torchmetrics.regression, words)
    kind = "Multiclass" if predicted.kind == CLASSES else "Multilabel"
    return _listed(torchmetrics.classification, f"{'Binary' if predicted.binary else kind}{words}")


def _listed(module: Any, name: str) -> type | None:
    found = (known for known in module.__all__ if known.lower() == name.lower())
    return next((getattr(module, known) for known in found), None)


def is_torchmetric(value: object) -> bool:
    """Return whether a value is a class of metrics of torchmetrics."""
    if not isinstance(value, type) or issubclass(value, Metric):
        return False  # without torchmetrics, whose import takes seconds
    import torchmetrics

    return issubclass(value, torchmetrics.Metric)


class TorchMetric(Metric):
    """A metric of torchmetrics. Its states, flattened into one float64 vector, are the state.

    Raises
    ------
    ValueError
        When its states do not add, it declares no direction, or its value is not a single number; the message
        says which.
    """

    def __init__(self, predicted: Predicted, cls: type) -> None:
        super().__init__(predicted)
        self.metric = _made(cls, predicted)
        for name, reduction in self.metric._reductions.items():
            default = self.metric._defaults[name]
            if reduction is not _sum() or not isinstance(default, torch.Tensor):
                how = "a list of all examples" if isinstance(default, list) else "not reduced by a sum"
                raise ValueError(f"one whose states add: {cls.__name__}'s state {name!r} is {how}")
        if self.metric.higher_is_better is None:
            raise ValueError(f"one with a direction: {cls.__name__} does not say whether higher is better")
        self.higher_is_better = self.metric.higher_is_better
        self.range = (-math.inf, math.inf)
        some = self._updated(*_two_examples(predicted))
        self._states = {name: state.clone() for name, state in some.items()}
        """States of some examples, for their shapes: that of a default may be another one."""
        value = self._computed()
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            raise ValueError(f"one whose value is a number, which that of {cls.__name__} is not")

    def zeros(self) -> NDArray:
        return np.concatenate([np.zeros(state.numel()) for state in self._states.values()])

    def batch(self, scores: torch.Tensor, targets: torch.Tensor) -> NDArray:
        return np.concatenate([_flat(state) for state in self._updated(scores, targets).values()])

    def _updated(self, scores: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the metric's states of these examples."""
        metric, binary = self.metric, self.predicted.binary
        metric.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.predicted.kind == NUMBERS and self.predicted.size == 1:
                scores, targets = scores.squeeze(1), targets.squeeze(1)
            metric.update(scores[:, 1] if binary else scores, targets)
        states: dict[str, torch.Tensor] = metric.metric_state
        return states

    def values(self, total: NDArray) -> NDArray[np.float64]:
        metric = self.metric
        metric.reset()
        metric._update_count = 1  # or it warns that it was not updated
        start = 0
        for name, state in self._states.items():
            part = torch.from_numpy(total[start : start + state.numel()].copy())
            setattr(metric, name, part.view(state.shape).to(state.dtype))
            start += state.numel()
        try:
            return _flat(self._computed())
        except ValueError:  # torchmetrics' error for too few examples
            return np.array([np.nan])

    def _computed(self) -> Any:
        """Return the value of the metric's current states."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.metric.compute()


def _two_examples(predicted: Predicted) -> tuple[torch.Tensor, torch.Tensor]:
    scores, targets = predicted.nothing()
    shape = (2, *targets.shape[1:])
    return torch.full((2, predicted.size), 1 / predicted.size, dtype=scores.dtype), targets.new_ones(shape)


def _flat(state: torch.Tensor) -> NDArray[np.float64]:
    return state.numpy().reshape(-1).astype(np.float64)


def _sum() -> Any:
    from torchmetrics.utilities import dim_zero_sum

    return dim_zero_sum


def _made(cls: type, predicted: Predicted) -> Any:
    """Return an instance that computes in float64, with its required arguments."""
    known = {
        "num_classes": predicted.size,
        "num_labels": predicted.size,
        "num_outputs": predicted.size,
        "thresholds": thresholds(predicted.thresholds),
        "validate_args": False,
    }
    takes = inspect.signature(cls).parameters
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            metric = cls(**{name: value for name, value in known.items() if name in takes})
    except TypeError as error:
        raise ValueError(f"one without further arguments: {error}") from None
    return metric.set_dtype(torch.float64)
