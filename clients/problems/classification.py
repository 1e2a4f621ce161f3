"""Classes of examples, labels that are each yes or no, and next characters."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.core.ground.wire import CLASS_EXAMPLES, CLASS_HITS

from ..modules.lazy_torch import functional, nn, torch
from .base import Problem, shape_of, wrong_shape
from .metrics.base import CLASSES, LABELS


class Classification(Problem):
    """Classification by cross-entropy of (b, classes) outputs and class indices (b,); accuracy in 0..1."""

    learns = "classes"
    metrics = ("loss", "accuracy")
    predicts = CLASSES
    compared_by = "accuracy"
    higher_is_better = frozenset({"accuracy"})
    ranges: Mapping[str, tuple[float, float]] = {"accuracy": (0.0, 1.0)}

    def loss(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return functional.cross_entropy(output, targets, reduction=reduction)

    def scores(self, output: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"accuracy": (output.argmax(1) == targets).float()}

    def by_class(self, output: torch.Tensor, targets: torch.Tensor, classes: int) -> dict[str, torch.Tensor]:
        hit = targets[output.argmax(1) == targets]
        counted = {CLASS_HITS: hit, CLASS_EXAMPLES: targets}
        return {name: torch.bincount(some, minlength=classes) for name, some in counted.items()}

    def predicted(self, output: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return output.double().softmax(1).cpu(), targets.cpu()

    def misfit(self, model: nn.Module, inputs: torch.Tensor, output: object, outputs: int) -> str:
        shape = shape_of(output)
        fits = len(shape) == 2 and shape[0] == 2 and shape[1] >= outputs
        return "" if fits else wrong_shape((2, outputs), output)


class MultiLabel(Problem):
    """Several labels, each yes or no, by binary cross-entropy with logits; accuracy: share of labels right.

    Outputs are (b, labels), targets 0 or 1, float32 (b, labels). Loss and accuracy are means over labels. A
    label is predicted from a probability of 0.5 on.
    """

    learns = "numbers"
    metrics = ("loss", "accuracy")
    predicts = LABELS
    compared_by = "accuracy"
    higher_is_better = frozenset({"accuracy"})
    ranges: Mapping[str, tuple[float, float]] = {"accuracy": (0.0, 1.0)}

    @classmethod
    def misfit_of_targets(cls, kind: str, targets: NDArray) -> str:
        if kind != cls.learns:
            return f"labels of 0 or 1, not {kind}"
        others = targets[(targets != 0) & (targets != 1)]
        return f"labels of 0 or 1, not {np.ravel(others)[0]:g}" if others.size else ""

    def loss(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        if reduction == "mean":
            return functional.binary_cross_entropy_with_logits(output, targets)
        each = functional.binary_cross_entropy_with_logits(output, targets, reduction="none").mean(1)
        return each.sum() if reduction == "sum" else each

    def scores(self, output: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"accuracy": ((output >= 0) == (targets > 0)).float().mean(1)}

    def predicted(self, output: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return output.double().sigmoid().cpu(), targets.long().cpu()

    def misfit(self, model: nn.Module, inputs: torch.Tensor, output: object, outputs: int) -> str:
        return "" if shape_of(output) == (2, outputs) else wrong_shape((2, outputs), output)


NOTHING = -1
LARGEST = 709.0  # exp of a greater loss overflows


class NextCharacter(Problem):
    """Next-character prediction by cross-entropy; metrics: accuracy in 0..1 and perplexity, exp(loss).

    Outputs are (b, length, characters), targets character indices (b, length), -1 for no target. All metrics
    are means over characters: a window that is half full has half the weight.
    """

    learns = "characters"
    metrics = ("loss", "accuracy", "perplexity")
    predicts = CLASSES
    compared_by = "accuracy"
    higher_is_better = frozenset({"accuracy"})
    ranges: Mapping[str, tuple[float, float]] = {"accuracy": (0.0, 1.0), "perplexity": (0.0, math.inf)}

    def loss(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        loss = functional.cross_entropy(
            output.flatten(0, 1), targets.flatten(), ignore_index=NOTHING, reduction=reduction
        )
        return loss.view_as(targets).sum(1) / self.predictions(targets) if reduction == "none" else loss

    def scores(self, output: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"accuracy": (output.argmax(2) == targets).sum(1, dtype=torch.float32)}

    def predictions(self, targets: torch.Tensor) -> torch.Tensor:
        return (targets != NOTHING).sum(1, dtype=torch.float32)

    def derived(self, means: Mapping[str, float]) -> dict[str, float]:
        loss = means["loss"]
        return {"perplexity": math.exp(loss) if loss < LARGEST else math.inf}

    def predicted(self, output: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        there = targets != NOTHING
        return output[there].double().softmax(1).cpu(), targets[there].cpu()

    def misfit(self, model: nn.Module, inputs: torch.Tensor, output: object, outputs: int) -> str:
        shape = shape_of(output)
        fits = len(shape) == 3 and shape[:2] == inputs.shape and shape[2] >= outputs
        return "" if fits else wrong_shape((*inputs.shape, outputs), output)
