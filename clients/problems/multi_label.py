"""Several labels of an example, each yes or no."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..modules.lazy_torch import functional, nn, torch
from .base import Problem, shape_of, wrong_shape
from .metrics.base import LABELS


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
